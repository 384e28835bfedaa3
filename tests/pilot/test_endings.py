"""However a flight ends, it does so by itself, motors stop and there is a result; what is beside the flight may fail."""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.client import MavlinkClient, VideoReceiver
from gate_racer.link.messages import Arm, Farewell, Heartbeat, Imu, RaceStatus
from gate_racer.link.profile import load_profile
from gate_racer.link.record import read_records
from gate_racer.link.server import ServerCodec
from gate_racer.link.sockets import LinkError, bind_udp
from gate_racer.pilot import perception_process
from gate_racer.pilot.flight import EndReason, FlightCounters, Passages, Phase
from gate_racer.pilot.handshake import Handshake
from gate_racer.pilot.live import SILENCE_S, LiveDriver, exit_code_of, forgiving, interruptible, stop_motors
from gate_racer.pilot.perception_process import FROZEN_S, PerceptionProcess
from gate_racer.pilot.pilot import Pilot
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Console, Recorder, Scoreboard
from gate_racer.pilot.records.result import OWN_ESTIMATE, RACE_STATUS, lap_times, live_verdict
from gate_racer.race.session import Session, recorded

SPEC = load_profile("spec")


class Flight:
    """Stub of a pilot with the members that an ending uses."""

    def __init__(self, phase=Phase.RACE, gates=6):
        self.phase, self.cause, self.go_t = phase, "", 10.0
        self.guidance = SimpleNamespace(course=[None] * gates, passages=Passages())
        self.estimator, self.counters = SimpleNamespace(t=20.0), FlightCounters()

    def abort(self, reason, cause):
        if self.phase not in (Phase.FINISHED, Phase.ABORTED):
            self.phase, self.cause = Phase.ABORTED, cause


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(FlightLog(tmp_path / "flight.mcap"))
    yield recorder
    recorder.close()


# Signals, errors, motors.


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda x: str(x)
)
def test_a_signal_aborts_in_order_and_names_itself(number, code):
    flight = Flight()
    before = signal.getsignal(number)
    with interruptible(flight):
        os.kill(os.getpid(), number)
    assert flight.phase is Phase.ABORTED and exit_code_of(flight.cause) == code
    assert signal.getsignal(number) is before


def test_an_unexpected_error_ends_the_flight_with_a_reason(recorder):
    flight = Flight()
    with forgiving(flight, recorder):
        raise ZeroDivisionError("by nothing")
    assert flight.cause == "internal error: ZeroDivisionError: by nothing"
    assert "Traceback" in recorder.troubles["internal error"]
    with pytest.raises(UserError), forgiving(flight, recorder):
        raise UserError("a line")


def test_the_log_tells_the_end_of_a_flight_whatever_ended_it(tmp_path):
    path, flight = tmp_path / "flight.mcap", Flight()
    session = SimpleNamespace(
        open_log=lambda say: FlightLog(path), plan=None, described={"world": None}, profile=SimpleNamespace(name="spec")
    )
    with recorded(session, flight) as recorder:
        recorder.phase(flight)
        flight.abort(EndReason.NO_LINK, "no IMU sample for 3 s")  # by the driver, after its last tick
    told = [(record["phase"], record["reason"]) for _, record in read_records(path, only=["/phase"])]
    assert told == [("race", ""), ("aborted", "no IMU sample for 3 s")]


def test_flights_that_begin_in_one_second_have_a_log_each(tmp_path, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda _: "20260101-000000")
    record, track = SimpleNamespace(log=tmp_path / "logs"), SimpleNamespace(name="vq1")
    one = SimpleNamespace(settings=SimpleNamespace(record=record), track=track, seed=7)
    paths = [Session.log_path(one) for _ in range(3)]
    assert sorted(paths) == sorted((tmp_path / "logs").iterdir()) and len(set(paths)) == 3


def deaf_to(count):
    """A simulator that takes notice of a disarm command only after so many, as if UDP had lost them; what it heard."""
    received, bound, codec = [], bind_udp("127.0.0.1", 0), ServerCodec(SPEC)
    bound.settimeout(0.2)

    def run(client):
        with bound:
            bound.sendto(codec.encode(Heartbeat(0.0, True))[0], client)
            while not over.is_set():
                try:
                    received.extend(codec.decode(bound.recv(1000)))
                except TimeoutError:
                    continue
                beat = Heartbeat(0.0, received.count(Arm(False)) <= count)
                bound.sendto(codec.encode(beat)[0], client)

    over = threading.Event()
    return received, run, over


