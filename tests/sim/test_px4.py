"""The stand-in refuses what PX4 refuses, and says why."""

import math

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.messages import (
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    EnterOffboard,
    Heartbeat,
    Imu,
    PositionTarget,
    StatusText,
)
from gate_racer.link.profile import load_profile
from gate_racer.link.px4 import CHUNK, StreamRequests, TextReader, custom_mode, mode_name, text_packets
from tests.mavlink import command_long, packed
from tests.sim.peer import HOVER, ME, Peer, of

PX4 = load_profile("px4")
UP = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.6)


class Px4Peer(Peer):
    def __init__(self, track, vehicle):
        super().__init__(track, vehicle, PX4)
        self.ticks(3.0)  # boots

    def stream(self, seconds, hz, target=HOVER):
        received = []
        for _ in range(math.ceil(seconds * hz)):
            self.say(target)
            received += self.ticks(1 / hz)
        return received + self.answers()

    def ask(self, command):
        self.sent = b""
        self.say(command)
        return self.answers()

    def answers(self):
        received, self.sent = self.codec.decode(self.sent), b""
        return received

    def packet(self, message):
        """The acknowledgements of a raw message."""
        replies = self.station.receive(packed(message), ME, self.simulator.t)
        return [self.codec.framing.unpack(reply)[0] for reply in replies]

    def fly(self, seconds=2.0):
        self.stream(1.2, 20)
        self.ask(EnterOffboard())
        self.ask(Arm())
        self.stream(seconds, 20, UP)
        assert not self.simulator.landed


@pytest.fixture
def peer(vq1, dcl):
    return Px4Peer(vq1, dcl)


def mode(peer):
    return of(Heartbeat, peer.ticks(1.1))[-1].mode


@pytest.mark.parametrize(("seconds", "hz"), [(0, 1), (0.5, 20), (4, 1.8)], ids=["none", "too short", "under 2 Hz"])
def test_offboard_is_refused_without_a_stream_of_set_points(peer, seconds, hz):
    peer.stream(seconds, hz)
    text, ack = peer.ask(EnterOffboard())
    assert ack == Ack(ack.t, False, 176, result="TEMPORARILY_REJECTED")
    assert text.text == "Switching to mode 'Offboard' is currently not possible" and len(text.text) > CHUNK
    assert mode(peer) == "AUTO.LOITER"


def test_offboard_is_granted_with_one_and_told_in_heartbeats(peer):
    peer.stream(1.2, 20)
    assert peer.ask(EnterOffboard()) == [Ack(pytest.approx(peer.simulator.t, abs=0.1), True, 176, result="ACCEPTED")]
    assert {beat.mode for beat in of(Heartbeat, peer.stream(2.0, 20))} == {"OFFBOARD"}


def test_a_stream_under_2_hz_ends_offboard_and_lands(peer):
    peer.fly(0.5)
    received = peer.ticks(0.6)
    assert [text.text for text in of(StatusText, received)] == ["Failsafe activated: no offboard control signal"]
    assert mode(peer) == "AUTO.LAND"
    peer.stream(1.0, 20, UP)
    assert 0.3 < peer.simulator.truth.x[9] < 1.0, "it sinks slowly, whatever is asked for"
    assert mode(peer) == "AUTO.LAND"


def test_another_mode_in_the_air_holds_the_vehicle(peer):
    peer.fly(0.5)
    peer.packet(command_long(176, 1.0, 4.0, 3.0))
    peer.stream(3.0, 20, UP)
    assert mode(peer) == "AUTO.LOITER" and not peer.simulator.landed
    assert abs(peer.simulator.truth.x[7:10]).max() < 0.3


def test_set_points_are_not_followed_outside_of_offboard(peer):
    peer.ask(Arm())
    peer.stream(2.0, 20, UP)
    peer.say(PositionTarget((0.0, 0.0, -5.0), (None,) * 3))
    peer.ticks(1.0)
    assert peer.simulator.landed and peer.simulator.armed


def test_arming_is_denied_before_the_checks_pass(vq1, dcl):
    young = Peer(vq1, dcl, PX4)
    young.ticks(0.5)
    young.say(Arm())
    received = young.codec.decode(young.sent)
    (ack,) = of(Ack, received)
    assert not ack.accepted and ack.result == "TEMPORARILY_REJECTED"
    assert [text.text for text in of(StatusText, received)] == [
        "Preflight Fail: ekf2 missing data",
        "Arming denied: Resolve system health failures first",
    ]
    arm = dialect.MAVLink_command_int_message(1, 1, 0, 400, 0, 0, 1.0, 0.0, 0.0, 0.0, 0, 0, 0.0)
    young.bytes(packed(arm))
    young.ticks(0.1)
    assert not young.simulator.armed, "nor by a COMMAND_INT"


