"""Definitions shared by both ends of the MAVLink 2 link: ids, type masks and checks of single fields. VADR-TS-002, 4.3 to 4.5."""

import math
from collections.abc import Sequence

from pymavlink.dialects.v20 import common as dialect

from gate_racer.vehicle.rotation import Quaternion

CLIENT = (255, dialect.MAV_COMP_ID_MISSIONPLANNER)  # system, component
SIMULATOR_SYSTEM = 1  # system id of the simulator's vehicle

IGNORE_RATE = (  # roll, pitch, yaw
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_YAW_RATE_IGNORE,
)
RATES_RAD_S = 16  # bit that the real builds since 3390 read as "rates are in rad/s"; unused in MAVLink
THRUST_BODY = 32  # ATTITUDE_TARGET_TYPEMASK_THRUST_BODY_SET, which older definitions lack
IGNORE_THRUST = dialect.ATTITUDE_TARGET_TYPEMASK_THROTTLE_IGNORE
IGNORE_ATTITUDE = dialect.ATTITUDE_TARGET_TYPEMASK_ATTITUDE_IGNORE
RIVAL = b"RIVAL"  # DEBUG_FLOAT_ARRAY: array_id is the place on the start; position (m, world NED) and velocity (m/s)
ACCEL_AND_GYRO = 0x3F  # HIGHRES_IMU.fields_updated
UNMEASURED = [math.nan] * 7  # magnetometer, pressures, altitude, temperature


def milliseconds(t: float) -> int:
    """Return t (s) as the 32-bit field of a stamp."""
    return round(t * 1e3) & 0xFFFFFFFF


def finite(values: Sequence[float]) -> bool:
    """Check that all values are finite."""
    return all(map(math.isfinite, values))


def unit(q: Sequence[float]) -> Quaternion | None:
    """Return q / |q|; None if it is zero or not finite."""
    norm = math.hypot(*q)
    if not math.isfinite(norm) or norm < 1e-6:
        return None
    return q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm


def scaled(signs: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    """Apply a sign convention to values; applying it again undoes it."""
    return tuple(sign * value for sign, value in zip(signs, values, strict=True))
