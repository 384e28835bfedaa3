"""The full tables of type masks and frames, against the bits as MAVLink defines them."""

import math
import struct

import pytest
from pymavlink.dialects.v20 import common as dialect
from pymavlink.generator.mavcrc import x25crc

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import AttitudeTarget, PositionTarget, TargetFrame
from gate_racer.link.profile import load_profile
from gate_racer.link.server import Fault, ServerCodec

SPEC = load_profile("spec")
Q, RATES, THRUST = (0.5, 0.5, -0.5, 0.5), (0.25, -0.5, 0.75), 0.625
P, V, A, YAW, YAW_RATE = (1.0, 2.0, -3.0), (0.5, -0.25, 0.125), (2.0, 4.0, -8.0), 0.75, -0.375
NAN = math.nan


def read(message):
    """Return the simulator's reading of a message: a set-point or the fault."""
    codec = ServerCodec(SPEC)
    received = codec.decode(
        message if isinstance(message, bytes) else message.pack(dialect.MAVLink(None, srcSystem=255))
    )
    (refusal,) = codec.refusals() or (None,)
    return received[0] if received else refusal.fault


def attitude(mask, q=Q, rates=RATES, thrust=THRUST):
    return dialect.MAVLink_set_attitude_target_message(0, 1, 1, mask, q, *rates, thrust)


def position(mask, frame=1, p=P, v=V, a=A, yaw=YAW, yaw_rate=YAW_RATE):
    return dialect.MAVLink_set_position_target_local_ned_message(0, 1, 1, frame, mask, *p, *v, *a, yaw, yaw_rate)


def extended(mask, thrust_body, cut=0):
    """SET_ATTITUDE_TARGET with its extension field, as newer definitions have it; `cut` bytes of zeros are left out."""
    payload = struct.pack("<I8fBBB3f", 0, *Q, *RATES, THRUST, 1, 1, mask, *thrust_body)
    payload = payload[: len(payload) - cut]
    head = bytes([len(payload), 0, 0, 0, 255, 190, 82, 0, 0])
    crc = x25crc(head + payload)
    crc.accumulate(bytes([dialect.MAVLink_set_attitude_target_message.crc_extra]))
    return b"\xfd" + head + payload + crc.crc.to_bytes(2, "little")


def wanted_attitude(mask):
    """MAVLink: 1, 2, 4 ignore a rate, 32 takes thrust_body (here: none), 64 ignores the throttle, 128 the attitude; 8 is free."""
    rates = tuple(0.0 if mask & bit else rate for bit, rate in zip((1, 2, 4), RATES, strict=True))
    no_thrust = mask & 64 and not mask & 32
    if mask & 8 or (mask & 128 and mask & 7 == 7 and no_thrust):
        return Fault.MASK
    throttle = 0.0 if mask & (64 | 32) else THRUST
    return AttitudeTarget(Q, rates, throttle, bool(mask & 128), bool(no_thrust))


def test_all_256_masks_of_set_attitude_target():
    read_as = {mask: read(attitude(mask)) for mask in range(256)}
    assert read_as == {mask: wanted_attitude(mask) for mask in range(256)}
    assert sum(isinstance(target, AttitudeTarget) for target in read_as.values()) == 126


def wanted_position(mask):
    """MAVLink: bits 0 to 8 ignore an axis of position, velocity, acceleration, 10 and 11 yaw and its rate; 9 asks for forces."""
    bits = [None if mask >> k & 1 else value for k, value in enumerate((*P, *V, *A, 0.0, YAW, YAW_RATE))]
    if all(value is None for value in (*bits[:9], *bits[10:])) or (mask & 512 and bits[6:9] != [None] * 3):
        return Fault.MASK
    return PositionTarget(tuple(bits[:3]), tuple(bits[3:6]), bits[10], bits[11], TargetFrame.LOCAL, tuple(bits[6:9]))


def test_all_4096_masks_of_set_position_target_local_ned():
    assert all(read(position(mask)) == wanted_position(mask) for mask in range(4096))
    assert [read(position(1 << bit)) for bit in range(12, 16)] == [Fault.MASK] * 4


FRAMES = {1: TargetFrame.LOCAL, 7: TargetFrame.OFFSET, 8: TargetFrame.BODY, 9: TargetFrame.BODY, 12: TargetFrame.BODY}


def test_all_256_frames():
    known = {frame: PositionTarget(P, (None,) * 3, frame=read_as) for frame, read_as in FRAMES.items()}
    assert [read(position(3576, frame)) for frame in range(256)] == [known.get(k, Fault.FRAME) for k in range(256)]


@pytest.mark.parametrize("mask", range(0, 4096, 37))
def test_ignored_fields_may_be_anything_and_others_must_be_finite(mask):
    def values(ignored, asked):
        bits = [ignored if mask >> k & 1 else asked for k in range(12)]
        return {"p": bits[:3], "v": bits[3:6], "a": bits[6:9], "yaw": bits[10], "yaw_rate": bits[11]}

    wanted = wanted_position(mask)
    fault = isinstance(wanted, Fault)
    assert isinstance(read(position(mask, **values(NAN, 1.0))), Fault if fault else PositionTarget)
    assert read(position(mask, **values(1.0, NAN))) == (wanted if fault else Fault.NOT_FINITE)


@pytest.mark.parametrize(
    ("mask", "thrust_body", "throttle"),
    [
        (32, (0, 0, -0.5), 0.5),
        (32 | 64, (0, 0, -0.5), 0.5),
        (32 | 128, (0, 0, -1), 1.0),
        (32, (0, 0, -2), 1.0),
        (32, (0, 0, 0.5), 0.0),
        (32, (0, 0, 0), 0.0),
        (128, (0, 0, -0.5), THRUST),
    ],
)
def test_thrust_along_the_body_comes_in_the_place_of_the_throttle(mask, thrust_body, throttle):
    target = read(extended(mask, thrust_body))
    assert (target.throttle, target.keep_throttle) == (throttle, False)


def test_a_thrust_across_the_body_or_not_finite_is_refused():
    assert read(extended(32, (0.1, 0, -0.5))) == Fault.VALUE
    assert read(extended(32, (0, 0, NAN))) == Fault.NOT_FINITE


def test_zeros_cut_off_the_end_of_a_payload_are_zeros():
    assert [read(extended(32, (0, 0, 0), cut)).throttle for cut in range(13)] == [0.0] * 13


@pytest.mark.parametrize("target", [
    AttitudeTarget(Q, RATES, 0.0, True, keep_throttle=True),
    AttitudeTarget(Q, (0.0, 0.0, 0.0), 0.0, False, keep_throttle=True),
    *(PositionTarget(P, V, YAW, YAW_RATE, frame, A) for frame in TargetFrame),
    PositionTarget(P, (None,) * 3, yaw=YAW),
    PositionTarget((None, None, -3.0), (1.0, 0.5, None), yaw_rate=YAW_RATE),
    PositionTarget((None,) * 3, (1.0, 0.0, 0.0), frame=TargetFrame.BODY),
    PositionTarget((1.0, None, None), (None,) * 3, frame=TargetFrame.OFFSET),
    PositionTarget((None,) * 3, (None,) * 3, a=(0.5, None, -0.25)),
    PositionTarget((None,) * 3, (None,) * 3, yaw=YAW),
])  # fmt: skip
def test_the_clients_set_points_arrive(target):
    (received,) = ServerCodec(SPEC).decode(ClientCodec(SPEC).encode(target, 1.0))
    assert received == target
