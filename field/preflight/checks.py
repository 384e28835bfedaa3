"""What an aircraft on the ground says of itself, against profile and vehicle: line by line of a table."""

import math
from collections.abc import Sequence

import numpy as np

from field.probe.betaflight import firmware_check, rate_checks
from field.probe.check import Check, CheckVerdict, number, same
from link.messages import Vector
from link.msp.constants import ANGLE, ARM, OVERRIDE, AircraftConstants
from link.msp.messages import Message, RawAttitude, RawImu
from link.msp.preflight import AtRest
from link.msp.profile import MID_US, AuxRange, BetaflightProfile
from link.msp.units import attitude, imu
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.rotation import Array, to_euler
from vehicle.vehicle import ImuParameters

SIGMAS = 3.0  # of a bias, which the vehicle's file gives as a standard deviation
ATTITUDE_RAD = math.radians(5.0)  # between what the flight controller says and where gravity points
GRAVITY_SHARE = 0.03  # of its length: accelerometers that were never calibrated
LOUDER = 3.0  # than the vehicle's file says, which is no reason yet
LATE = 1.5  # than one interval of sticks, at the 95th percentile
FEWEST = 20  # samples behind a mean
MODES = {"arm": ARM, "angle": ANGLE, "override": OVERRIDE}


def set_up(found: AircraftConstants, profile: BetaflightProfile) -> list[Check]:
    """How it is set, against the profile."""
    tuning, receiver, throttle = found.tuning, found.receiver, profile.throttle
    checks = [firmware_check(found.firmware), *rate_checks(profile.rates, found.rates)]
    checks += [
        same("throttle mid, expo", (throttle.mid, throttle.expo), (tuning.throttle_mid, tuning.throttle_expo)),
        same("throttle limit, %", 100, tuning.throttle_limit if tuning.throttle_limit_type else 100),
        same("channel map", profile.channel_map, found.channel_map[: len(profile.channel_map)]),
        same("min check, us", throttle.min_check_us, receiver.min_check_us),
        same("middle of a stick, us", MID_US, receiver.mid_us),
        same("valid pulses, us", profile.valid_us, (receiver.least_us, receiver.most_us)),
    ]
    return checks + [_switch(name, getattr(profile.aux, name), found) for name in MODES]


def _switch(name: str, expected: AuxRange, found: AircraftConstants) -> Check:
    """A mode that several ranges switch on, or none, is not the profile's."""
    ranges = [f"AUX{r.channel} {r.low_us}..{r.high_us}" for r in found.modes if r.mode == MODES[name]]
    return same(
        f"switch: {name}", f"AUX{expected.channel} {expected.low_us}..{expected.high_us}", ", ".join(ranges) or "none"
    )


def rested(heard: Sequence[Message], profile: BetaflightProfile) -> AtRest:
    """Means and noise of what was polled. Raises UserError with too few samples."""
    samples = [imu(profile, raw, 0.0) for raw in heard if isinstance(raw, RawImu)]
    tilts = [to_euler(np.array(attitude(profile, raw, 0.0).q_wb))[:2] for raw in heard if isinstance(raw, RawAttitude)]
    if min(len(samples), len(tilts)) < FEWEST:
        raise UserError(
            f"only {min(len(samples), len(tilts))} answers with IMU and attitude, {FEWEST} are needed: --seconds"
        )
    accel, gyro = (np.array([getattr(sample, name) for sample in samples]) for name in ("accel", "gyro"))
    roll, pitch = np.mean(tilts, axis=0).tolist()
    noise = float(accel.std(axis=0).max()), float(gyro.std(axis=0).max())
    return AtRest(_mean(accel), _mean(gyro), *noise, roll, pitch)


def _mean(samples: Array) -> Vector:
    x, y, z = samples.mean(axis=0).tolist()
    return x, y, z


def at_rest(found: AtRest, noise: ImuParameters) -> list[Check]:
    """What lies still, against the vehicle: gravity, bias, noise, and whether attitude and accelerometer mean the same."""
    x, y, z = found.accel_m_s2
    roll, pitch = math.atan2(-y, -z), math.atan2(x, math.hypot(y, z))
    off = SIGMAS * noise.accel_bias_m_s2 + GRAVITY_SHARE * GRAVITY
    turn = max(found.gyro_rad_s, key=abs)
    return [
        number("specific force, m/s^2", GRAVITY, math.sqrt(x * x + y * y + z * z), off),
        same("it points", "up", "up" if z < 0 else "down"),
        number("gyro bias, rad/s", 0.0, turn, SIGMAS * noise.gyro_bias_rad_s + 1e-3),
        _at_most("noise of accel, m/s^2", LOUDER * noise.accel_noise_m_s2, found.accel_noise_m_s2),
        _at_most("noise of gyro, rad/s", LOUDER * noise.gyro_noise_rad_s, found.gyro_noise_rad_s),
        number("roll by gravity, deg", math.degrees(roll), math.degrees(found.roll_rad), math.degrees(ATTITUDE_RAD)),
        number("pitch by gravity, deg", math.degrees(pitch), math.degrees(found.pitch_rad), math.degrees(ATTITUDE_RAD)),
    ]


def line_check(profile: BetaflightProfile, interval_p95_s: float) -> Check:
    """Whether the line sustains what a flight needs: an answer for each beat of the sticks."""
    return _at_most("answers beside sticks, p95 ms", 1e3 * LATE / profile.stick_hz, 1e3 * interval_p95_s)


def _at_most(name: str, limit: float, found: float) -> Check:
    verdict = CheckVerdict.PASS if found <= limit else CheckVerdict.DIFFERS
    return Check(name, f"<= {limit:.3g}", f"{found:.3g}", verdict)
