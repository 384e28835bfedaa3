"""A lock-step simulator that ends leaves its client with a result and a reason. Real sockets, both ends in one process."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.client import ClientCodec, MavlinkClient, VideoReceiver
from gate_racer.link.clock import Timeline
from gate_racer.link.messages import Attitude, Farewell, Heartbeat, Imu
from gate_racer.link.profile import load_profile
from gate_racer.link.server import ServerCodec
from gate_racer.link.sockets import LinkError, bind_udp
from gate_racer.pilot.flight import EndReason, Phase
from gate_racer.pilot.handshake import Handshake
from gate_racer.pilot.live import LiveDriver
from gate_racer.pilot.lockstep import UdpLink
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import OWN_ESTIMATE, REFEREE, live_verdict
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import as_believed

SPEC = load_profile("spec")


class Simulated:
    """A client's link, and a simulator's socket that says what the test wants."""

    def __init__(self, timeout_s):
        self.client, self.video = MavlinkClient("127.0.0.1", 0, SPEC), VideoReceiver("127.0.0.1", 0)
        self.socket, self.codec = bind_udp("127.0.0.1", 0), ServerCodec(SPEC)
        self.link = UdpLink(self.client, self.video, SPEC, None, timeout_s)

    def say(self, *messages):
        for message in messages:
            for datagram in self.codec.encode(message):
                self.socket.sendto(datagram, self.client.address)


@pytest.fixture
def simulated():
    made = []

    def make(timeout_s=60.0):
        made.append(Simulated(timeout_s))
        made[-1].say(Heartbeat(0.0, False))
        return made[-1]

    yield make
    for one in made:
        one.client.close(), one.video.close(), one.socket.close()


def first(t=1.0):
    return Imu(t, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))


def test_a_simulator_that_waits_for_its_client_hears_it_before_the_first_sample(simulated):
    peer = simulated(timeout_s=0.3)
    with pytest.raises(LinkError):
        peer.link.tick(lambda: None)
    peer.socket.settimeout(1.0)
    assert peer.socket.recv(4096)[7] == dialect.MAVLINK_MSG_ID_HEARTBEAT  # the id in MAVLink 2


def test_its_last_words_end_the_wait_and_the_flight(simulated):
    peer, handshake = simulated(), Handshake(SPEC)
    peer.say(first())
    assert any(isinstance(message, Imu) for message in peer.link.tick(lambda: None))
    words = "missed_gate: gate 3 was passed before gate 1, which is more than 50 bytes"
    peer.say(Farewell(1.0, words))
    *_, last = peer.link.tick(lambda: None)
    handshake.receive(last, 1.0, airborne=True)
    assert handshake.end is not None and handshake.end.reason is EndReason.NO_LINK
    assert handshake.end.cause == f"the simulator has ended: {words}"


def flown(folder, go_t, *messages, phase=Phase.ABORTED):
    """The verdict on a flight through five of six gates, after these messages."""
    passages = SimpleNamespace(times_s=[1.0, 2.0, 3.0, 4.0, 5.0], margins_m=[0.5] * 5)
    guidance = SimpleNamespace(course=range(6), passages=passages)
    recorder = Recorder(FlightLog(folder / "flight.mcap"))
    for message in messages:
        recorder.received(message)
    recorder.close()
    flight = SimpleNamespace(phase=phase, cause="the link", go_t=go_t, guidance=guidance)
    return live_verdict(flight, recorder.scoreboard)


def said_by_a_simulator(vq1, dcl, status, cause=""):
    """The farewell as decoded, of a simulator whose referee says so, its sixth gate passed 6.4 s after GO at 10 s."""
    station, client = Station(Simulator(as_believed(vq1, dcl), SPEC, 0)), ClientCodec(SPEC)
    race = station.simulator.referee.race
    race.status, race.cause, race.gate_times_s = status, cause, [1.1, 2.1, 3.1, 4.1, 5.1, 6.4]
    client.decode(b"".join(ServerCodec(SPEC).encode(first(16.4))))
    (last,) = [m for datagram in station.farewell() for m in client.decode(datagram) if isinstance(m, Farewell)]
    return last


JUDGED = [
    (RunStatus.FINISHED, ""),
    (RunStatus.CRASHED, "hit gate 5: at 12.0 m/s, a cause of more than 50 bytes in two texts"),
    (RunStatus.MISSED_GATE, "gate 5 was not passed"),
    (RunStatus.TIMEOUT, "120 s"),
    (RunStatus.DISQUALIFIED, "heartbeat: none for 2 s"),
]


@pytest.mark.parametrize(("status", "cause"), JUDGED, ids=lambda x: str(x))
@pytest.mark.parametrize("phase", [Phase.ABORTED, Phase.FINISHED])
def test_the_referee_s_word_is_the_verdict(vq1, dcl, tmp_path, status, cause, phase):
    verdict = flown(tmp_path, 10.0, said_by_a_simulator(vq1, dcl, status, cause), phase=phase)
    assert (verdict.status, verdict.cause, verdict.by) == (status.value, cause, REFEREE)
    finished = status is RunStatus.FINISHED
    assert verdict.gate_times_s == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0] + [6.4] * finished, abs=1e-3)
    assert verdict.estimated == [1, 2, 3, 4, 5] * finished


def test_of_a_run_that_the_referee_has_not_judged_the_pilot_s_word_counts(vq1, dcl, tmp_path):
    for status in (RunStatus.WAITING, RunStatus.RUNNING, RunStatus.ABORTED):
        verdict = flown(tmp_path, 10.0, said_by_a_simulator(vq1, dcl, status, "the client stopped answering"))
        assert (verdict.status, verdict.by) == ("aborted", OWN_ESTIMATE)


NO_FINISH = [
    ("a time-out", Farewell(16.4, "no message for 10 s")),
    ("words that resemble a finish", Farewell(16.4, "finished: nan s since GO")),
    ("a finish without its time", Farewell(16.4, "finished")),
    ("the finish of a longer race", Farewell(16.4, "finished: 99.000 s since GO")),
]


@pytest.mark.parametrize("said", [said for _, said in NO_FINISH], ids=[name for name, _ in NO_FINISH])
def test_other_words_make_no_finish(tmp_path, said):
    assert flown(tmp_path, 10.0, said).status == "aborted"
    assert flown(tmp_path, None, said).status == "aborted", "nor before GO"


def test_in_real_time_no_farewell_makes_a_finish(tmp_path):
    driver = LiveDriver(None, None, None, SPEC, None)
    forged = driver.admit(Farewell(16.4, "finished: 6.400 s since GO"), 0.0)
    assert flown(tmp_path, 10.0, *forged).status == "aborted"


@pytest.mark.parametrize(("timeout_s", "waited_s"), [(60.0, 10.0), (2.0, 2.0)])  # docs/reliability.md; as asked
def test_one_that_dies_without_a_word_is_given_up_after_a_while(simulated, monkeypatch, timeout_s, waited_s):
    now = [0.0]

    def silence(seconds):
        now[0] += seconds
        return []

    monkeypatch.setattr("gate_racer.pilot.lockstep.time", SimpleNamespace(monotonic=lambda: now[0]))
    peer = simulated(timeout_s)
    peer.say(first())
    peer.link.tick(lambda: None)
    monkeypatch.setattr(peer.client, "receive", silence)
    (last,) = peer.link.tick(lambda: None)
    assert last == Farewell(1.0, f"no message for {waited_s:g} s") and now[0] == pytest.approx(waited_s, abs=0.3)


def test_a_tick_that_is_sent_again_is_answered_again_and_heard_once(simulated):
    peer, attitude = simulated(), Attitude(1.0, (1.0, 0.0, 0.0, 0.0))
    peer.say(attitude, first())
    assert [type(message) for message in peer.link.tick(lambda: None)][-2:] == [Attitude, Imu]
    peer.say(Heartbeat(1.0, False), attitude, first(), replace(attitude, t=1.1), first(1.1))
    heard = peer.link.tick(lambda: None)
    assert [round(message.t, 3) for message in heard] == [1.1, 1.1]
    server = ServerCodec(SPEC)
    peer.socket.settimeout(5.0)
    while server.answered_ms is None:
        server.decode(peer.socket.recv(65535))
    assert server.answered_ms == 1000


@pytest.mark.parametrize("set_s", [-1.5, -1e6, 20.0])
def test_time_goes_on_by_one_tick_where_the_clock_of_a_simulator_that_waits_is_set(simulated, set_s):
    peer, timeline, admitted = simulated(), Timeline(), []
    steps = [k / SPEC.physics_hz for k in range(40)]
    for k, step in enumerate(steps):
        peer.say(first(2e6 + step + (set_s if k > 20 else 0.0)))
        for message in peer.link.tick(lambda: None):
            admitted += timeline.admit(message, peer.link.now)
        assert peer.link.t == pytest.approx(2e6 + step)
    assert [m.t - 2e6 for m in admitted if isinstance(m, Imu)] == pytest.approx(steps, abs=1e-6)
    assert timeline.clock_set == 1


def test_a_simulator_that_does_not_wait_is_told_of_once_that_is_sure(simulated):
    """Several samples at once may be left over from another run."""
    peer, heard = simulated(), 0
    with pytest.raises(LinkError, match="does not wait for answers: start it with --lockstep, or leave out --lockstep"):
        for k in range(20):
            peer.say(*(first(1.0 + 0.1 * k + step / 120) for step in range(5)))
            peer.link.tick(lambda: None)
            heard += 1
    assert heard > 2


@pytest.mark.parametrize("profile", ["spec", "dcl"])
def test_a_tick_that_is_waited_for_is_one_datagram_that_ends_with_its_samples(profile, vq1, dcl):
    profile = load_profile(profile)
    whole, apart = (Station(Simulator(as_believed(vq1, dcl), profile, 0), waits=waits) for waits in (True, False))
    client, other = ClientCodec(profile), ClientCodec(profile)
    for _ in range(200):
        datagrams, several = whole.tick()[0], apart.tick()[0]
        heard = [type(message) for datagram in datagrams for message in client.decode(datagram)]
        samples = [kind is Imu for kind in heard]
        assert len(datagrams) <= 1 and samples == sorted(samples)
        assert Counter(heard) == Counter(type(message) for datagram in several for message in other.decode(datagram))


def test_an_interrupted_flight_waits_for_no_simulator(simulated):
    peer = simulated(timeout_s=3600.0)
    link = UdpLink(peer.client, peer.video, SPEC, None, 3600.0, over=lambda: True)
    assert not any(isinstance(message, Imu) for message in link.tick(lambda: None))


@pytest.mark.parametrize("text", [b"\xff\xfe broken", b"\x1b[2J\x07 rings", b""])
def test_last_words_are_safe_to_print_whatever_they_are(simulated, text):
    peer = simulated()
    statustext = dialect.MAVLink_statustext_message(5, text)
    power_off = dialect.MAVLink_heartbeat_message(2, 0, 0, 0, dialect.MAV_STATE_POWEROFF, 3)
    for message in (statustext, power_off):
        peer.socket.sendto(message.pack(dialect.MAVLink(None, 1, 1)), peer.client.address)
    (last,) = [message for message in peer.link.tick(lambda: None) if isinstance(message, Farewell)]
    assert last.reason and last.reason.isprintable()
