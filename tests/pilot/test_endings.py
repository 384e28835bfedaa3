"""However a flight ends, motors stop and there is a result; what is beside the flight may fail."""

import errno
import os
import random
import resource
import signal
import socket
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from link.messages import Arm, Heartbeat, RaceStatus
from link.profile import load_profile
from link.record import RecordFile
from link.record_reader import read_records
from link.server import ServerCodec
from link.sockets import bind_udp
from link.udp import MavlinkClient, VideoReceiver
from pilot.drivers.ending import DISARMS, exit_code_of, forgiving, interruptible, stop_motors
from pilot.drivers.live import LiveDriver
from pilot.drivers.perception_process import FROZEN_S, PerceptionProcess
from pilot.flight import FlightCounters, Passages, Phase
from pilot.records.console import Console
from pilot.records.flight_log import FlightLog
from pilot.records.log_writer import LogWriter
from pilot.records.recorder import Recorder
from pilot.records.result import OWN_ESTIMATE, RACE_STATUS, live_verdict
from pilot.records.scoreboard import Scoreboard
from vehicle.errors import UserError

SPEC = load_profile("spec")


class Flight:
    """As much of a pilot as an ending needs."""

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


def test_what_nobody_foresaw_ends_the_flight_with_a_reason(recorder):
    flight = Flight()
    with forgiving(flight, recorder):
        raise ZeroDivisionError("by nothing")
    assert flight.cause == "internal error: ZeroDivisionError: by nothing"
    assert "Traceback" in recorder.troubles["internal error"]
    with pytest.raises(UserError), forgiving(flight, recorder):
        raise UserError("a line")


def deaf_to(count):
    """A simulator that takes notice of a disarm command only after so many, as if UDP had lost them; what it heard."""
    heard, bound, codec = [], bind_udp("127.0.0.1", 0), ServerCodec(SPEC)
    bound.settimeout(0.2)

    def run(client):
        with bound:
            bound.sendto(codec.encode(Heartbeat(0.0, True))[0], client)
            while not over.is_set():
                try:
                    heard.extend(codec.decode(bound.recv(1000)))
                except TimeoutError:
                    continue
                beat = Heartbeat(0.0, heard.count(Arm(False)) <= count)
                bound.sendto(codec.encode(beat)[0], client)

    over = threading.Event()
    return heard, run, over


@pytest.mark.parametrize("lost", [0, 8])
def test_motors_are_stopped_until_that_is_confirmed(recorder, lost):
    heard, run, over = deaf_to(lost)
    with MavlinkClient("127.0.0.1", 0, SPEC) as client:
        simulator = threading.Thread(target=run, args=(client.address,))
        simulator.start()
        assert client.receive(2.0)
        stop_motors(client, Flight(), recorder)
        over.set()
        simulator.join()
    assert heard.count(Arm(False)) >= max(DISARMS, lost)


def test_an_exception_in_the_loop_still_stops_the_motors(recorder):
    heard, run, over = deaf_to(0)
    with MavlinkClient("127.0.0.1", 0, SPEC) as client:
        simulator = threading.Thread(target=run, args=(client.address,))
        simulator.start()
        assert client.receive(2.0)
        client.receive = lambda timeout_s: 1 / 0
        stop_motors(client, Flight(), recorder)
        over.set()
        simulator.join()
    assert heard.count(Arm(False)) >= DISARMS


# The log.


def test_a_full_disk_ends_the_log_with_one_warning_and_nothing_else(tmp_path):
    file, told = RecordFile(tmp_path / "log.mcap"), []
    channel = file.json_channel("x", "x", {})
    file.add_raw = lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
    writer = LogWriter(file, 10**9, False, told.append)
    for k in range(100):
        writer.add(channel, 0.01 * k, b"{}")
    time.sleep(0.2)
    writer.add(channel, 2.0, b"{}")
    writer.close()
    assert writer.problem.endswith("log.mcap: No space left on device") and len(told) == 1
    assert writer.dropped.records == 100, "the one that failed was tried"


