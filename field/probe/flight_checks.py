"""Comparison of a flight's findings with a wire profile and a vehicle: table lines, and the profile with measured values."""

import math
from collections.abc import Sequence
from dataclasses import replace

from gate_racer.field.probe.check import Check, CheckVerdict, number
from gate_racer.field.probe.flight_fit import AxisSigns, Findings
from gate_racer.field.probe.flight_script import LEGACY, RAD_S
from gate_racer.link.profile import Profile, RateGain
from gate_racer.vehicle.vehicle import Vehicle

GAIN, GROWTH = 0.05, 0.02  # tolerances: relative; s/rad
HOVER, DELAY_S, LAG = 0.05, 0.008, 0.25  # tolerances: relative, absolute, relative
SLOPE, TILT_DEG, SHIFT_S = 0.1, 1.5, 0.008  # tolerances: relative, deg, s
BANK = 0.3  # -, relative tolerance of the bank angle (chosen)


def flight_checks(found: Findings, profile: Profile, vehicle: Vehicle, so_far: Profile) -> tuple[list[Check], Profile]:
    """Return all checks against a profile, and the profile `so_far` extended by the flight."""
    checks = [
        _signs("signs of the gyro", profile.signs.gyro, found.gyro),
        _signs("signs of ATTITUDE's angles", profile.signs.euler, found.euler),
        _signs("signs of ATTITUDE's rates", profile.signs.euler_rates, found.euler_rates),
    ]
    signs = replace(
        so_far.signs,
        gyro=_filled(found.gyro, so_far.signs.gyro),
        euler=_filled(found.euler, so_far.signs.euler),
        euler_rates=_filled(found.euler_rates, so_far.signs.euler_rates),
    )
    if found.odometry_q is not None:
        checks.append(_signs("signs of ODOMETRY's quaternion", profile.signs.odometry_q, found.odometry_q))
        checks.append(_signs("signs of ODOMETRY's rates", profile.signs.odometry_rates, found.odometry_rates))
        rates = _filled(found.odometry_rates, so_far.signs.odometry_rates)
        signs = replace(signs, odometry_q=found.odometry_q, odometry_rates=rates)
    result = replace(so_far, signs=signs)
    gains = {mask: found.gain(mask) for mask in (LEGACY, RAD_S)}
    for mask, measured in gains.items():
        expected = profile.gain(mask == RAD_S)
        verdict = CheckVerdict.UNKNOWN if measured is None else _agree(expected, measured)
        checks.append(Check(f"rates by mask {mask}", _gain(expected), _gain(measured), verdict))
        if measured is not None and verdict is CheckVerdict.DIFFERS:
            gain = _rounded(measured)
            result = replace(result, rates_rad_s=gain) if mask == RAD_S else replace(result, rates=gain)
    bit = _bit(gains[LEGACY], gains[RAD_S])
    best = None if bit is None else float(_mask(bit))
    checks.append(number("mask with rates nearer to rad/s", _mask(profile.rates_rad_s_bit), best, 0.0))
    if bit is not None:
        result = replace(result, rates_rad_s_bit=bit)
    if found.fresh is not None:
        hz = found.fresh * so_far.imu_hz
        checks.append(number("IMU samples that differ, Hz", profile.imu_fresh_hz, hz, 0.1 * profile.imu_fresh_hz))
        if checks[-1].verdict is CheckVerdict.DIFFERS:
            result = replace(result, imu_fresh_hz=round(hz, 1))
    checks += _camera(found, profile, vehicle)
    if found.video_shift_s is not None and abs(found.video_shift_s) > SHIFT_S:
        result = replace(result, video_latency_s=round(max(0.0, profile.video_latency_s - found.video_shift_s), 4))
    return [*checks, *_vehicle(found, vehicle)], result


