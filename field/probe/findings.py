"""Findings of a probe flight, and their comparison with a wire profile and a vehicle. Wire units.

Signs are found by correlation of independent sensors, gains, lags and delays by least squares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as choices

import numpy as np

from gate_racer.field.probe.check import Check, CheckVerdict, number
from gate_racer.field.probe.flight import LEGACY, RAD_S
from gate_racer.field.probe.motion import Fitted, Notes, RestMean, Series, commands
from gate_racer.link.profile import Profile, RateGain
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, conjugate, exp, from_euler, log, normalised, product, to_euler
from gate_racer.vehicle.vehicle import Vehicle

KINDS = (LEGACY, RAD_S)
SETTLED_S = 0.3  # s after the change to attitude mode for which rates are not used: the transient (chosen)
TELLING = 0.5  # -, correlation above which a sign is accepted (chosen)
MOVED_RAD, MOVED_RAD_S = 0.03, 0.1  # standard deviation below which a signal gives no sign
GROWS = 0.015  # s/rad, growth of a gain with the rate below which it counts as constant (chosen)
POORLY = 0.3  # -, share of unexplained motion above which the fit of an axis is rejected (chosen)
SHIFTS_S = np.arange(-0.06, 0.0601, 0.001)  # s, grid of time shifts between camera and gyro (chosen)
AxisSigns = tuple[float | None, float | None, float | None]


@dataclass(frozen=True)
class Findings:
    """Findings of a probe flight. None where the flight gives no result."""

    gyro: AxisSigns  # sign of the wire relative to body FRD
    # Per axis, gains of `KINDS`, gyro on the wire over command.
    rates: tuple[Fitted | None, Fitted | None, Fitted | None]
    thrust: Fitted | None  # near hover, m/s^2 per throttle
    hover: float | None
    camera_slope: float | None  # rotation by the camera over that by the gyro
    camera_tilt_deg: float | None
    video_shift_s: float | None  # exposure later than nominal
    euler: AxisSigns
    euler_rates: AxisSigns
    odometry_q: tuple[float, float, float, float] | None
    odometry_rates: AxisSigns
    fresh: float | None  # share of IMU samples with new values
    bank: float | None

    def gain(self, kind: int) -> RateGain | None:
        """Return the rate gain of one kind of command; None where an axis is missing."""
        k, pairs = KINDS.index(kind), list(zip(self.rates, self.gyro, strict=True))
        if any(fit is None or sign is None or abs(fit.gain[k]) < 0.1 for fit, sign in pairs):
            return None
        values = [fit.gain[k] * sign for fit, sign in pairs if fit is not None and sign is not None]
        sign, size = [math.copysign(1.0, v) for v in values], [abs(v) for v in values]
        growth = max(fit.growth[k] for fit in self.rates if fit is not None)
        return RateGain((sign[0], sign[1], sign[2]), (size[0], size[1], size[2]), growth)


def findings(series: Series, rest: RestMean, notes: Notes, camera: Camera) -> Findings:
    """Return all findings of a probe flight."""
    gyro, nothing = _three(list(notes.signs), tuple(why or None for why in notes.why)), (None, None, None)
    found = Findings(gyro, nothing, None, None, None, None, None, nothing, nothing, None, nothing, None, notes.bank)
    begin, end = series.marks.get("flight", (0.0, 0.0))
    t, accel, rates = series.between(begin, min(end, series.imu[-1][0] if series.imu else 0.0))
    if len(t) < 100:
        return found
    rates = rates - rest.gyro
    used = np.ones(len(t), bool)
    if "attitude mode" in series.marks:
        a, b = series.marks["attitude mode"]
        used &= (t < a) | (t > b + SETTLED_S)
    repeated = (np.diff(accel, axis=0) == 0).all(axis=1) & (np.diff(rates, axis=0) == 0).all(axis=1)
    fresh = np.concatenate([[True], ~repeated])
    used &= fresh
    found = replace(found, hover=notes.hover, fresh=float(fresh.mean()))
    found = replace(found, rates=_rates(series, t, rates, used), thrust=_thrust(series, t, accel, used))
    shift, slope, tilt = _camera(series, t[fresh], rates[fresh], notes, camera)
    found = replace(found, video_shift_s=shift, camera_slope=slope, camera_tilt_deg=tilt)
    true = rates[fresh] * np.array(notes.signs)
    euler, euler_rates = _attitude(series, rest, t[fresh], true, gyro)
    q, odometry_rates = _odometry(series, t[fresh], true, gyro)
    return replace(found, euler=euler, euler_rates=euler_rates, odometry_q=q, odometry_rates=odometry_rates)


def _rates(
    series: Series, t: Array, rates: Array, used: np.ndarray
) -> tuple[Fitted | None, Fitted | None, Fitted | None]:
    """Fit each axis: growth of the gains first, from all axes together; then gains, delay and lag with that growth."""
    commanded = [commands(series.sent, t, axis, KINDS) for axis in range(3)]
    free = [one.fit(rates[:, axis], used, None) for axis, one in enumerate(commanded)]
    growth = []
    for k in range(len(KINDS)):
        weighted = [
            (f.growth[k], f.gain[k] ** 2)
            for f in free
            if f is not None and f.unexplained < POORLY and abs(f.gain[k]) > 0.1
        ]
        mean = sum(g * w for g, w in weighted) / sum(w for _, w in weighted) if weighted else 0.0
        growth.append(mean if mean > GROWS else 0.0)
    fits = [one.fit(rates[:, axis], used, tuple(growth)) for axis, one in enumerate(commanded)]
    x, y, z = (fit if fit is not None and fit.unexplained < POORLY else None for fit in fits)
    return x, y, z


def _thrust(series: Series, t: Array, accel: Array, used: np.ndarray) -> Fitted | None:
    """Fit slope of thrust over throttle, delay and lag. The whole curve requires held throttles, see identify-vehicle."""
    throttle = commands(series.sent, t, None, ())
    middle = float(np.median(throttle.u))
    centred = replace(throttle, u=throttle.u - middle)
    force = -accel[:, 2] - float(np.median(-accel[used, 2]))
    fit = centred.fit(force, used, (0.0,))
    return fit if fit is not None and fit.unexplained < POORLY else None


def _camera(
    series: Series, t: Array, rates: Array, notes: Notes, camera: Camera
) -> tuple[float | None, float | None, float | None]:
    """Return time shift, slope and tilt (deg) that best align the camera's rotations with the gyro's."""
    if len(series.turns) < 30 or not all(notes.why):
        return None, None, None
    spans = np.array([row[:2] for row in series.turns])
    seen = np.array([row[2] for row in series.turns])
    angle = np.vstack([np.zeros(3), np.cumsum(np.diff(t)[:, None] * 0.5 * (rates[1:] + rates[:-1]), axis=0)])
    angle = angle * np.array(notes.signs)
    inside = (spans[:, 0] > t[0] + 0.1) & (spans[:, 1] < t[-1] - 0.1)
    spans, seen = spans[inside], seen[inside]

    def felt(shift: float) -> Array:
        ends = [np.column_stack([np.interp(side + shift, t, a) for a in angle.T]) for side in spans.T]
        return ends[1] - ends[0]

    def misfit(shift: float) -> float:
        return float(np.abs(felt(shift) - seen).sum())

    shift = min(SHIFTS_S, key=misfit)
    x = felt(shift)
    # A tilt beyond the nominal one mixes roll and yaw: seen = x + tilt (e_y cross x).
    lever = np.column_stack([x[:, 2], np.zeros(len(x)), -x[:, 0]])
    residual = seen - x
    kept = np.linalg.norm(residual, axis=1) < 4 * float(np.median(np.linalg.norm(residual, axis=1))) + 1e-3
    power = float((lever[kept] ** 2).sum())
    turn = float((lever[kept] * residual[kept]).sum()) / power if power > 1e-3 else None
    slope = float((x[kept] * seen[kept]).sum() / (x[kept] ** 2).sum())
    tilt = None if turn is None else camera.tilt_deg - math.degrees(turn)
    return float(shift), slope, tilt


def _sign(reported: Array, true: Array, least: float) -> float | None:
    """Return the sign of the correlation of two signals (N,); None if they hardly vary, or are uncorrelated."""
    a, b = reported - reported.mean(), true - true.mean()
    if b.std() < least or a.std() < least / 3:
        return None
    agreement = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    return math.copysign(1.0, agreement) if abs(agreement) > TELLING else None


def _three(signs: Sequence[float | None], known: Sequence[object]) -> AxisSigns:
    """Return the signs, None where `known` is None."""
    a, b, c = (sign if other is not None else None for sign, other in zip(signs, known, strict=True))
    return a, b, c


def _attitude(series: Series, rest: RestMean, t: Array, true: Array, gyro: AxisSigns) -> tuple[AxisSigns, AxisSigns]:
    """Compare ATTITUDE with the attitude integrated from gravity at rest and the gyro."""
    rows = [row for row in series.attitude if t[0] <= row[0] <= t[-1]]
    if len(rows) < 50:
        return (None, None, None), (None, None, None)
    q, euler = from_euler(*rest.tilt, 0.0), []
    for k in range(len(t)):
        q = normalised(product(q, exp((t[k] - t[k - 1]) * 0.5 * (true[k] + true[k - 1])))) if k else q
        euler.append(to_euler(q))
    at = np.array([row[0] for row in rows])
    reported, rates = (np.array([row[k] for row in rows]) for k in (1, 2))
    flown, real = np.unwrap(np.array(euler), axis=0), np.unwrap(reported, axis=0)
    angles = [_sign(real[:, i], np.interp(at, t, flown[:, i]), MOVED_RAD) for i in range(3)]
    turning = [_sign(rates[:, i], np.interp(at, t, true[:, i]), MOVED_RAD_S) for i in range(3)]
    whole = gyro if all(sign is not None for sign in gyro) else (None, gyro[1], None)
    return _three(angles, whole), _three(turning, gyro)


def _odometry(
    series: Series, t: Array, true: Array, gyro: AxisSigns
) -> tuple[tuple[float, float, float, float] | None, AxisSigns]:
    """Return the signs of the quaternion under which it rotates as the gyro, and the signs of its rates."""
    rows = [row for row in series.odometry if t[0] <= row[0] <= t[-1]]
    if len(rows) < 50 or None in gyro:
        return None, (None, None, None)
    at = np.array([row[0] for row in rows])
    w = np.column_stack([np.interp(at, t, column) for column in true.T])
    signs = _three([_sign(np.array([row[2][i] for row in rows]), w[:, i], MOVED_RAD_S) for i in range(3)], gyro)
    best = None
    for flips in choices((1.0, -1.0), repeat=3):
        qs = [row[1] * np.array([1.0, *flips]) for row in rows]
        turned = np.array([log(normalised(product(conjugate(a), b))) for a, b in zip(qs, qs[1:], strict=False)])
        steps = 0.5 * (w[1:] + w[:-1]) * np.diff(at)[:, None]
        misfit = float(((turned - steps) ** 2).sum() / max(float((steps**2).sum()), 1e-9))
        if best is None or misfit < best[0]:
            best = misfit, (1.0, flips[0], flips[1], flips[2])
    assert best is not None
    return (best[1] if best[0] < POORLY else None), signs


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
            x, y, z = (round(g, 3) for g in measured.gain)
            gain = RateGain(measured.sign, (x, y, z), round(measured.growth_s, 4))
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
    exposed = None if found.video_shift_s is None else profile.video_latency_s - found.video_shift_s
    checks += [
        number("camera rotation over gyro rotation", 1.0, found.camera_slope, SLOPE),
        number("camera tilt, deg", vehicle.camera.tilt_deg, found.camera_tilt_deg, TILT_DEG),
        number("exposure to complete image, s", profile.video_latency_s, exposed, SHIFT_S),
    ]
    if found.video_shift_s is not None and abs(found.video_shift_s) > SHIFT_S:
        result = replace(result, video_latency_s=round(max(0.0, profile.video_latency_s - found.video_shift_s), 4))
    return [*checks, *_vehicle(found, vehicle)], result


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


def _bit(legacy: RateGain | None, rad_s: RateGain | None) -> bool | None:
    """Return whether bit 16 brings rates closer to rad/s; False if it changes nothing."""
    if legacy is None or rad_s is None:
        return None if legacy is None and rad_s is None else rad_s is not None
    return _oddness(rad_s) + 0.03 < _oddness(legacy)


def _oddness(gain: RateGain) -> float:
    return max(abs(math.log(g)) for g in gain.gain) + gain.growth_s


def _mask(bit: bool) -> int:
    return RAD_S if bit else LEGACY