def test_a_real_full_disk_keeps_what_was_written_before(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    try:
        for k in range(200):
            log.image(0.03 * k, os.urandom(40_000))
            log.write("phase", 0.03 * k, phase="race", reason="")
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.problem.endswith("flight.mcap: File too large")
    assert 5 < sum(1 for _ in read_records(tmp_path / "flight.mcap", only=["/phase"])) < 200


def test_a_disk_that_hangs_costs_images_first_and_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr("pilot.records.log_writer.CLOSE_S", 0.2)
    file, told, hangs = RecordFile(tmp_path / "log.mcap"), [], threading.Event()
    channel, file.add_raw = file.json_channel("x", "x", {}), lambda *_: hangs.wait()
    writer = LogWriter(file, 10**9, False, told.append)
    for k in range(300):
        writer.add(channel, 0.03 * k, bytes(50_000), is_image=True)
        writer.add(channel, 0.03 * k, bytes(500))
    assert writer.dropped.images > 100 and writer.dropped.records == 0
    writer.close()
    assert "the disk has hung" in writer.problem and len(told) == 1
    hangs.set()


def test_a_patient_log_loses_nothing(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap")
    for k in range(400):
        log.image(0.03 * k, random.Random(k).randbytes(100_000))
    log.close()
    assert sum(1 for _ in read_records(tmp_path / "flight.mcap", only=["/camera"])) == 400 and not log.dropped.images


def test_a_limit_leaves_out_images_and_keeps_records(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap", limit_mb=4.0)
    for k in range(200):
        log.image(0.03 * k, os.urandom(40_000))
        log.write("phase", 0.03 * k, phase="race", reason="")
    log.close()
    kept = [topic for topic, _ in read_records(tmp_path / "flight.mcap")]
    assert kept.count("/phase") == 200 and kept.count("/camera") + log.dropped.images == 200 and log.dropped.images
    assert (tmp_path / "flight.mcap").stat().st_size < 5_500_000


def test_what_is_missing_in_the_log_stands_in_the_result(tmp_path):
    folder = tmp_path / "logs"
    recorder = Recorder(FlightLog(folder / "flight.mcap"))
    (folder / "flight.mcap").unlink()
    folder.rmdir()
    recorder.link(0.0, {})
    recorder.close()
    assert recorder.troubles["log"].endswith("flight.mcap: was removed in flight")


# The console.


def test_a_stderr_that_nobody_reads_holds_up_nobody(monkeypatch):
    inlet, outlet = os.pipe()
    with os.fdopen(outlet, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        monkeypatch.setattr("pilot.records.console.CLOSE_S", 0.2)
        console, begin = Console(), time.monotonic()
        for _ in range(200):
            console.say("x" * 1000)
            console.show("y" * 1000)
        assert time.monotonic() - begin < 5.0, "a full pipe holds 64 kB"
        console.close()
        os.close(inlet)
        console._thread.join(5.0)
        assert not console._thread.is_alive(), "a closed one neither"


# Perception.


def test_a_perception_process_that_stands_still_is_told_of_and_killed(dcl, recorder):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        perception = PerceptionProcess(partial(VideoReceiver, "127.0.0.1", 0), dcl.camera, "classical")
        assert perception.silent_s(time.monotonic()) < FROZEN_S
        pid = perception._process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(FROZEN_S + 0.3)
        client = SimpleNamespace(host="")
        driver = LiveDriver(Flight(), client, perception, SPEC, recorder)
        driver._guard(time.monotonic(), time.monotonic(), 60.0)
        assert "the perception process stood still for 1." in recorder.troubles["perception"]
        begin = time.monotonic()
        perception.close()
        assert time.monotonic() - begin < 10.0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# The verdict.


def status(gate, t=15.0, start=10.0, finish=None, gate_time=None):
    return RaceStatus(t, start, finish, gate, gate_time)


def test_where_the_race_is_told_of_two_gates_of_six_are_no_finish():
    board, flight = Scoreboard(), Flight(Phase.FINISHED)
    flight.guidance.passages.times_s = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert live_verdict(flight, board).by == OWN_ESTIMATE and live_verdict(flight, board).status == "finished"
    for told in (status(0, 10.0), status(1, gate_time=1.01), status(2, 17.0, gate_time=2.02)):
        board.hear(told)
    verdict = live_verdict(flight, board)
    assert (verdict.status, verdict.by, verdict.gate_times_s) == ("missed_gate", RACE_STATUS, [1.01, 2.02])
    assert "2 of 6" in verdict.cause


def test_a_finish_told_is_a_finish_whatever_the_pilot_believes():
    board, flight = Scoreboard(), Flight(Phase.ABORTED)
    board.hear(status(3, 13.0, gate_time=2.9))
    board.hear(status(6, 17.0, finish=16.5, gate_time=6.5))
    verdict = live_verdict(flight, board)
    assert verdict.status == "finished" and verdict.gate_times_s == [2.9, 2.9, 2.9, 6.5, 6.5, 6.5]


def test_no_race_but_that_flown_is_counted():
    board, flight = Scoreboard(), Flight(Phase.FINISHED)
    board.hear(status(6, 5.0, start=1.0, finish=4.9, gate_time=3.9))
    assert live_verdict(flight, board).by == OWN_ESTIMATE, "it was of the race before"
    board.hear(status(0, 9.0))
    board.hear(status(1, 12.0))
    assert live_verdict(flight, board).gate_times_s == [2.0], "at the status, where the gate's own time is not told"


def test_a_race_that_follows_does_not_wipe_out_the_verdict():
    """The simulator may start the next race while the pilot still waits for word of a finish that was none."""
    board, flight = Scoreboard(), Flight(Phase.FINISHED)
    for told in (status(0, 10.0), status(4, 17.0, gate_time=5.0), status(0, 27.0, start=27.0)):
        board.hear(told)
    verdict = live_verdict(flight, board)
    assert (verdict.status, verdict.by, len(verdict.gate_times_s)) == ("missed_gate", RACE_STATUS, 4)


def test_a_clock_that_was_set_starts_no_other_race():
    """The start is then known to some ms only."""
    board = Scoreboard()
    for told in (status(2, 15.0), status(2, 16.0, start=10.004), status(3, 17.0, start=9.997)):
        board.hear(told)
    assert len(live_verdict(Flight(), board).gate_times_s) == 3 and board.race(10.0) is not None


@pytest.mark.parametrize("gate", [0, 7, 2**32 - 1])
def test_no_count_of_gates_is_beyond_the_course(gate):
    board = Scoreboard()
    board.hear(status(gate, gate_time=-5.0))
    assert len(live_verdict(Flight(), board).gate_times_s) <= 6


def test_after_the_finish_by_estimate_the_simulators_finish_is_waited_for(recorder):
    """Statuses come four times a second: the last gate is told of after the motors were stopped."""
    client = SimpleNamespace(peer=("127.0.0.1", 1), send=lambda *_: True)
    told = iter([status(5, 19.9), *[status(5, 20.0 + k / 10) for k in range(30)], status(6, 23.1, finish=23.0)])
    recorder.heard(status(0, 10.0))
    client.receive = lambda timeout_s: (time.sleep(0.02), [(0.0, next(told, Heartbeat(24.0, False)))])[1]
    stop_motors(client, Flight(Phase.FINISHED), recorder)
    assert recorder.scoreboard.race(10.0).finished
