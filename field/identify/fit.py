"""System identification by regression: thrust curve, drag, delay and lags of the `rates` model, with 95 % bounds.

Linear least squares inside, a search over delay and lag outside (`regression.py`). A fit is tested before it is told:
whether the logs agree, and how it predicts what it has not seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gate_racer.field.identify import regression
from gate_racer.field.identify.regression import AXES, AxisRate, BatteryUse, Estimate, Evidence, Prediction, Timing
from gate_racer.field.identify.signals import STEP_S, Signals, around
from gate_racer.link.logs.samples import SignalError
from gate_racer.pilot.guidance.exciter import Manoeuvres
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Mask
from gate_racer.vehicle.statistics import Z95

# m/s^2, prior on a knot's deviation from the line between its neighbours, where only their mean is excited.
BEND_M_S2 = 1.0
HELD_OUT = 0.2  # share of each log's valid samples, its last, that is held out for validation (chosen)
MOVING_M_S = 3.0  # m/s, speed above which drag is excited (chosen)
LEAST_S = 1.0  # s of flight, least for a fit (chosen)
# Least slope of thrust over throttle, as a share of thrust over throttle: idling motors lower it little.
LEAST_RISE = 0.3
LITTLE = 0.1  # range of the throttle over which no slope is known well (chosen)
HOVER_M_S2 = 0.3  # m/s^2, standard deviation of the force in a flight that only hovers (chosen)
RISE_M_S2 = 1e-3  # m/s^2, least step of a thrust curve between knots, so that it is invertible
# Axial speed over the root of thrust, sqrt(m), about that of the rotors' own flow, beyond which a curve over throttle alone
# may fail; it is tested by the ratio of residuals with and without such samples (chosen).
INFLOW, INFLOW_GAIN = 3.5, 1.15
# m/s^2, force that is none of the model at least, and in standard deviations; median of the absolute standard normal.
IMPACT_M_S2, IMPACT_SIGMAS, MEDIAN = 1.0, 8.0, 0.6745
LATE = 2  # samples by which a command may act sooner or later than it is logged: one of 60 Hz (derived)
ERRS = 0.15  # -, share of its thrust by which a model may err besides, as in the rotors' own flow (chosen)
USUAL_S = 0.02, 0.04  # s, typical delay and lag
EXPONENT_SIGMA = 0.15  # -, prior of the battery's exponent about 1 (chosen)
TELLS = 4.0  # change of twice the log-likelihood over that, from which the logs tell of the exponent
INDEPENDENT_S = 1.0  # s of a log that count as one sample (chosen)


@dataclass(frozen=True)
class LogScale:
    """Thrust of one log over the common curve."""

    log: str
    scale: Estimate


@dataclass(frozen=True)
class Fit:
    """Fit to logs. None for a parameter that was not excited."""

    throttle: tuple[float, ...]  # knots within the range of the logs
    thrust_m_s2: tuple[Estimate, ...]
    drag_linear_1_s: tuple[Estimate, Estimate, Estimate] | None
    drag_quadratic_1_m: Estimate | None
    timing: Timing
    rates: tuple[AxisRate, ...]  # of roll, pitch and yaw
    battery: BatteryUse | None  # the throttle's reference voltage, None where it does not matter or is unknown
    scales: tuple[LogScale, ...]  # of several logs
    spread: float  # standard deviation of the thrust between logs, -, with which the bounds are widened
    residual_m_s2: float  # rms on all samples
    predicted: Prediction  # of stretches that were held out
    notes: tuple[str, ...]  # what is not believed, and why
    t: Array  # (M,) s
    predicted_b: Array  # (M, 3) m/s^2
    measured_b: Array  # (M, 3)
    wanted: tuple[str, ...]  # manoeuvres that would excite the rest


@dataclass(frozen=True)
class _Thrust:
    """A solution: knots, parameters x (K,) and what leads to them."""

    logs: list[Signals]
    knots: Array
    drags: int
    delay: float
    lag: float
    A: Array  # (3 M, K)
    f: Array  # (3 M,)
    weight: Array  # (3 M,)
    used: Mask  # (3 M,)
    smooth: Array  # (P, K)
    x: Array

    @property
    def residual(self) -> Array:
        """Weighted residual of what was used."""
        return ((self.A @ self.x - self.f) * self.weight)[self.used]


def identify(logs: list[Signals], linear_drag: bool = False) -> Fit:
    """Fit all logs at once; with `linear_drag`, drag proportional to the speed as well, per body axis.

    Raises SignalError if the logs hold too little flight, or the throttle varies too little for a fit.
    """
    _require_flight(logs, np.concatenate([log.valid for log in logs]))
    battery = regression.battery_of(logs)
    logs, struck = _without_impacts(logs, battery, linear_drag)
    if battery is not None:
        battery = _exponent(logs, battery)
        logs = [battery.seen(log) for log in logs]
    logs, fast = _without_inflow(logs, linear_drag)
    told = [_evidence([log], linear_drag) for log in logs if _tells(log)] or [_evidence(logs, linear_drag)]
    step = max(log.command_step_s for log in logs)
    timing = regression.profile(told, step if step > STEP_S else 0.0)
    delay, lag = timing.delay.value, timing.lag.value
    fit = _solve(logs, delay, lag, linear_drag)
    unseen = [_last(log.valid) for log in logs]
    seen = [replace(log, valid=log.valid & ~late) for log, late in zip(logs, unseen, strict=True)]
    early = _solve(seen, delay, lag, linear_drag)
    half = _bounds(fit)
    scales, spread = _agreement(fit)
    widths = np.hypot(half, Z95 * spread * np.where(np.arange(len(half)) < len(fit.knots), fit.x, 0.0))
    n, drags = len(fit.knots), fit.drags
    each = [Estimate(float(v), float(h)) for v, h in zip(fit.x, widths, strict=True)]
    _require_rise(fit.knots, each[:n], logs[0])
    axes = tuple(regression.fit_rate(logs, axis, timing.delay) for axis in range(3))
    predicted = regression.predict(logs, unseen, early.knots, early.x, delay, lag)
    return Fit(
        throttle=tuple(fit.knots.tolist()),
        thrust_m_s2=_rising(each[:n]),
        drag_linear_1_s=(each[n], each[n + 1], each[n + 2]) if drags == 4 else None,
        drag_quadratic_1_m=each[-1] if drags else None,
        timing=timing,
        rates=axes,
        battery=battery,
        scales=scales,
        spread=spread,
        residual_m_s2=float(np.sqrt(np.mean((fit.A @ fit.x - fit.f)[fit.used] ** 2))),
        predicted=predicted,
        notes=(*struck, *fast, *_doubts(timing, predicted), *(axis.fault for axis in axes if axis.fault)),
        t=np.concatenate([log.t for log in logs]),
        predicted_b=(fit.A @ fit.x).reshape(-1, 3),
        measured_b=fit.f.reshape(-1, 3),
        wanted=_wanted(fit.knots, drags, axes, timing),
    )


def _require_flight(logs: list[Signals], used: Mask) -> None:
    """Raise SignalError where a mask of the logs' samples (M,) holds hardly any flight."""
    if (seconds := STEP_S * int(used.sum())) < LEAST_S:
        held = f"holds {seconds:.1f} s of flight that can be used"
        raise SignalError(f"{logs[0].source}: {held}, but {LEAST_S:g} s is needed")


