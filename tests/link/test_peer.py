"""Selection of the peer that is taken for the simulator, and its release."""

import time

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.mavlink import UNMEASURED
from gate_racer.link.messages import Arm, Heartbeat, Imu
from gate_racer.link.sockets import SILENCE_S, Peer, bind_udp
from gate_racer.link.udp import MavlinkClient
from tests.link.conftest import LOCAL, PATIENCE_S, SPEC, FakeSimulator, meet


def beat(system, component, kind=dialect.MAV_TYPE_QUADROTOR, autopilot=dialect.MAV_AUTOPILOT_GENERIC, armed=True):
    """A heartbeat of anybody."""
    mode = dialect.MAV_MODE_FLAG_SAFETY_ARMED if armed else 0
    heartbeat = dialect.MAVLink_heartbeat_message(kind, autopilot, mode, 0, dialect.MAV_STATE_ACTIVE, 3)
    return heartbeat.pack(dialect.MAVLink(None, system, component))


def imu(system, component):
    sample = dialect.MAVLink_highres_imu_message(1_000_000, 0, 0, -9.8, 0, 0, 0, *UNMEASURED, 63)
    return sample.pack(dialect.MAVLink(None, system, component))


FOREIGN = {
    "a gimbal of the same system": beat(1, 154, dialect.MAV_TYPE_GIMBAL, dialect.MAV_AUTOPILOT_INVALID, armed=False),
    "a camera that claims the autopilot's id": beat(
        1, 1, dialect.MAV_TYPE_CAMERA, dialect.MAV_AUTOPILOT_INVALID, False
    ),
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


def test_the_real_simulators_heartbeat_binds(client, simulator):
    """Type 2, autopilot 0, component 200 of system 1."""
    simulator.socket.sendto(beat(1, 200), client.address)
    assert [message for _, message in client.receive(PATIENCE_S)] == [Heartbeat(0.0, True)]
    simulator.socket.sendto(imu(1, 200), client.address)
    assert [type(message) for _, message in client.receive(PATIENCE_S)] == [Imu]


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
    peer, first, second, read = Peer(expected=(1, 1)), (LOCAL, 1), (LOCAL, 2), dialect.MAVLink(None)
    for now in range(4):
        assert peer.admits(read.decode(bytearray(beat(42, 1))), first, float(now)) and peer.address == first
        assert not peer.admits(read.decode(bytearray(beat(43, 1))), second, float(now))
        assert peer.reconsider(float(now), complete) == (now == SILENCE_S and not complete)
    assert peer.address == (first if complete else second)


def test_the_ids_of_the_profile_take_precedence_until_the_link_is_complete():
    peer, read = Peer(expected=(1, 200)), dialect.MAVLink(None)
    for system, component, complete, received in ((42, 1, False, True), (1, 200, False, True), (42, 1, False, False)):
        assert peer.admits(read.decode(bytearray(beat(system, component))), (LOCAL, system), 0.0) == received
        peer.reconsider(0.0, complete)
    assert peer.address == (LOCAL, 1)


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
