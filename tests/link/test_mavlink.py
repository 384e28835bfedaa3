"""Both codecs against each other and against the bits as MAVLink defines them; no bytes whatever upset either."""

import math
import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link import messages
from gate_racer.link.client import ClientCodec
from gate_racer.link.mavlink import OLD, Counters
from gate_racer.link.messages import Ack, Arm, Attitude, AttitudeTarget, Heartbeat, Imu, PositionTarget, TargetFrame
from gate_racer.link.profile import load_profile
from gate_racer.link.server import Fault, ServerCodec
from gate_racer.vehicle.rotation import matrix, normalised
from tests.mavlink import attitude_target, command_long, packed, position_target, unpacked

SPEC, NAN = load_profile("spec"), math.nan


def said(codec: ServerCodec, message) -> bytes:
    return b"".join(codec.encode(message))


client, server = partial(ClientCodec, SPEC), partial(ServerCodec, SPEC)
times = st.floats(0, 4e6)
single = st.floats(-300, 300, width=32)
vectors = st.tuples(single, single, single)
component = st.floats(-1, 1)
quaternions = (
    st.tuples(component, component, component, component)
    .filter(lambda q: math.hypot(*q) > 0.1)
    .map(lambda q: tuple(normalised(q).tolist()))
)


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


def test_what_a_message_lacks_is_of_the_newest_sample():
    codec, simulator = client(), server()
    codec.decode(said(simulator, Imu(2.5, (0, 0, 0), (0, 0, 0))))
    assert codec.decode(said(simulator, Heartbeat(9.0, True))) == [Heartbeat(2.5, True)]
    assert codec.decode(said(simulator, Ack(9.0, True))) == [Ack(2.5, True)]
    simulator = server()
    said(simulator, Imu(0.0, (0, 0, -9.8), (0.5, -1.0, 2.0)))
    raw = unpacked(said(simulator, Attitude(0.0, (1, 0, 0, 0))))
    assert (raw.rollspeed, raw.pitchspeed, raw.yawspeed) == (0.5, -1.0, 2.0)


def test_commands_address_whoever_sent_the_heartbeat_and_are_numbered():
    codec = client()
    assert [codec.heartbeat()[4] for _ in range(300)] == [n % 256 for n in range(300)]
    beat = dialect.MAVLink_heartbeat_message(2, 0, 65, 0, 3, 3)
    codec.decode(packed(beat, system=7, component=42))
    raw = unpacked(codec.encode(Arm(), 0.0))
    assert (raw.target_system, raw.target_component) == (7, 42)