def _tells(log: Signals) -> bool:
    """Return whether a log alone holds enough flight for a fit."""
    knots = regression.reached([log])
    return len(knots) > 0 and STEP_S * int(regression.explained([log], knots).sum()) > LEAST_S


def _drags(logs: list[Signals], linear: bool) -> int:
    """Return the number of drag parameters that the logs excite."""
    moving = max(float(np.linalg.norm(log.v_b[log.valid], axis=1).max(initial=0.0)) for log in logs)
    return (3 if linear else 0) + 1 if moving > MOVING_M_S else 0


def _knots(logs: list[Signals]) -> Array:
    """Return the knots that the logs reach. Raises SignalError if the throttle does not vary."""
    knots = regression.reached(logs)
    if not len(knots):
        raise SignalError(f"{logs[0].source}: the throttle stays near one value, so no thrust curve can be fitted")
    return knots


def _evidence(logs: list[Signals], linear: bool) -> Evidence:
    """Return what logs tell of delay and lag, with one set of parameters."""
    knots, drags = _knots(logs), _drags(logs, linear)
    used = regression.explained(logs, knots)
    _require_flight(logs, used)
    f, t = np.concatenate([log.force_b[:, 2] for log in logs])[used], regression.times(logs)[used]
    dragged = regression.force_rows(logs, knots, 0.0, regression.LAGS_S[0], drags)[:, 2, len(knots) :]
    shares = [regression.hats(log.throttle, knots) for log in logs]

    @lru_cache(maxsize=1)  # a grid tries all delays with one lag
    def slow(lag: float) -> list[Array]:
        return [regression.filtered(share, lag) for share in shares]

    def rows(delay: float, lag: float) -> Array:
        return np.hstack([np.concatenate([-regression.delayed(share, delay) for share in slow(lag)]), dragged])

    def residual(delay: float, lag: float, weight: Array) -> Array:
        A, b = rows(delay, lag)[used] * weight[:, None], f * weight
        return A @ np.linalg.lstsq(A.T @ A, A.T @ b, rcond=None)[0] - b

    even = np.ones(len(f))
    start = regression.least(lambda delay, lag: float(np.mean(residual(delay, lag, even) ** 2)), every=3)
    A = rows(*start)
    weight = regression.weights((A @ regression.solved(A[used], f))[:, None])[used, 0]
    return Evidence(
        logs[0].source,
        lambda delay, lag: float(np.mean(residual(delay, lag, weight) ** 2)),
        regression.independent_samples(residual(*start, weight), t),
        STEP_S * len(f),
    )


