"""The sockets, for real, on loopback, and who is taken for the simulator."""

import contextlib
import errno
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymavlink.dialects.v20 import common as dialect

from gate_racer.field.probe.links import RawLink
from gate_racer.link.client import ClientCounters, MavlinkClient, RateGuard, VideoReceiver
from gate_racer.link.mavlink import UNMEASURED
from gate_racer.link.messages import Arm, AttitudeTarget, ClientHeartbeat, Heartbeat, Imu, VideoFrame
from gate_racer.link.options import Link, LinkSettings
from gate_racer.link.sockets import SILENCE_S, TIMESTAMPNS, LinkError, Peer, bind_udp, parse_address
from gate_racer.link.video import chunks
from tests.link.conftest import LOCAL, PATIENCE_S, SPEC, FakeSimulator, meet
from tests.mavlink import packed, unpacked

HOVER = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.25)


def test_the_client_hears_with_the_time_of_reception_and_answers_the_sender(client, simulator):
    before = time.monotonic()
    ((received, message),) = meet(client, simulator)
    assert before <= received <= time.monotonic()
    assert message == Heartbeat(0.0, False)
    assert client.peer == simulator.socket.getsockname()
    assert client.send(Arm(), 0.0, 0.0)
    assert simulator.receive() == [Arm()]


def test_neither_to_nobody_nor_what_is_not_finite_is_sent(client, simulator):
    assert not client.send(Arm(), 0.0, 0.0)
    client.keep_alive(0.0)
    meet(client, simulator)
    assert not client.send(AttitudeTarget(HOVER.q_wb, HOVER.omega, math.nan), 0.0, 0.0)
    assert client.counters == ClientCounters(unsent=2)


def test_video_arrives_as_frames_and_that_of_other_hosts_is_dropped():
    with VideoReceiver("0.0.0.0", 0) as receiver, bind_udp("127.0.0.2", 0) as other, bind_udp(LOCAL, 0) as sender:
        receiver.accept_only(LOCAL)
        before = time.monotonic()
        for n, source in enumerate((other, sender, sender)):
            for datagram in chunks(n, n * 125_000_000, bytes(3000), 1400):
                source.sendto(datagram, (LOCAL, receiver.address[1]))
        frames = receiver.receive(PATIENCE_S)
        assert [frame for frame, _ in frames] == [VideoFrame(n / 8, n, bytes(3000)) for n in (1, 2)]
        assert all(before <= received <= time.monotonic() for _, received in frames)
        assert receiver.counters.foreign == 3 and receiver.receive(0.0) == []


OPTIONS = [  # settings, and where MAVLink and video are heard
    ({}, ("127.0.0.1", 14550), ("127.0.0.1", 5600)),
    ({"peer": "127.0.0.1:14560"}, ("127.0.0.1", 14550), ("127.0.0.1", 5600)),
    ({"peer": "192.0.2.7"}, ("0.0.0.0", 14550), ("0.0.0.0", 5600)),
    ({"listen": "0.0.0.0:14540"}, ("0.0.0.0", 14540), ("0.0.0.0", 5600)),
    ({"peer": "192.0.2.7", "listen": "192.0.2.1", "video": "192.0.2.2:1"}, ("192.0.2.1", 14550), ("192.0.2.2", 1)),
]


@pytest.mark.parametrize(("typed", "mavlink", "video"), OPTIONS, ids=[" ".join(row[0]) or "none" for row in OPTIONS])
def test_it_listens_on_loopback_unless_told_otherwise(typed, mavlink, video):
    link = LinkSettings(**typed).opened(14550, 5600)
    assert (link.mavlink, link.video) == (mavlink, video)


def test_heartbeats_leave_at_the_profiles_rate(client, simulator):
    meet(client, simulator)
    for tick in range(300):  # 5 s at 60 Hz
        client.keep_alive(tick / 60)
    assert simulator.receive() == [ClientHeartbeat()]
    assert simulator.pending() + 1 == pytest.approx(5 * SPEC.client_heartbeat_hz, abs=2)


