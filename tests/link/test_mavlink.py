"""Both codecs against each other: what one says the other hears."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.mavlink import Counters
from gate_racer.link.messages import (
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    Heartbeat,
    Imu,
    TimesyncReply,
    TimesyncRequest,
    UnknownCommand,
)
from gate_racer.vehicle.rotation import matrix, normalised
from tests.link.codecs import client, packed, said, server

times = st.floats(0, 4e6)
single = st.floats(-300, 300, width=32)
vectors = st.tuples(single, single, single)
component = st.floats(-1, 1)
quaternions = (
    st.tuples(component, component, component, component)
    .filter(lambda q: math.hypot(*q) > 0.1)
    .map(lambda q: tuple(normalised(q).tolist()))
)


def target(mask=0, q=(1, 0, 0, 0), rates=(0.1, 0.2, 0.3), thrust=0.5, system=1) -> bytes:
    return packed(dialect.MAVLink_set_attitude_target_message(0, system, 200, mask, q, *rates, thrust))


def long(command, param1, system=1) -> bytes:
    return packed(dialect.MAVLink_command_long_message(system, 0, command, 0, param1, 0, 0, 0, 0, 0, 0))


# Every message arrives as it was sent.


@given(times, vectors, vectors)
def test_imu_arrives_to_the_microsecond_and_the_last_bit(t, accel, gyro):
    (imu,) = client().decode(said(server(), Imu(t, accel, gyro)))
    assert (imu.accel, imu.gyro) == (accel, gyro)
    assert imu.t == pytest.approx(t, abs=1e-6)


@given(times, quaternions.filter(lambda q: abs(2 * (q[0] * q[2] - q[1] * q[3])) < 1 - 1e-6))
def test_attitude_arrives_to_the_millisecond_as_the_same_rotation(t, q):
    (attitude,) = client().decode(said(server(), Attitude(t, q)))
    assert np.allclose(matrix(attitude.q_wb), matrix(q), atol=1e-5)  # Euler angles, singular at the vertical
    assert attitude.t == pytest.approx(t, abs=1e-3)


@given(times, quaternions, vectors, st.floats(0, 1, width=32))
def test_rate_targets_arrive_with_rates_attitude_and_thrust(t, q, omega, throttle):
    (received,) = server().decode(client().encode(AttitudeTarget(q, omega, throttle), t))
    assert (received.omega, received.throttle, received.by_rates) == (omega, throttle, True)
    assert np.allclose(received.q_wb, q, atol=1e-6)


@given(quaternions, vectors)
def test_attitude_targets_arrive_without_rates(q, omega):
    (received,) = server().decode(client().encode(AttitudeTarget(q, omega, 0.5, by_rates=False), 1.0))
    assert np.allclose(received.q_wb, q, atol=1e-6)
    assert (received.omega, received.by_rates) == ((0, 0, 0), False)


@pytest.mark.parametrize("t", [0.0, 12.25])
def test_timesync_is_answered_with_simulator_time_and_the_echo(t):
    (request,) = server().decode(client().timesync(3.5))
    assert request == TimesyncRequest(3_500_000_000)
    (reply,) = client().decode(server().timesync_reply(request, t)[0])
    assert isinstance(reply, TimesyncReply)
    assert (reply.t, reply.sent) == pytest.approx((t, 3.5), abs=2e-9)


def test_messages_without_a_stamp_carry_the_newest_one():
    codec, simulator = client(), server()
    codec.decode(said(simulator, Imu(2.5, (0, 0, 0), (0, 0, 0))))
    assert codec.decode(said(simulator, Heartbeat(9.0, True))) == [Heartbeat(2.5, True)]
    assert codec.decode(said(simulator, Ack(9.0, True))) == [Ack(2.5, True)]


def test_attitude_on_the_wire_tells_the_newest_body_rates():
    simulator = server()
    said(simulator, Imu(0.0, (0, 0, -9.8), (0.5, -1.0, 2.0)))
    raw = dialect.MAVLink(None).decode(bytearray(said(simulator, Attitude(0.0, (1, 0, 0, 0)))))
    assert (raw.rollspeed, raw.pitchspeed, raw.yawspeed) == (0.5, -1.0, 2.0)


def test_several_messages_of_one_datagram_arrive_in_order():
    simulator = server()
    imu, beat = Imu(1.0, (0, 0, -9.5), (0, 0, 0)), Heartbeat(1.0, True)
    assert client().decode(said(simulator, imu) + said(simulator, beat)) == [imu, beat]


def test_sequence_numbers_run_from_0_to_255_and_over():
    codec, simulator = client(), server()
    ours = [codec.heartbeat()[4] for _ in range(300)]
    theirs = [said(simulator, Heartbeat(0.0, False))[4] for _ in range(300)]
    assert ours == theirs == [n % 256 for n in range(300)]


def test_commands_address_whoever_sent_the_heartbeat():
    codec = client()
    beat = dialect.MAVLink_heartbeat_message(2, 0, 65, 0, 3, 3)
    codec.decode(packed(beat, system=7, component=42))
    raw = dialect.MAVLink(None).decode(bytearray(codec.encode(Arm(), 0.0)))
    assert (raw.target_system, raw.target_component) == (7, 42)


def test_another_clients_heartbeat_is_not_the_simulators():
    codec = client()
    assert codec.decode(client().heartbeat()) == []
    assert codec.counters == Counters(unsupported=1)


# The type mask of SET_ATTITUDE_TARGET.


@pytest.mark.parametrize(
    "datagram",
    [
        target(8),
        target(128 | 64 | 7),
        target(128, rates=(math.nan, 0, 0)),
        target(128, thrust=math.inf),
        target(7, q=(0, 0, 0, 0)),
        target(7, q=(math.nan, 0, 0, 0)),
        target(0, rates=(0, -math.inf, 0)),
        long(400, math.nan),
        long(400, 0.5),
    ],
)
def test_a_command_without_meaning_is_dropped_and_counted(datagram):
    codec = server()
    assert codec.decode(datagram) == []
    assert codec.counters == Counters(invalid=1)


@pytest.mark.parametrize("q", [(0, 0, 0, 0), (math.nan,) * 4])
def test_an_ignored_attitude_may_be_anything(q):
    (received,) = server().decode(target(128, q=q))
    assert received.q_wb == (1, 0, 0, 0)


def test_ignored_rates_may_be_anything():
    (received,) = server().decode(target(7, rates=(math.nan,) * 3))
    assert received.omega == (0, 0, 0)


def test_quaternions_are_normalised_and_thrust_is_clipped():
    (received,) = server().decode(target(7, q=(0, 3, 0, 4), thrust=1.5))
    assert received.q_wb == pytest.approx((0, 0.6, 0, 0.8))
    assert received.throttle == 1.0
    (received,) = server().decode(target(7, thrust=-0.5))
    assert received.throttle == 0.0


@pytest.mark.parametrize(("system", "taken"), [(1, True), (0, True), (2, False)])
def test_only_commands_for_this_system_or_for_all_are_taken(system, taken):
    codec = server()
    received = codec.decode(target(128, system=system)) + codec.decode(long(400, 1.0, system=system))
    assert len(received) == (2 if taken else 0)
    assert codec.counters.wrong_target == (0 if taken else 2)


def test_an_unknown_command_is_answered_as_unsupported():
    codec = server()
    assert codec.decode(long(31000, 1.0)) == [UnknownCommand(31000)]
    answer = dialect.MAVLink(None).decode(bytearray(said(codec, Ack(0.0, False, 31000, known=False))))
    assert (answer.command, answer.result) == (31000, dialect.MAV_RESULT_UNSUPPORTED)
