"""Conversion between counts of the wire and SI units, with the signs and gains of a profile. Body FRD, world NED."""

import math
from collections.abc import Sequence

from gate_racer.link.mavlink import scaled
from gate_racer.link.messages import Attitude, Imu
from gate_racer.link.msp.messages import RawAttitude, RawImu
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Vector, from_euler, to_euler

LARGEST = 0x7FFF
DDEG = math.radians(0.1)


def imu(profile: BetaflightProfile, raw: RawImu, t: float, spinning: bool = False) -> Imu:
    """Return the sample at t (s) of the counts; with `spinning` propellers the reduced reading of gravity is corrected."""
    accel = scaled(profile.signs.accel, [count / profile.accel_counts_per_g * GRAVITY for count in raw.accel])
    gyro = scaled(profile.signs.gyro, [math.radians(count / profile.gyro_counts_per_deg_s) for count in raw.gyro])
    x, y, z = accel
    return Imu(t, (x, y, z - spinning * profile.accel_loss_m_s2), _vector(gyro))


def raw_imu(profile: BetaflightProfile, accel: Vector, gyro: Vector) -> RawImu:
    """Return the counts of a specific force (m/s^2) and body rates (rad/s), clipped to 16 bit."""
    force = scaled(profile.signs.accel, [a / GRAVITY * profile.accel_counts_per_g for a in accel])
    turn = scaled(profile.signs.gyro, [math.degrees(w) * profile.gyro_counts_per_deg_s for w in gyro])
    return RawImu(*(min(max(round(count), -LARGEST - 1), LARGEST) for count in (*force, *turn)))


def attitude(profile: BetaflightProfile, raw: RawAttitude, t: float) -> Attitude:
    """Return the sample read at t (s), on average half an update old; its heading is quantised to a degree."""
    euler = raw.roll_ddeg * DDEG, raw.pitch_ddeg * DDEG, math.radians(raw.heading_deg)
    w, x, y, z = from_euler(*scaled(profile.signs.euler, euler)).tolist()
    return Attitude(t - 0.5 / profile.attitude_hz, (w, x, y, z))


def raw_attitude(profile: BetaflightProfile, q_wb: Array) -> RawAttitude:
    """Return the angles of an attitude (4,), wxyz."""
    roll, pitch, yaw = scaled(profile.signs.euler, to_euler(q_wb))
    return RawAttitude(round(roll / DDEG), round(pitch / DDEG), round(math.degrees(yaw)) % 360)


def _vector(values: Sequence[float]) -> Vector:
    x, y, z = values
    return x, y, z