def test_targets_beyond_the_limit_are_dropped_and_counted(client, simulator):
    meet(client, simulator)
    times = [tick / 250 for tick in range(500) if client.send(HOVER, tick / 250, tick / 250)]
    assert client.rates.most_1s < SPEC.command_limit_hz
    assert len(times) == simulator.pending()
    assert client.counters.rate_limited == 500 - len(times)
    assert client.rates.mean_hz == pytest.approx((len(times) - 1) / (times[-1] - times[0]))
    assert client.send(Arm(False), 2.0, 2.0)  # never held back


@given(st.lists(st.floats(0, 0.05), max_size=300), st.sampled_from([3.0, 9.5, 100.0]))
def test_no_window_of_a_second_holds_as_many_as_the_limit(gaps, limit_hz):
    guard, now, admitted = RateGuard(limit_hz), 0.0, []
    for gap in gaps:
        now += gap
        if guard.admit(now):
            admitted.append(now)
    windows = [sum(t - 1.0 <= other <= t for other in admitted) for t in admitted]
    assert all(count < limit_hz for count in windows)
    assert guard.most_1s == max(windows, default=0)


class Refusing:
    """A socket whose peer is gone, as Windows reports it."""

    def __init__(self, real):
        self.fileno, self.close = real.fileno, real.close

    def sendto(self, *_):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    def recvfrom(self, *_):
        self.recvfrom = self.recvmsg = self.silent
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    recvmsg = recvfrom

    def silent(self, *_):
        raise BlockingIOError


def test_errors_of_the_socket_are_survived_and_counted(client, simulator):
    meet(client, simulator)
    simulator.say(Heartbeat(0.0, False))
    client.socket = Refusing(client.socket)
    assert client.receive(PATIENCE_S) == []
    assert not client.send(HOVER, 0.0, 0.0)
    client.keep_alive(0.0)
    assert client.counters == ClientCounters(socket_errors=3)


@pytest.mark.skipif(TIMESTAMPNS is None, reason="only Linux tells when its kernel received a datagram")
def test_a_datagram_bears_the_time_of_its_reception_not_of_its_reading(client, simulator):
    """The reader sleeps twice; each datagram keeps its own time, by the system's other clock, which is converted."""
    meet(client, simulator)
    sent = []
    for t in (0.0, 0.1):
        sent.append(time.monotonic())
        simulator.say(Imu(t, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0)))
        time.sleep(0.1)
    read = time.monotonic()
    received = [received for received, _ in client.receive(PATIENCE_S)]
    assert len(received) == 2
    apart_s = 1e-3  # of the two clocks, which are not read at once
    assert sent[0] - apart_s < received[0] < sent[1] - apart_s < received[1] < read


def test_an_address_that_cannot_be_had_or_read_is_one_clear_line():
    with bind_udp(LOCAL, 0) as holder:
        used = holder.getsockname()[1]
        for host, port, words in (LOCAL, used, "is in use"), ("203.0.113.1", 0, "cannot"), (LOCAL, 70000, "cannot"):
            with pytest.raises(LinkError, match=f"^UDP {host}:{port} {words}"):
                bind_udp(host, port)
    assert parse_address("127.0.0.1:5600", 14550) == (LOCAL, 5600) and parse_address("h", 14550) == ("h", 14550)
    for text in ("", ":5600", "5600", "host:", "host:x", "host:-1", "host:65536", "::1", "a:1:2", "h:²"):
        with pytest.raises(LinkError, match=r"expected HOST:PORT such as 127\.0\.0\.1:14550"):
            parse_address(text, 14550)


def beat(system, component, kind=dialect.MAV_TYPE_QUADROTOR, autopilot=dialect.MAV_AUTOPILOT_GENERIC, armed=True):
    mode = dialect.MAV_MODE_FLAG_SAFETY_ARMED if armed else 0
    heartbeat = dialect.MAVLink_heartbeat_message(kind, autopilot, mode, 0, dialect.MAV_STATE_ACTIVE, 3)
    return packed(heartbeat, system, component)