@pytest.mark.parametrize(("lost", "fails"), [(0, False), (8, False), (0, True)])
def test_motors_are_stopped_until_that_is_confirmed_even_if_the_loop_fails(recorder, lost, fails, monkeypatch):
    monkeypatch.setattr("gate_racer.pilot.live.REPEAT_S", 0.01)
    received, run, over = deaf_to(lost)
    with MavlinkClient("127.0.0.1", 0, SPEC) as client:
        simulator = threading.Thread(target=run, args=(client.address,))
        simulator.start()
        assert client.receive(2.0)
        if fails:
            client.receive = lambda timeout_s: 1 / 0
        stop_motors(client, Flight(), recorder)
        over.set()
        simulator.join()
    assert received.count(Arm(False)) >= max(5, lost)


# The console.


def test_a_stderr_that_nobody_reads_holds_up_nobody(monkeypatch):
    inlet, outlet = os.pipe()
    with os.fdopen(outlet, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        monkeypatch.setattr("gate_racer.pilot.records.recorder.CLOSE_S", 0.2)
        console = Console()
        for _ in range(200):
            console.say("x" * 1000)  # a full pipe holds 64 kB
            console.show("y" * 1000)
        console.close()
        os.close(inlet)
        console._thread.join(5.0)
        assert not console._thread.is_alive(), "a closed one neither"


# Perception.


def test_a_perception_process_that_stands_still_is_told_of_and_killed(dcl, recorder, monkeypatch):
    perception = PerceptionProcess(partial(VideoReceiver, "127.0.0.1", 0), dcl.camera, "classical")
    pid, now = perception.worker.process.pid, time.monotonic()
    assert perception.silent_s(now) < FROZEN_S
    os.kill(pid, signal.SIGSTOP)
    driver = LiveDriver(Flight(), SimpleNamespace(host=""), perception, SPEC, recorder)
    driver._guard(now + FROZEN_S + 0.3, now, 60.0)
    assert "the perception process did not respond for 1." in recorder.troubles["perception"]
    monkeypatch.setattr(perception_process, "FROZEN_S", 0.0)
    perception.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# A simulator that ends or falls silent.


def pilot_after_go(dcl, phase):
    guidance = SimpleNamespace(conclude=lambda end: end, receive=lambda message: None)
    pilot = Pilot(Handshake(SPEC), SimpleNamespace(t=10.0), guidance, SPEC, dcl)
    pilot.handshake.phase, pilot.handshake.go_t, pilot._flight.airborne = Phase.LAUNCH, 3.0, True
    if phase is Phase.FINISHED:
        pilot.abort(EndReason.FINISHED, "")
    pilot.act = lambda: []
    return pilot


@contextmanager
def driver(pilot, recorder):
    """Run the driver with a perception that detects nothing."""
    ours, theirs = multiprocessing.Pipe()
    perception = SimpleNamespace(
        pipe=ours, receive=list, alive=True, accept_only=lambda host: None, silent_s=lambda now: 0.0
    )
    with MavlinkClient("127.0.0.1", 0, SPEC) as client:
        yield LiveDriver(pilot, client, perception, SPEC, recorder)
    for pipe in (ours, theirs):
        pipe.close()


@pytest.mark.parametrize(("pace", "slow"), [(1.0, True), (2.0, True), (0.4, False)])
def test_a_simulator_slower_than_real_time_is_no_slow_machine(dcl, recorder, pace, slow):
    with driver(pilot_after_go(dcl, Phase.RACE), recorder) as live:
        for k in range(100):
            live._client.rates.admit(k / 24)
            live._clock.reference(pace * k / 24, k / 24)
        assert live._overloaded() is slow
        live._pilot.handshake.go_t = None
        live._command(True)
        live._pilot.handshake.go_t = 3.0
        assert not live._overloaded(), "set-points before GO are no commands of the flight"


def test_a_simulator_that_waits_in_lock_step_is_told_of(dcl, recorder, monkeypatch):
    """It repeats its sample until that is answered."""
    sample, pilot = Imu(1.0, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0)), pilot_after_go(dcl, Phase.WAIT_LINK)
    monkeypatch.setattr(MavlinkClient, "receive", lambda *_: [(0.0, sample)])
    pilot.handshake.go_t, pilot.receive = None, lambda message: None
    with driver(pilot, recorder) as live:
        for _ in range(5):
            live._listen()
        with pytest.raises(LinkError, match="its time stands still, as in lock-step: add --lockstep"):
            live._guard(61.0, 0.0, 60.0)