def _camera(found: Findings, profile: Profile, vehicle: Vehicle) -> list[Check]:
    exposed = None if found.video_shift_s is None else profile.video_latency_s - found.video_shift_s
    return [
        number("camera rotation over gyro rotation", 1.0, found.camera_slope, SLOPE),
        number("camera tilt, deg", vehicle.camera.tilt_deg, found.camera_tilt_deg, TILT_DEG),
        number("exposure to complete image, s", profile.video_latency_s, exposed, SHIFT_S),
    ]


def _vehicle(found: Findings, vehicle: Vehicle) -> list[Check]:
    """Compare parameters of the vehicle's file; `identify-vehicle` measures them more accurately."""
    hover = vehicle.throttle.throttle(9.80665)
    delays = [fit.delay_s for fit in found.rates if fit is not None]
    delay = sum(delays) / len(delays) if delays else None
    thrust = found.thrust
    checks = [
        number("hover throttle", hover, found.hover, HOVER * hover),
        number("command delay, s", vehicle.command_delay_s, delay, DELAY_S),
    ]
    for name, lag, fit in zip(("roll", "pitch", "yaw"), vehicle.rate_lag_s, found.rates, strict=True):
        checks.append(number(f"{name} lag, s", lag, fit.lag_s if fit else None, LAG * lag))
    checks.append(number("thrust lag, s", vehicle.thrust_lag_s, thrust.lag_s if thrust else None, 0.01))
    bank = found.bank
    if bank is None:
        result, verdict = "not tried", CheckVerdict.UNKNOWN
    elif not math.isfinite(bank):
        result, verdict = "spins", CheckVerdict.DIFFERS
    else:
        good = abs(bank - 1) < BANK
        result, verdict = f"{bank:.2f} of the commanded bank", CheckVerdict.PASS if good else CheckVerdict.DIFFERS
    return [*checks, Check("attitude mode (mask 7)", "follows", result, verdict)]


def _signs(name: str, expected: Sequence[float], measured: Sequence[float | None]) -> Check:
    text = " ".join("?" if sign is None else f"{sign:+.0f}"[0] for sign in measured)
    wrong = any(sign is not None and sign != mine for sign, mine in zip(measured, expected, strict=True))
    verdict = CheckVerdict.DIFFERS if wrong else CheckVerdict.UNKNOWN if None in measured else CheckVerdict.PASS
    return Check(name, " ".join(f"{sign:+.0f}"[0] for sign in expected), text, verdict)


def _filled(measured: AxisSigns, known: Sequence[float]) -> tuple[float, float, float]:
    """Return the measured signs, and known ones in place of the missing."""
    a, b, c = (float(mine if sign is None else sign) for sign, mine in zip(measured, known, strict=True))
    return a, b, c


def _agree(expected: RateGain, measured: RateGain) -> CheckVerdict:
    near = all(abs(a / b - 1) < GAIN for a, b in zip(measured.gain, expected.gain, strict=True))
    same = near and measured.sign == expected.sign and abs(measured.growth_s - expected.growth_s) < GROWTH
    return CheckVerdict.PASS if same else CheckVerdict.DIFFERS


def _gain(gain: RateGain | None) -> str:
    if gain is None:
        return "-"
    parts = " ".join(f"{s * g:+.3g}" for s, g in zip(gain.sign, gain.gain, strict=True))
    return parts + (f", grows {gain.growth_s:.3f}" if gain.growth_s else "")


def _rounded(gain: RateGain) -> RateGain:
    x, y, z = (round(g, 3) for g in gain.gain)
    return RateGain(gain.sign, (x, y, z), round(gain.growth_s, 4))


def _bit(legacy: RateGain | None, rad_s: RateGain | None) -> bool | None:
    """Return whether bit 16 brings rates closer to rad/s; False if it changes nothing."""
    if legacy is None or rad_s is None:
        return None if legacy is None and rad_s is None else rad_s is not None
    return _oddness(rad_s) + 0.03 < _oddness(legacy)


def _oddness(gain: RateGain) -> float:
    return max(abs(math.log(g)) for g in gain.gain) + gain.growth_s


def _mask(bit: bool) -> int:
    return RAD_S if bit else LEGACY