def imu(system, component):
    return packed(
        dialect.MAVLink_highres_imu_message(1_000_000, 0, 0, -9.8, 0, 0, 0, *UNMEASURED, 63), system, component
    )


FOREIGN = {
    "a gimbal of the same system": beat(1, 154, dialect.MAV_TYPE_GIMBAL, dialect.MAV_AUTOPILOT_INVALID, armed=False),
    "a camera with the autopilot's id": beat(1, 1, dialect.MAV_TYPE_CAMERA, dialect.MAV_AUTOPILOT_INVALID, False),
    "a ground station": beat(255, 190, dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID),
    "another vehicle on the same link": beat(42, 1),
    "the IMU of another system": imu(42, 1),
    "the IMU of another component": imu(1, 154),
}


@pytest.mark.parametrize("packet", FOREIGN.values(), ids=list(FOREIGN))
def test_only_the_autopilot_that_was_met_is_heard(client, simulator, packet):
    simulator.socket.sendto(packet, client.address)
    first = client.receive(PATIENCE_S)
    assert bool(first) == (packet == FOREIGN["another vehicle on the same link"])
    meet(client, simulator)  # whose ids the profile names
    assert client.reconsider(time.monotonic(), complete=True) == bool(first)
    simulator.socket.sendto(packet, client.address)
    assert client.receive(PATIENCE_S) == []
    simulator.say(Heartbeat(0.0, True))
    assert [message.armed for _, message in client.receive(PATIENCE_S)] == [True]
    assert client.send(Arm(), 0.0, 0.0)
    assert simulator.receive() == [Arm()], "addressed to the autopilot"


def test_a_silent_simulator_is_let_go_and_another_taken(client, simulator):
    meet(client, simulator)
    now = time.monotonic()
    assert not client.reconsider(now + SILENCE_S - 0.5, complete=True) and client.peer is not None
    assert client.reconsider(now + SILENCE_S + 0.5, complete=True) and client.peer is None
    other = FakeSimulator(client.address)
    with other.socket:
        assert meet(client, other) and client.peer == other.socket.getsockname()


@pytest.mark.parametrize("complete", [False, True])
def test_a_vehicle_that_never_falls_silent_gives_way_while_the_link_is_not_complete(complete):
    peer, first, second = Peer(expected=(1, 1)), (LOCAL, 1), (LOCAL, 2)
    for now in range(4):
        assert peer.admits(unpacked(beat(42, 1)), first, float(now)) and peer.address == first
        assert not peer.admits(unpacked(beat(43, 1)), second, float(now))
        assert peer.reconsider(float(now), complete) == (now == SILENCE_S and not complete)
    assert peer.address == (first if complete else second)


def test_a_named_peer_is_the_only_one_heard():
    with (
        MavlinkClient("0.0.0.0", 0, SPEC, ("127.0.0.2", 0)) as client,
        bind_udp("127.0.0.2", 0) as named,
        bind_udp(LOCAL, 0) as other,
    ):
        there = LOCAL, client.address[1]
        other.sendto(beat(1, 1), there)
        assert client.receive(PATIENCE_S) == [] and client.counters.foreign == 1 and client.host == "127.0.0.2"
        named.sendto(beat(1, 1), there)
        assert len(client.receive(PATIENCE_S)) == 1 and client.peer == named.getsockname()


@pytest.mark.parametrize("named", [True, False])
def test_a_simulator_that_waits_to_be_spoken_to_is_if_its_port_is_named(named):
    with bind_udp(LOCAL, 0) as simulator:
        peer = LOCAL, simulator.getsockname()[1] if named else 0
        simulator.settimeout(0.2)
        with MavlinkClient(LOCAL, 0, SPEC, peer) as client, RawLink(Link((LOCAL, 0), (LOCAL, 0), peer)) as probe:
            for link in (client, probe):
                link.keep_alive(time.monotonic())
                with contextlib.nullcontext() if named else pytest.raises(TimeoutError):
                    assert simulator.recvfrom(65535)[1][0] == LOCAL
