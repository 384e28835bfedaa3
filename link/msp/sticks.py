"""Commands to stick positions in us, counts to SI units, and back, by a profile's signs and gains. Body FRD, world NED.

The flight controller's rate curves are inverted exactly. In rate mode sticks command body rates, in angle mode roll and pitch
angles and a yaw rate. Throttle 0..1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gate_racer.link.mavlink import scaled
from gate_racer.link.messages import Attitude, Imu
from gate_racer.link.msp.messages import RawAttitude, RawImu
from gate_racer.link.msp.profile import AXES, HIGH_US, LOW_US, MID_US, OWN_ORDER, BetaflightProfile
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
    return RawImu.of(min(max(round(count), -LARGEST - 1), LARGEST) for count in (*force, *turn, 0, 0, 0))


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


TRAVEL_US = HIGH_US - MID_US


@dataclass(frozen=True, slots=True)
class Asked:
    """Command of the sticks. `turn` holds body rates, or in angle mode roll and pitch angles and the yaw rate."""

    turn: Vector
    throttle: float


def sticks_by_rates(profile: BetaflightProfile, omega: Vector, throttle: float) -> tuple[int, ...]:
    """Return channels in us, in the order of the receiver's map, for body rates; rates beyond a full stick are clipped."""
    roll, pitch, yaw = (profile.rates.deflection(axis, rate) for axis, rate in enumerate(omega))
    return _channels(profile, (roll, pitch, yaw), throttle)


def sticks_by_angles(
    profile: BetaflightProfile, roll: float, pitch: float, yaw_rate: float, throttle: float
) -> tuple[int, ...]:
    """Return channels likewise, for angle mode; angles beyond the limit are clipped."""
    limit = math.radians(profile.angle_limit_deg)
    return _channels(profile, (roll / limit, pitch / limit, profile.rates.deflection(2, yaw_rate)), throttle)


def asked_rates(profile: BetaflightProfile, us: Sequence[float]) -> Asked:
    """Return the command of channels in rate mode: the inverse of `sticks_by_rates`, as the flight controller reads them."""
    roll, pitch, yaw = (profile.rates.rate(axis, x) for axis, x in enumerate(_deflections(profile, us)))
    return Asked((roll, pitch, yaw), profile.throttle.throttle(us[profile.channel("T")]))


def asked_angles(profile: BetaflightProfile, us: Sequence[float]) -> Asked:
    """Return the command of channels in angle mode."""
    limit = math.radians(profile.angle_limit_deg)
    roll, pitch, yaw = _deflections(profile, us)
    turn = roll * limit, pitch * limit, profile.rates.rate(2, yaw)
    return Asked(turn, profile.throttle.throttle(us[profile.channel("T")]))


def asked_by(profile: BetaflightProfile, own_us: Sequence[float]) -> Asked:
    """Return `asked_rates` for channels as the flight controller reports them (MSP_RC): in its own order, not the map's."""
    return asked_rates(profile, [own_us[OWN_ORDER.index(letter)] for letter in profile.channel_map])


def _channels(profile: BetaflightProfile, deflections: Vector, throttle: float) -> tuple[int, ...]:
    us = dict.fromkeys(profile.channel_map, 0.0)
    for letter, sign, x in zip(AXES, profile.signs.sticks, deflections, strict=True):
        us[letter] = MID_US + TRAVEL_US * sign * min(max(x, -1.0), 1.0)
    us["T"] = profile.throttle.us(min(max(throttle, 0.0), 1.0))
    return tuple(min(max(round(us[letter]), LOW_US), HIGH_US) for letter in profile.channel_map)


def _deflections(profile: BetaflightProfile, us: Sequence[float]) -> Vector:
    """Return deflections about the body axes, -1..1."""
    x, y, z = (
        sign * min(max((us[profile.channel(letter)] - MID_US) / TRAVEL_US, -1.0), 1.0)
        for letter, sign in zip(AXES, profile.signs.sticks, strict=True)
    )
    return x, y, z
