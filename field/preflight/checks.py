"""Checks of an aircraft on the ground against profile and vehicle, a table line each."""

import math
from collections.abc import Sequence

import numpy as np

from gate_racer.field.probe.betaflight import firmware_check, rate_checks
from gate_racer.field.probe.check import Check, CheckVerdict, number, same
from gate_racer.link.msp.constants import ANGLE, ARM, OVERRIDE, AircraftConstants
from gate_racer.link.msp.messages import Message, RawAttitude, RawImu
from gate_racer.link.msp.preflight import AtRest
from gate_racer.link.msp.profile import MID_US, AuxRange, BetaflightProfile
from gate_racer.link.msp.units import attitude, imu
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array, Vector, to_euler
from gate_racer.vehicle.vehicle import ImuParameters

SIGMAS = 3.0  # standard deviations of a bias, by the vehicle's file
ATTITUDE_RAD = math.radians(5.0)  # rad, largest angle between the reported attitude and gravity (chosen)
GRAVITY_SHARE = 0.03  # -, relative error of gravity's magnitude: accelerometers that were never calibrated (chosen)
LOUDER = 3.0  # factor on the noise in the vehicle's file, up to which it is accepted
LATE = 1.5  # factor on the interval between sticks, at the 95th percentile
FEWEST = 20  # least samples in a mean
MODES = {"arm": ARM, "angle": ANGLE, "override": OVERRIDE}


def set_up(found: AircraftConstants, profile: BetaflightProfile) -> list[Check]:
    """Compare the configuration with the profile."""
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
    """Compare the switch of a mode; a mode with several ranges, or none, differs from the profile."""
    ranges = [f"AUX{r.channel} {r.low_us}..{r.high_us}" for r in found.modes if r.mode == MODES[name]]
    return same(
        f"switch: {name}", f"AUX{expected.channel} {expected.low_us}..{expected.high_us}", ", ".join(ranges) or "none"
    )


def rested(received: Sequence[Message], profile: BetaflightProfile) -> AtRest:
    """Return means and noise of the polled samples. Raises UserError with too few samples."""
    samples = [imu(profile, raw, 0.0) for raw in received if isinstance(raw, RawImu)]
    tilts = [
        to_euler(np.array(attitude(profile, raw, 0.0).q_wb))[:2] for raw in received if isinstance(raw, RawAttitude)
    ]
    if min(len(samples), len(tilts)) < FEWEST:
        raise UserError(
            f"--seconds: too short, {min(len(samples), len(tilts))} of at least {FEWEST} replies with IMU and attitude"
        )
    accel, gyro = (np.array([getattr(sample, name) for sample in samples]) for name in ("accel", "gyro"))
    roll, pitch = np.mean(tilts, axis=0).tolist()
    noise = float(accel.std(axis=0).max()), float(gyro.std(axis=0).max())
    return AtRest(_mean(accel), _mean(gyro), *noise, roll, pitch)


def _mean(samples: Array) -> Vector:
    x, y, z = samples.mean(axis=0).tolist()
    return x, y, z


def at_rest(found: AtRest, noise: ImuParameters) -> list[Check]:
    """Compare an aircraft at rest with the vehicle: gravity, bias, noise, and consistency of attitude and accelerometer."""
    x, y, z = found.accel_m_s2
    roll, pitch = math.atan2(-y, -z), math.atan2(x, math.hypot(y, z))
    off = SIGMAS * noise.accel_bias_m_s2 + GRAVITY_SHARE * GRAVITY
    turn = max(found.gyro_rad_s, key=abs)
    return [
        number("specific force, m/s^2", GRAVITY, math.sqrt(x * x + y * y + z * z), off),
        same("specific force points", "up", "up" if z < 0 else "down"),
        number("gyro bias, rad/s", 0.0, turn, SIGMAS * noise.gyro_bias_rad_s + 1e-3),
        _at_most("noise of accel, m/s^2", LOUDER * noise.accel_noise_m_s2, found.accel_noise_m_s2),
        _at_most("noise of gyro, rad/s", LOUDER * noise.gyro_noise_rad_s, found.gyro_noise_rad_s),
        number("roll by gravity, deg", math.degrees(roll), math.degrees(found.roll_rad), math.degrees(ATTITUDE_RAD)),
        number("pitch by gravity, deg", math.degrees(pitch), math.degrees(found.pitch_rad), math.degrees(ATTITUDE_RAD)),
    ]


def line_check(profile: BetaflightProfile, interval_p95_s: float) -> Check:
    """Check that the line sustains a reply for each beat of the sticks, as a flight requires."""
    return _at_most("reply interval with sticks, p95 ms", 1e3 * LATE / profile.stick_hz, 1e3 * interval_p95_s)


def _at_most(name: str, limit: float, found: float) -> Check:
    verdict = CheckVerdict.PASS if found <= limit else CheckVerdict.DIFFERS
    return Check(name, f"<= {limit:.3g}", f"{found:.3g}", verdict)
