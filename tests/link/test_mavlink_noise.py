"""No bytes whatever upset either codec: what is damaged, useless or not finite is dropped and counted."""

import math

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
    GroundStatus,
    Heartbeat,
    Imu,
    MapGate,
    Odometry,
    RaceStatus,
    TimesyncRequest,
    TrackMap,
)
from tests.link.codecs import client, packed, said, server


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_finite_telemetry_passes(value):
    codec, simulator = client(), server()
    attitude = dialect.MAVLink_attitude_message(0, value, 0, 0, 0, 0, 0)
    for datagram in (said(simulator, Imu(1.0, (0, 0, value), (0, 0, 0))), packed(attitude, 1, 200)):
        assert codec.decode(datagram) == []
    assert codec.counters == Counters(invalid=2)


def test_mavlink_1_and_messages_without_use_are_dropped_and_counted():
    codec = server()
    old = dialect.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3).pack(dialect.MAVLink(None), force_mavlink1=True)
    ping = packed(dialect.MAVLink_ping_message(0, 0, 0, 0))
    assert codec.decode(old) == codec.decode(ping) == []
    assert codec.counters == Counters(malformed=1, unsupported=1)


def real_datagrams() -> list[bytes]:
    pilot, simulator = client(), server()
    telemetry = (
        Heartbeat(0.0, True),
        Attitude(1.0, (1, 0, 0, 0)),
        Imu(1.0, (0, 0, -9.8), (0.1, 0.2, 0.3)),
        Ack(0.0, True),
        Odometry(1.0, (1, 2, 3), (1, 0, 0, 0), (4, 5, 6), (0.1, 0.2, 0.3), 1),
        RaceStatus(1.0, 2.0, None, 0, None),
        TrackMap(1.0, tuple(MapGate(n, (1, 2, 3), (1, 0, 0, 0), 2.7, 2.7) for n in range(9))),
        GroundStatus(1.0, True, (0, 0, 0)),
    )
    real = [datagram for message in telemetry for datagram in simulator.encode(message)]
    real += simulator.timesync_reply(TimesyncRequest(5), 1.0)
    real += [pilot.encode(AttitudeTarget((1, 0, 0, 0), (0.1, 0.2, 0.3), 0.5), 1.0), pilot.encode(Arm(), 1.0)]
    return [*real, pilot.heartbeat(), pilot.timesync(1.0)]


REAL = real_datagrams()
whole = st.sampled_from(REAL)
truncated = st.builds(lambda d, n: d[: n % len(d)], whole, st.integers(0))
flipped = st.builds(
    lambda d, n: bytes(b ^ (1 << n % 8) if i == n // 8 % len(d) else b for i, b in enumerate(d)), whole, st.integers(0)
)
disguised = st.builds(lambda head, tail: b"\xfd" + head + tail, st.binary(max_size=12), st.binary(max_size=280))
garbage = st.one_of(st.binary(max_size=400), truncated, flipped, disguised)


@given(st.lists(garbage, max_size=5).map(b"".join))
def test_no_bytes_whatever_raise_or_spoil_the_next_datagram(datagram):
    codec, simulator = client(), server()
    codec.decode(datagram), simulator.decode(datagram)
    imu = Imu(3.0, (1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    assert codec.decode(said(server(), imu)) == [imu]
    assert simulator.decode(client().encode(Arm(), 0.0)) == [Arm()]


@given(truncated.filter(bool) | flipped)
def test_a_damaged_message_is_never_heard_but_counted(datagram):
    codec, simulator = client(), server()
    assert codec.decode(datagram) == simulator.decode(datagram) == []
    for counters in (codec.counters, simulator.counters):
        assert counters.malformed + counters.unsupported >= 1


def test_a_broken_checksum_costs_only_its_own_message():
    broken, sound = bytearray(REAL[0]), REAL[2]
    broken[-1] ^= 0xFF
    codec = client()
    assert len(codec.decode(bytes(broken) + sound)) == 1
    assert codec.counters == Counters(malformed=1)