def test_disarming_in_the_air_has_to_be_forced(peer):
    peer.fly()
    *_, ack = peer.packet(command_long(400, 0.0))
    assert ack.result == dialect.MAV_RESULT_TEMPORARILY_REJECTED and peer.simulator.armed
    peer.ask(Arm(False))
    assert not peer.simulator.armed


def test_fast_streams_come_when_they_are_asked_for(peer):
    before = of(Imu, peer.ticks(1.0))
    for datagram in peer.codec.requests(0.0):
        peer.station.receive(datagram, ME, 0.0)
    after = peer.ticks(1.0)
    assert len(before) == pytest.approx(50, abs=2)
    assert len(of(Imu, after)) == pytest.approx(PX4.imu_hz, abs=2)
    assert len(of(Attitude, after)) == pytest.approx(PX4.attitude_hz, abs=2)
    assert peer.codec.requests(0.5) == []


BAD = [
    (511, math.nan, 1e4), (511, 105.0, math.nan), (511, 105.0, -5.0), (511, 1e30, 1e4), (511, 999.0, 1e4),
    (176, math.nan, 6.0), (176, 0.0, 6.0), (176, 1.0, 99.0), (176, 1.0, math.inf), (176, 1.0, 4.0, -1.0), (176, 1.0, 6.0, 1e9),
]  # fmt: skip


@pytest.mark.parametrize("command", BAD, ids=str)
def test_nonsense_is_denied(peer, command):
    (ack,) = peer.packet(command_long(*command))
    assert (ack.command, ack.result) == (command[0], dialect.MAV_RESULT_DENIED)
    assert mode(peer) == "AUTO.LOITER"


def test_the_answers_to_others_are_not_taken_for_ours(peer):
    def read(message):
        return peer.codec.decode(packed(message, 1, 1))

    assert read(dialect.MAVLink_command_ack_message(400, 4, target_system=254)) == []
    assert read(dialect.MAVLink_command_ack_message(400, dialect.MAV_RESULT_IN_PROGRESS)) == []
    (ack,) = read(dialect.MAVLink_command_ack_message(400, 77, target_system=255))
    assert ack.result == "result 77" and not ack.accepted


def test_modes_have_their_names():
    assert [mode_name(custom_mode(*m)) for m in ((6, 0), (4, 6), (3, 0), (4, 99), (77, 0))] == [
        "OFFBOARD", "AUTO.LAND", "POSCTL", "AUTO.99", "mode 77",
    ]  # fmt: skip


@pytest.mark.parametrize("length", [0, 1, CHUNK, CHUNK + 1, 2 * CHUNK, 140])
def test_a_text_of_any_length_comes_whole(length):
    text, reader = ("lorem ipsum " * 20)[:length].strip(), TextReader()
    told = [reader.read(packet) for packet in text_packets(text, 2)]
    assert told[:-1] == [None] * (len(told) - 1) and told[-1] == text


def test_a_text_without_its_beginning_is_dropped():
    reader, packets = TextReader(), text_packets("x" * 120, 2)
    assert [reader.read(packet) for packet in packets[1:]] == [None, None]
    assert [reader.read(packet) for packet in packets[:2]] == [None, None]
    assert [reader.read(packet) for packet in packets][-1] == "x" * 120
    assert reader.read(dialect.MAVLink_statustext_message(2, b"a\nb\x07\xff")).count("\n") == 0


def test_streams_are_asked_for_until_they_run():
    streams = StreamRequests({105: 100.0, 30: 50.0, 31: 0.0})
    assert streams.due(10.0) == [(105, 100.0), (30, 50.0)]
    for _ in range(60):
        streams.received(30)
    assert streams.due(10.5) == [] and streams.due(11.0) == [(105, 100.0)]
    for _ in range(100):
        streams.received(105)
        streams.received(30)
    assert streams.due(12.0) == []
    assert len(streams.due(13.5)) == 2, "they have stopped"
    streams.forget()
    assert len(streams.due(13.6)) == 2, "another autopilot"
