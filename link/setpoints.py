"""Decoding of SET_ATTITUDE_TARGET and SET_POSITION_TARGET_LOCAL_NED by type mask and frame. VADR-TS-002, 3.8 and 4.3.

MAVLink defines the bits: ATTITUDE_TARGET_TYPEMASK, POSITION_TARGET_TYPEMASK, MAV_FRAME. Ignored fields may hold anything.
What cannot be flown becomes a `Refusal` with its reason; docs/vadr.md lists how ambiguities are resolved.
"""

import enum
import struct
from dataclasses import dataclass
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.mavlink import (
    IGNORE_ATTITUDE,
    IGNORE_RATE,
    IGNORE_THRUST,
    RATES_RAD_S,
    THRUST_BODY,
    finite,
    unit,
)
from gate_racer.link.messages import AttitudeTarget, Axes, PositionTarget, TargetFrame
from gate_racer.link.profile import Profile
from gate_racer.vehicle.rotation import Vector

ATTITUDE_BITS = sum(IGNORE_RATE) | RATES_RAD_S | THRUST_BODY | IGNORE_THRUST | IGNORE_ATTITUDE
FORCE = dialect.POSITION_TARGET_TYPEMASK_FORCE_SET
POSITION_BITS = 2 * dialect.POSITION_TARGET_TYPEMASK_YAW_RATE_IGNORE - 1
AXES, YAW, YAW_RATE = 9, 10, 11  # bits 0 to 8 ignore position, velocity and acceleration
FRAMES = {
    dialect.MAV_FRAME_LOCAL_NED: TargetFrame.LOCAL,
    dialect.MAV_FRAME_LOCAL_OFFSET_NED: TargetFrame.OFFSET,
    dialect.MAV_FRAME_BODY_NED: TargetFrame.BODY,
    dialect.MAV_FRAME_BODY_OFFSET_NED: TargetFrame.BODY,
    dialect.MAV_FRAME_BODY_FRD: TargetFrame.BODY,
}
HEADER_BYTES = 10  # bytes of MAVLink 2 before the payload
BODY_THRUST = struct.Struct("<3f")  # extension `thrust_body`, which older definitions of the message lack
BODY_THRUST_AT = HEADER_BYTES + int(dialect.MAVLink_set_attitude_target_message.unpacker.size)


class Fault(enum.StrEnum):
    """Reason why a set-point or an arm command is dropped."""

    MASK = "type mask"
    FRAME = "coordinate frame"
    NOT_FINITE = "not finite"
    VALUE = "value"
    TARGET = "target system"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A set-point or command that is not executed."""

    fault: Fault
    reason: str


def attitude_target(message: Any, profile: Profile) -> AttitudeTarget | Refusal:
    """Return the target of a SET_ATTITUDE_TARGET with a profile's gains."""
    mask = message.type_mask
    by_rates, no_thrust = bool(mask & IGNORE_ATTITUDE), bool(mask & IGNORE_THRUST and not mask & THRUST_BODY)
    if mask & ~ATTITUDE_BITS:
        return Refusal(Fault.MASK, f"type mask {mask}: bit {mask & ~ATTITUDE_BITS} is undefined")
    if by_rates and no_thrust and all(mask & ignore for ignore in IGNORE_RATE):
        return Refusal(Fault.MASK, f"type mask {mask} ignores attitude, rates and thrust: at least one must be set")
    requested = message.body_roll_rate, message.body_pitch_rate, message.body_yaw_rate
    p, q, r = (0.0 if mask & ignore else rate for rate, ignore in zip(requested, IGNORE_RATE, strict=True))
    omega = profile.gain(bool(mask & RATES_RAD_S)).to_body((p, q, r))
    throttle = 0.0 if no_thrust else message.thrust
    if mask & THRUST_BODY:
        x, y, z = _thrust_body(message)
        if x or y:
            return Refusal(Fault.VALUE, f"thrust_body ({x:g}, {y:g}, {z:g}): only thrust along z is possible")
        throttle = -z
    if not finite((*omega, throttle)) or not (by_rates or finite(message.q)):
        return Refusal(Fault.NOT_FINITE, "SET_ATTITUDE_TARGET holds a field that is not finite")
    q_wb = unit(message.q) or ((1.0, 0.0, 0.0, 0.0) if by_rates else None)
    if q_wb is None:
        return Refusal(Fault.VALUE, "SET_ATTITUDE_TARGET.q is zero: must be a unit quaternion")
    return AttitudeTarget(q_wb, omega, min(1.0, max(0.0, throttle)), by_rates, no_thrust)


def _thrust_body(message: Any) -> Vector:
    """Return the extension field, -1..1, body FRD. MAVLink truncates trailing zeros of a payload."""
    payload = bytes(message.get_msgbuf() or b"")
    signature = int(dialect.MAVLINK_SIGNATURE_BLOCK_LEN) if payload[2:3] == b"\x01" else 0
    end = len(payload) - 2 - signature
    field = payload[BODY_THRUST_AT : min(end, BODY_THRUST_AT + BODY_THRUST.size)]
    x, y, z = BODY_THRUST.unpack(field.ljust(BODY_THRUST.size, b"\0"))
    return x, y, z


def position_target(message: Any) -> PositionTarget | Refusal:
    """Return the target of a SET_POSITION_TARGET_LOCAL_NED."""
    mask, frame = message.type_mask, FRAMES.get(message.coordinate_frame)
    if frame is None:
        known = ", ".join(map(str, FRAMES))
        return Refusal(Fault.FRAME, f"coordinate frame {message.coordinate_frame}: must be one of {known}")
    if mask & ~POSITION_BITS:
        return Refusal(Fault.MASK, f"type mask {mask}: bit {mask & ~POSITION_BITS} is undefined")
    p_v = message.x, message.y, message.z, message.vx, message.vy, message.vz
    values = (*p_v, message.afx, message.afy, message.afz)
    axes = [None if mask & 1 << bit else value for bit, value in enumerate(values)]
    yaw, yaw_rate = (None if mask & 1 << bit else v for bit, v in ((YAW, message.yaw), (YAW_RATE, message.yaw_rate)))
    requested = [value for value in (*axes, yaw, yaw_rate) if value is not None]
    if not requested:
        return Refusal(Fault.MASK, f"type mask {mask} ignores every field: at least one must be set")
    if mask & FORCE and any(axis is not None for axis in axes[6:]):
        return Refusal(
            Fault.MASK, f"type mask {mask} requests forces: only accelerations are supported, with bit {FORCE} clear"
        )
    if not finite(requested):
        return Refusal(Fault.NOT_FINITE, "SET_POSITION_TARGET_LOCAL_NED holds a field that is not finite")
    p, v, a = (_axes(axes[k : k + 3]) for k in (0, 3, 6))
    return PositionTarget(p, v, yaw, yaw_rate, frame, a)


def _axes(values: list[float | None]) -> Axes:
    x, y, z = values
    return x, y, z