def test_one_heartbeat_of_a_simulator_that_ends_is_not_the_end(dcl, recorder, monkeypatch):
    last_words = Farewell(10.0, "for no reason")
    monkeypatch.setattr(MavlinkClient, "receive", lambda *_: [(0.0, last_words)])
    pilot = pilot_after_go(dcl, Phase.RACE)
    with driver(pilot, recorder) as live:
        live._listen()
    assert not pilot.over
    pilot.receive(last_words)
    assert pilot.over and "for no reason" in pilot.cause


def test_a_finished_pilot_does_not_fly_on_in_a_simulator_that_has_ended(dcl):
    pilot = pilot_after_go(dcl, Phase.FINISHED)
    assert not pilot.over
    pilot.receive(Farewell(10.0, "no message for 10 s"))
    assert pilot.over and pilot.phase is Phase.FINISHED


@pytest.mark.parametrize(
    ("phase", "end", "reason"),
    [(Phase.RACE, Phase.ABORTED, f"no IMU sample for {SILENCE_S:g} s"), (Phase.FINISHED, Phase.FINISHED, "")],
)
def test_a_simulator_that_falls_silent_ends_the_flight(dcl, recorder, phase, end, reason):
    pilot = pilot_after_go(dcl, phase)
    with driver(pilot, recorder) as live:
        live.fly(5.0, lambda pilot: None)
    assert pilot.phase is end and pilot.cause == reason


# The verdict.


def status(gate, t=15.0, start=10.0, finish=None, gate_time=None):
    return RaceStatus(t, start, finish, gate, gate_time)


SCORED = "finished", RACE_STATUS, [2.9, 6.5]
RACES = [  # what was received after the start at 10 s, and in which phase; status, source and gate times of the verdict
    ("nothing", Phase.FINISHED, [], ("finished", OWN_ESTIMATE, [])),
    ("a finish of the race before", Phase.FINISHED, [(6, 5.0, 1.0, 4.9, 3.9)], ("finished", OWN_ESTIMATE, [])),
    ("no finish", Phase.FINISHED, [(0, 10.0), (1, 15.0, 10.0, None, 1.01)], ("missed_gate", RACE_STATUS, [1.01])),
    ("a count without the gate's time", Phase.FINISHED, [(0, 9.0), (1, 12.0)], ("missed_gate", RACE_STATUS, [2.0])),
    ("a later one", Phase.FINISHED, [(1, 17.0, 10.0, None, 5.0), (0, 27.0, 27.0)], ("missed_gate", RACE_STATUS, [5.0])),
    ("a set clock", Phase.RACE, [(1, 15.0), (1, 16.0, 10.004), (2, 17.0, 9.997)], ("aborted", RACE_STATUS, [5.0, 7.0])),
    ("a finish", Phase.ABORTED, [(1, 13.0, 10.0, None, 2.9), (2, 17.0, 10.0, 16.5, 6.5)], SCORED),
]


@pytest.mark.parametrize(("phase", "told", "verdict"), [row[1:] for row in RACES], ids=[row[0] for row in RACES])
def test_the_verdict_is_the_race_status_of_the_race_flown_if_there_is_one(phase, told, verdict):
    board, flight = Scoreboard(), Flight(phase, gates=2)
    for one in told:
        board.receive(status(*one))
    found = live_verdict(flight, board)
    assert (found.status, found.by, found.gate_times_s) == verdict
    assert found.status != "missed_gate" or "1 of 2" in found.cause


def test_after_the_finish_by_estimate_the_simulators_finish_is_waited_for(recorder):
    client = SimpleNamespace(peer=("127.0.0.1", 1), send=lambda *_: True)
    told = iter([status(5, 19.9), *[status(5, 20.0 + k / 10) for k in range(30)], status(6, 23.1, finish=23.0)])
    recorder.received(status(0, 10.0))
    client.receive = lambda timeout_s: (time.sleep(0.002), [(0.0, next(told, Heartbeat(24.0, False)))])[1]
    stop_motors(client, Flight(Phase.FINISHED), recorder)
    assert recorder.scoreboard.race(10.0).finished


def test_only_complete_laps_have_times():
    assert lap_times([1.0, 3.0, 4.0, 5.5, 7.0], 2) == [3.0, 2.5]
    assert lap_times([1.0], 2) == lap_times([], 2) == lap_times([], 0) == []