def _first(logs: list[Signals], linear: bool) -> _Thrust:
    """Return a solution of all logs for the delay and lag that fit them best."""
    return _solve(logs, *regression.least(_evidence(logs, linear).misfit, every=3), linear)


def _solve(logs: list[Signals], delay: float, lag: float, linear: bool) -> _Thrust:
    """Return the weighted solution for delay and lag."""
    knots, drags = _knots(logs), _drags(logs, linear)
    used = np.repeat(regression.explained(logs, knots), 3)
    A = regression.force_rows(logs, knots, delay, lag, drags).reshape(-1, len(knots) + drags)
    f = np.concatenate([log.force_b for log in logs]).reshape(-1)
    weight = regression.weights((A @ regression.solved(A[used], f[used])).reshape(-1, 3)).reshape(-1)
    A_w, f_w = (A * weight[:, None])[used], (f * weight)[used]
    smooth = regression.straight(knots, A.shape[1]) * float(np.std(A_w @ regression.solved(A_w, f_w) - f_w)) / BEND_M_S2
    x = regression.solved(np.vstack([A_w, smooth]), np.concatenate([f_w, np.zeros(len(smooth))]))
    return _Thrust(logs, knots, drags, delay, lag, A, f, weight, used, smooth, x)


def _exponent(logs: list[Signals], battery: BatteryUse) -> BatteryUse:
    """Return how the battery acts: its exponent is assumed to be about 1 unless the logs tell better."""
    from scipy.optimize import minimize_scalar  # slow to load

    independent = STEP_S / INDEPENDENT_S * sum(int(log.valid.sum()) for log in logs)
    v_b = np.concatenate([log.v_b[log.valid] for log in logs])
    drag = np.linalg.norm(v_b, axis=1) * v_b[:, 2]
    f = np.concatenate([-log.force_b[log.valid, 2] for log in logs])

    def misfit(exponent: float) -> float:
        seen = [replace(battery, exponent=exponent).seen(log) for log in logs]
        u = np.concatenate([regression.lagged(log.throttle, *USUAL_S)[log.valid] for log in seen])
        # A thrust that rises at least in proportion, since in hover a free curve could be flat, and the drag.
        A = np.column_stack([u, u**2, u**3, -np.ones(len(u)), drag])
        return independent * float(np.log(np.mean((A @ regression.solved(A, f) - f) ** 2)))

    if np.ptp([misfit(1 + off) for off in (-EXPONENT_SIGMA, 0.0, EXPONENT_SIGMA)]) < TELLS:
        return battery
    how = {"bounds": regression.EXPONENTS, "method": "bounded", "options": {"xatol": 0.01}}
    found = minimize_scalar(lambda n: misfit(n) + ((n - 1) / EXPONENT_SIGMA) ** 2, **how)
    return replace(battery, exponent=round(float(found.x), 2), assumed=False)


def _without_impacts(logs: list[Signals], battery: BatteryUse | None, linear: bool) -> tuple[list[Signals], list[str]]:
    """Return the logs without measured forces that no throttle explains, with the bouncing after them, and a note on that."""
    if all(log.velocity_only for log in logs):
        return logs, []
    fit = _first([battery.seen(log) for log in logs] if battery else logs, linear)
    model, measured = (fit.A @ fit.x).reshape(-1, 3), fit.f.reshape(-1, 3)
    residual = np.abs((model - measured) * fit.weight.reshape(-1, 3)).max(axis=1)
    limit = max(IMPACT_M_S2, IMPACT_SIGMAS * float(np.median(residual[fit.used[::3]])) / MEDIAN)
    kept, cut, own = list[Signals](), 0, np.cumsum([len(log.t) for log in logs])[:-1]
    for log, expected, force_b in zip(logs, np.split(model, own), np.split(measured, own), strict=True):
        # A force of the model at a moment nearby is none of an impact.
        near = sliding_window_view(np.pad(expected, ((LATE, LATE), (0, 0)), mode="edge"), 2 * LATE + 1, axis=0)
        off = np.maximum(near.min(axis=-1) - force_b, force_b - near.max(axis=-1)).max(axis=1)
        beyond = off - ERRS * np.linalg.norm(expected, axis=1) > limit
        struck = log.valid & around(log.valid & beyond) & (not log.velocity_only)
        kept.append(replace(log, valid=log.valid & ~struck))
        cut += int(struck.sum())
    told = f"{STEP_S * cut:.1f} s were cut around contact and impacts, forces that no throttle explains"
    return kept, [told] if cut else []