MEANINGLESS = [
    attitude_target(128, rates=(NAN, 0, 0)), attitude_target(128, thrust=math.inf), attitude_target(7, q=(0, 0, 0, 0)),
    attitude_target(7, q=(NAN, 0, 0, 0)), attitude_target(0, rates=(0, -math.inf, 0)),
    command_long(400, NAN), command_long(400, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("message", MEANINGLESS)
def test_a_command_without_meaning_is_dropped_and_counted(message):
    codec = server()
    assert codec.decode(packed(message)) == []
    assert codec.counters == Counters(invalid=1)


def test_ignored_fields_are_not_read_quaternions_normalised_and_thrust_clipped():
    by_rates = read(attitude_target(128, q=(NAN,) * 4))
    by_attitude = read(attitude_target(7, rates=(NAN,) * 3))
    received, low = read(attitude_target(7, q=(0, 3, 0, 4), thrust=1.5)), read(attitude_target(7, thrust=-1))
    assert by_rates.q_wb == (1, 0, 0, 0) and by_attitude.omega == (0, 0, 0)
    assert received.q_wb == pytest.approx((0, 0.6, 0, 0.8)) and (received.throttle, low.throttle) == (1.0, 0.0)


@pytest.mark.parametrize(("system", "taken"), [(1, True), (0, True), (2, False)])
def test_only_commands_for_this_system_or_for_all_are_taken(system, taken):
    codec = server()
    commands = attitude_target(128, system=system), command_long(400, 1.0, system=system)
    received = [message for command in commands for message in codec.decode(packed(command))]
    assert len(received) == (2 if taken else 0)
    assert codec.counters.wrong_target == (0 if taken else 2)


def test_an_unknown_command_is_answered_as_unsupported():
    codec = server()
    assert codec.decode(packed(command_long(31000, 1.0))) == [messages.UnknownCommand(31000)]
    answer = unpacked(said(codec, Ack(0.0, False, 31000, known=False)))
    assert (answer.command, answer.result) == (31000, dialect.MAV_RESULT_UNSUPPORTED)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_finite_telemetry_passes(value):
    codec, simulator = client(), server()
    attitude = dialect.MAVLink_attitude_message(0, value, 0, 0, 0, 0, 0)
    for datagram in (said(simulator, Imu(1.0, (0, 0, value), (0, 0, 0))), packed(attitude, 1, 200)):
        assert codec.decode(datagram) == []
    assert codec.counters == Counters(invalid=2)


@pytest.mark.parametrize("name", ["spec", "dcl"])
def test_a_timesync_request_is_answered_by_its_stamp_whichever_field_holds_it(name):
    profile = load_profile(name)
    pilot, simulator = ClientCodec(profile), ServerCodec(profile)
    for _ in range(2):  # `dcl` asks in either form, as which of them a build answers is not known
        (request,) = simulator.decode(pilot.timesync(3.0))
        (answer,) = simulator.timesync_reply(request, 1.0)
        assert pilot.decode(answer) == [messages.TimesyncReply(1.0, 3.0)]
    for tc1, ts1 in ((0, 77), (77, 0)):
        assert simulator.decode(packed(dialect.MAVLink_timesync_message(tc1, ts1))) == [messages.TimesyncRequest(77)]
    assert simulator.decode(packed(dialect.MAVLink_timesync_message(5, 77))) == []  # a reply


def test_mavlink_1_and_messages_without_use_are_dropped_and_counted():
    codec = server()
    old = dialect.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3).pack(dialect.MAVLink(None), force_mavlink1=True)
    ping = packed(dialect.MAVLink_ping_message(0, 0, 0, 0))
    assert codec.decode(old) == codec.decode(ping) == []
    assert codec.counters == Counters(malformed=1, unsupported=1)
    assert codec.refused() == {"MAVLink 1": OLD} and codec.refused() == {}
    pilot = client()
    assert pilot.decode(old) == [] and pilot.framing.why_refused == OLD


ROLLED = np.sqrt([0.5, 0.5, 0.0, 0.0])  # right side down, heading along x
FRAMES = {  # frame_id, child_frame_id: position, and attitude as its own axes have it, of a body rolled at 1 m north, 3 m up
    "NED": (dialect.MAV_FRAME_LOCAL_NED, dialect.MAV_FRAME_BODY_FRD, (1, 2, -3), ROLLED),
    "FRD": (dialect.MAV_FRAME_LOCAL_FRD, dialect.MAV_FRAME_BODY_FRD, (1, 2, -3), ROLLED),
    "FLU": (dialect.MAV_FRAME_LOCAL_FLU, dialect.MAV_FRAME_BODY_FRD, (1, -2, 3), (-(0.5**0.5), 0.5**0.5, 0, 0)),
    "of the real builds": (dialect.MAV_FRAME_LOCAL_NED, dialect.MAV_FRAME_BODY_NED, (1, 2, -3), ROLLED),
    "ENU": (dialect.MAV_FRAME_LOCAL_ENU, dialect.MAV_FRAME_BODY_FRD, (2, 1, 3), None),
    "world velocity": (dialect.MAV_FRAME_LOCAL_NED, dialect.MAV_FRAME_LOCAL_NED, (1, 2, -3), None),
}


@pytest.mark.parametrize(("world", "body", "p", "q"), FRAMES.values(), ids=FRAMES)
def test_frames_of_odometry_are_turned_to_ned_and_frd_or_counted(world, body, p, q):
    codec, cov = client(), [NAN] * 21
    motion = *p, ROLLED if q is None else q, 4, 5, 6, 0.25, 0.5, 0.75
    told = codec.decode(packed(dialect.MAVLink_odometry_message(1_000_000, world, body, *motion, cov, cov, 7)))
    if q is None:
        assert told == [] and codec.counters.unsupported == 1
        return
    (one,) = told
    assert (one.t, one.p_wb, one.v_b, one.omega_b, one.resets) == (1.0, (1, 2, -3), (4, 5, 6), (0.25, 0.5, 0.75), 7)
    assert np.allclose(matrix(one.q_wb), matrix(ROLLED), atol=1e-6)


def track_of(gates):
    return messages.TrackMap(0.0, tuple(messages.MapGate(n, (n, 2, 3), (0.5,) * 4, 2.5, 2.5) for n in range(gates)))


def real_datagrams() -> list[bytes]:
    pilot, simulator = client(), server()
    telemetry = (
        Heartbeat(0.0, True), Attitude(1.0, (1, 0, 0, 0)), Imu(1.0, (0, 0, -9.8), (0.1, 0.2, 0.3)), Ack(0.0, True),
        messages.Odometry(1.0, (1, 2, 3), (1, 0, 0, 0), (4, 5, 6), (0.1, 0.2, 0.3), 1),
        messages.RaceStatus(1.0, 2.0, None, 0, None), track_of(9), messages.GroundStatus(1.0, True, (0, 0, 0)),
    )  # fmt: skip
    real = [datagram for message in telemetry for datagram in simulator.encode(message)]
    real += simulator.timesync_reply(messages.TimesyncRequest(5), 1.0)
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


def test_messages_of_one_datagram_arrive_in_order_but_for_a_broken_one():
    broken, codec = bytearray(REAL[1]), client()
    broken[-1] ^= 0xFF
    received = codec.decode(REAL[0] + bytes(broken) + REAL[2])
    assert [type(message) for message in received] == [Heartbeat, Imu] and codec.counters == Counters(malformed=1)


@pytest.mark.parametrize("gates", [1, 6, 40])
def test_the_race_and_its_map_arrive_whole_and_in_any_order(gates):
    codec, simulator = client(), server()
    status = messages.RaceStatus(12.5, 13.25, None, 3, 4.5)
    assert codec.decode(said(simulator, status)) == [status]
    shake, *chunks = simulator.encode(track_of(gates))
    received = [message for packet in (shake, *reversed(chunks)) for message in codec.decode(packet)]
    assert received == [track_of(gates)]


def test_a_map_is_read_and_sent_as_by_the_organisers_sample_client():
    """The header of a chunk is type and transfer; its place is its `seqnr`; the last is padded."""
    gates = track_of(9).gates
    payload = struct.pack("<H", 9)
    for gate in gates:
        payload += struct.pack("<H9f", gate.number, *gate.p_w, *gate.q_wg, gate.width, gate.height)
    parts, codec = [payload[:250], payload[250:]], client()
    said_to_us = [dialect.MAVLink_data_transmission_handshake_message(0, 0, 7, 0, 2, 0, 0)]
    for transfer in (6, 7):
        chunks = [(struct.pack("<BH", 2, transfer) + part).ljust(253, b"\0") for part in parts]
        said_to_us += [dialect.MAVLink_encapsulated_data_message(n, chunk) for n, chunk in enumerate(chunks)]
    received = [message for one in said_to_us for message in codec.decode(packed(one, 1, 200))]
    assert received == [track_of(9)]
    reader = dialect.MAVLink(None)
    shake, *ours = [one for packet in server().encode(track_of(9)) for one in reader.parse_buffer(packet)]
    assert [(struct.unpack_from("<BH", bytes(one.data)), one.seqnr) for one in ours] == [
        ((2, shake.width), 0),
        ((2, shake.width), 1),
    ]


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x02\xff\xff", b"\x02\0\0\xff\xff", b"\x01" + b"\xff" * 36])
def test_a_map_or_status_without_meaning_is_no_map(payload):
    codec, data = client(), payload.ljust(253, b"\0")
    codec.decode(packed(dialect.MAVLink_data_transmission_handshake_message(0, 65535, 1, 0, 1, 250, 0), 1, 200))
    received = codec.decode(packed(dialect.MAVLink_encapsulated_data_message(0, data), 1, 200))
    assert not any(isinstance(message, messages.TrackMap) for message in received)


def answered(message):
    """Return the simulator's answers, as pymavlink decodes them."""
    codec = server()
    codec.encode(messages.GroundStatus(0.0, True, (1.0, 2.0, 3.0)))
    assert codec.decode(packed(message)) == []
    return [unpacked(reply) for reply in codec.replies()]


ASKED = {
    "its version": (command_long(dialect.MAV_CMD_REQUEST_MESSAGE, 148), ["COMMAND_ACK", "AUTOPILOT_VERSION"]),
    "its home": (command_long(dialect.MAV_CMD_REQUEST_MESSAGE, 242), ["COMMAND_ACK", "HOME_POSITION"]),
    "all parameters": (dialect.MAVLink_param_request_list_message(1, 1), ["PARAM_VALUE"]),
    "a parameter": (dialect.MAVLink_param_request_read_message(1, 1, b"SYSID_THISMAV", -1), ["PARAM_VALUE"]),
    "another one": (dialect.MAVLink_param_request_read_message(1, 1, b"ELSE", -1), []),
}


@pytest.mark.parametrize(("request_", "kinds"), ASKED.values(), ids=ASKED)
def test_a_ground_station_gets_what_it_asks_for(request_, kinds):
    assert [message.get_type() for message in answered(request_)] == kinds


def test_a_ground_station_sets_a_mode_that_there_is():
    codec = server()
    codec.decode(packed(command_long(dialect.MAV_CMD_DO_SET_MODE, 1, 6)))
    assert unpacked(said(codec, Heartbeat(0.0, False))).custom_mode == 6 << 16
    for mode in (NAN, -1.0, 256.0):
        (answer,) = answered(command_long(dialect.MAV_CMD_DO_SET_MODE, 1, mode))
        assert answer.result == dialect.MAV_RESULT_DENIED
    (answer,) = answered(command_long(dialect.MAV_CMD_REQUEST_MESSAGE, 1))
    assert answer.result == dialect.MAV_RESULT_UNSUPPORTED


Q, RATES, THRUST = (0.5, 0.5, -0.5, 0.5), (0.25, -0.5, 0.75), 0.625
P, V, A, YAW, YAW_RATE = (1.0, 2.0, -3.0), (0.5, -0.25, 0.125), (2.0, 4.0, -8.0), 0.75, -0.375


def read(message):
    """Return the simulator's reading of a message: a set-point or the fault."""
    codec = server()
    received = codec.decode(packed(message))
    (refusal,) = codec.refusals() or (None,)
    return received[0] if received else refusal.fault


WHOLE = {"p": P, "v": V, "a": A, "yaw": YAW, "yaw_rate": YAW_RATE}


def wanted_attitude(mask):
    """MAVLink: 1, 2, 4 ignore a rate, 64 ignores the throttle, 128 the attitude; 8 is free, and 32 not supported."""
    rates = tuple(0.0 if mask & bit else rate for bit, rate in zip((1, 2, 4), RATES, strict=True))
    if mask & (8 | 32) or (mask & 128 and mask & 7 == 7 and mask & 64):
        return Fault.MASK
    return AttitudeTarget(Q, rates, 0.0 if mask & 64 else THRUST, bool(mask & 128), bool(mask & 64))


def test_all_256_masks_of_set_attitude_target():
    read_as = {mask: read(attitude_target(mask, Q, RATES, THRUST)) for mask in range(256)}
    assert read_as == {mask: wanted_attitude(mask) for mask in range(256)}
    assert sum(isinstance(target, AttitudeTarget) for target in read_as.values()) == 62


def wanted_position(mask):
    """MAVLink: bits 0 to 8 ignore an axis of position, velocity, acceleration, 10 and 11 yaw and its rate; 9 asks for forces."""
    bits = [None if mask >> k & 1 else value for k, value in enumerate((*P, *V, *A, 0.0, YAW, YAW_RATE))]
    if all(value is None for value in (*bits[:9], *bits[10:])) or (mask & 512 and bits[6:9] != [None] * 3):
        return Fault.MASK
    return PositionTarget(tuple(bits[:3]), tuple(bits[3:6]), bits[10], bits[11], TargetFrame.LOCAL, tuple(bits[6:9]))


def test_all_4096_masks_of_set_position_target_local_ned():
    assert all(read(position_target(mask, **WHOLE)) == wanted_position(mask) for mask in range(4096))
    assert [read(position_target(1 << bit, **WHOLE)) for bit in range(12, 16)] == [Fault.MASK] * 4


FRAMES = {1: TargetFrame.LOCAL, 7: TargetFrame.OFFSET, 8: TargetFrame.BODY, 9: TargetFrame.BODY, 12: TargetFrame.BODY}


def test_all_256_frames():
    known = {frame: PositionTarget(P, (None,) * 3, frame=read_as) for frame, read_as in FRAMES.items()}
    received = [read(position_target(3576, frame, **WHOLE)) for frame in range(256)]
    assert received == [known.get(frame, Fault.FRAME) for frame in range(256)]


@pytest.mark.parametrize("mask", range(0, 4096, 37))
def test_ignored_fields_may_be_anything_and_others_must_be_finite(mask):
    def values(ignored, asked):
        bits = [ignored if mask >> k & 1 else asked for k in range(12)]
        return {"p": bits[:3], "v": bits[3:6], "a": bits[6:9], "yaw": bits[10], "yaw_rate": bits[11]}

    wanted = wanted_position(mask)
    fault = isinstance(wanted, Fault)
    assert isinstance(read(position_target(mask, **values(NAN, 1.0))), Fault if fault else PositionTarget)
    assert read(position_target(mask, **values(1.0, NAN))) == (wanted if fault else Fault.NOT_FINITE)


@given(st.integers(0, 4095), st.sampled_from(TargetFrame))
def test_the_clients_set_points_arrive(mask, frame):
    target = wanted_position(mask)
    if isinstance(target, PositionTarget):
        target = replace(target, frame=frame)
        assert server().decode(client().encode(target, 1.0)) == [target]
    for by_rates in (True, False):
        kept = AttitudeTarget(Q, RATES if by_rates else (0.0, 0.0, 0.0), 0.0, by_rates, keep_throttle=True)
        assert server().decode(client().encode(kept, 1.0)) == [kept]