def _without_inflow(logs: list[Signals], linear: bool) -> tuple[list[Signals], list[str]]:
    """Return the logs without fast axial flight, if no curve over throttle alone explains it, and a note on that."""
    if max(float(np.abs(log.v_b[log.valid, 2]).max(initial=0.0)) for log in logs) < MOVING_M_S:
        return logs, []
    fit = _first(logs, linear)
    slow = []
    for log in logs:
        thrust = np.interp(log.throttle, fit.knots, fit.x[: len(fit.knots)])
        fast = around(log.valid & (np.abs(log.v_b[:, 2]) > INFLOW * np.sqrt(np.maximum(thrust, 1.0))))
        slow.append(replace(log, valid=log.valid & ~fast))
    share = sum(int(log.valid.sum()) for log in slow) / max(sum(int(log.valid.sum()) for log in logs), 1)
    try:
        again = _first(slow, linear)
    except SignalError:
        return logs, []
    kept = np.repeat(np.concatenate([log.valid for log in slow]), 3) & fit.used
    before = float(np.sqrt(np.mean(((fit.A @ fit.x - fit.f) * fit.weight)[kept] ** 2)))
    after = float(np.sqrt(np.mean(again.residual**2)))
    if before < INFLOW_GAIN * after or len(again.knots) < len(fit.knots):
        return logs, []
    why = "climbing or sinking fast against its throttle, its thrust is another"
    return slow, [f"{1 - share:.0%} of the flight was cut: {why} (residual {before:.2f} -> {after:.2f} m/s^2)"]


def _last(valid: Mask) -> Mask:
    """Return the last HELD_OUT of the valid samples (N,)."""
    at = np.flatnonzero(valid)
    late = np.zeros(len(valid), bool)
    late[at[round((1 - HELD_OUT) * len(at)) :]] = True
    return late


def _bounds(fit: _Thrust) -> Array:
    """Return the 95 % half widths (K,) of the parameters."""
    n = len(fit.x)

    def predicted(delay: float, lag: float) -> Array:
        return regression.force_rows(fit.logs, fit.knots, delay, lag, fit.drags).reshape(-1, n) @ fit.x

    by_timing = [slope * fit.weight for slope in regression.slopes(predicted, fit.delay, fit.lag)]
    J = np.column_stack([fit.A * fit.weight[:, None], *by_timing])[fit.used]
    smooth, t = np.pad(fit.smooth, ((0, 0), (0, 2))), np.repeat(regression.times(fit.logs), 3)[fit.used]
    half = regression.half_widths(J, fit.residual, t, smooth)[:n]
    # What fits any data, and no residual shows: scales of force and length, and bias.
    power = np.array([0.0] * len(fit.knots) + [1.0] * max(fit.drags - 1, 0) + [2.0] * min(fit.drags, 1))  # of the speed
    scale = np.hypot(regression.FORCE_SCALE, regression.LENGTH_SCALE * power)
    unseen = np.hypot(scale * fit.x, np.where(power == 0, regression.FORCE_BIAS, 0.0))
    return np.hypot(half, Z95 * unseen)


def _agreement(fit: _Thrust) -> tuple[tuple[LogScale, ...], float]:
    """Return each log's thrust over the common one, and their spread beyond what their bounds explain."""
    if len(fit.logs) < 2:
        return (), 0.0
    thrust = (fit.A[:, : len(fit.knots)] @ fit.x[: len(fit.knots)]).reshape(-1, 3)[:, 2] * fit.weight[2::3]
    residual, used = ((fit.f - fit.A @ fit.x) * fit.weight)[2::3], fit.used[2::3]
    found, begin = [], 0
    for log in fit.logs:
        own = slice(begin, begin := begin + len(log.t))
        T, r, kept = thrust[own], residual[own], used[own]
        if kept.sum() < 1 / STEP_S:
            continue
        off = float(T[kept] @ r[kept] / max(float(T[kept] @ T[kept]), 1e-12))
        half = regression.half_widths(T[kept, None], (r - off * T)[kept], log.t[kept])[0]
        found.append(LogScale(log.source, Estimate(1 + off, float(np.hypot(half, Z95 * regression.LOG_SCALE)))))
    offs = np.array([one.scale.value - 1 for one in found])
    known = np.array([one.scale.half_width / Z95 for one in found])
    beyond = float(np.mean(offs**2 - known**2)) if np.isfinite(known).all() and len(found) > 1 else 0.0
    return tuple(found), float(np.sqrt(max(0.0, beyond)))


def _doubts(timing: Timing, predicted: Prediction) -> list[str]:
    """Return which logs exclude the common delay, and whether a velocity that stays predicts better than the model."""
    delay, doubts = timing.delay.value, []
    if others := [f"{log} {own.bounds}" for log, own in timing.by_log if not own.low <= delay <= own.high]:
        doubts.append(f"the logs disagree on the delay: {'; '.join(others)}")
    if predicted.starts and predicted.velocity_m_s > predicted.steady_velocity_m_s:
        told = "a constant velocity predicts what was held out better"
        doubts.append(f"{told}: this model does not fit, or the flight only hovers")
    return doubts


def _require_rise(knots: Array, curve: list[Estimate], log: Signals) -> None:
    """Raise SignalError for a thrust that falls or hardly rises with the throttle, as no motor's does, with the likely cause.

    It has to rise over the whole range, and over no half of it may the bounds exclude that it does, as where wings carry.
    """
    whole = float(knots[-1] - knots[0])
    for a, b in sorted(combinations(range(len(knots)), 2), key=lambda ends: knots[ends[0]] - knots[ends[1]]):
        first, last, width = curve[a], curve[b], float(knots[b] - knots[a])
        span_m_s2 = last.value - first.value
        least_m_s2 = LEAST_RISE * max(last.value, GRAVITY) * width / knots[b]
        may_rise = span_m_s2 + np.hypot(first.half_width, last.half_width) > least_m_s2
        if width >= whole / 2 and span_m_s2 < least_m_s2 and (width == whole or not may_rise):
            break
    else:
        return
    fall = "falls" if span_m_s2 < -least_m_s2 else "hardly rises"
    if whole < LITTLE:
        cause = "the throttle varies too little; fly throttle steps"
    elif may_rise:
        cause = "its bounds leave open whether it rises; fly throttle steps"
    elif float(np.std(log.force_b[log.valid, 2])) < HOVER_M_S2:
        cause = "the flight only hovers; fly throttle steps"
    elif log.velocity_only and fall == "falls":
        cause = "v_z must be positive downwards (NED), and the throttle not reversed"
    elif float(np.median(log.force_b[log.valid, 2])) > 0:
        cause = "the specific force must be that of body axes FRD, about -9.8 m/s^2 along z at rest"
    else:
        cause = "the throttle must be what these motors were commanded, by one clock, and vibration not spoil the force"
    raise SignalError(
        f"{log.source}: thrust {fall} from {first.value:.1f} m/s^2 at throttle {knots[a]:.2f} to {last.value:.1f} m/s^2 at"
        f" {knots[b]:.2f}: {cause}"
    )


def _rising(curve: list[Estimate]) -> tuple[Estimate, ...]:
    """Return the curve with no knot below the one before, by at least RISE_M_S2 above it, so that it has an inverse."""
    rising: list[Estimate] = []
    for one in curve:
        lowest = rising[-1].value + RISE_M_S2 if rising else 0.0
        shift = max(0.0, lowest - one.value)
        rising.append(Estimate(one.value + shift, one.half_width + shift))
    return tuple(rising)


def _wanted(knots: Array, drags: int, rates: Sequence[AxisRate], timing: Timing) -> tuple[str, ...]:
    """Return the manoeuvres that would excite the remaining parameters, and how to fly them."""
    throttles = tuple(u for u in regression.KNOTS.tolist() if np.abs(knots - u).min() > regression.NEAR)
    axes = tuple(axis for axis, rate in enumerate(rates) if rate.gain is None)
    wanted = [f"throttle held near {', '.join(f'{u:g}' for u in throttles)}"] if throttles else []
    if not (timing.delay.known and timing.lag.known):
        wanted.append("throttle steps of a quarter of its range, each held for 0.5 s, for delay and lag")
    wanted += [f"{AXES[axis]} rate pulses" for axis in axes]
    wanted += [] if drags else [f"flight above {MOVING_M_S:g} m/s, for the drag"]
    manoeuvres = Manoeuvres(throttles, axes, not drags)
    return (*wanted, f"to be flown by: excite --set excite.manoeuvres={manoeuvres}") if wanted else ()
