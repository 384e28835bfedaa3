"""System identification by regression: thrust curve, drag, delay and lags of the `rates` model, with 95 % half widths.

    f_b = -lag_tau[ c(u(t - delay)) ] e_z - (diag(d) + k |v|) v_b          specific force, body FRD
    omega_b = lag_tau_i[ g_i omega_cmd(t - delay) ]                        per axis

c(u) is piecewise linear in knots, so that force is linear in knots, d and k, and rates in g: linear least squares inside,
a search over delay and lags outside (variable projection: Golub and Pereyra, 1973). Bounds are those of `bounds.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gate_racer.field.identify.bounds import FORCE_BIAS, FORCE_SCALE, LENGTH_SCALE, RATE_SCALE, half_widths, widened
from gate_racer.field.identify.signals import STEP_S, Signals
from gate_racer.link.logs.rows import SignalError
from gate_racer.pilot.guidance.exciter import THROTTLES, Manoeuvres
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Mask

KNOTS = THROTTLES  # knots of the thrust curve
KNOT_SAMPLES, KNOT_LEAST = 12.0, 5.0  # sum of weights required for a well-known knot, and to fit a knot at all
# m/s^2, prior on a knot's deviation from the line between its neighbours, where only their mean is excited.
BEND_M_S2 = 1.0
# s, every fourth block of this length is held out; shorter than a throttle step, so that each step is fitted.
BLOCK_S = 0.1
HOLD_OUT = 4  # -, one block in so many is held out for validation (chosen)
DELAYS_S = np.arange(0.0, 0.13, 0.01)  # s, grid of the command delay for the first guess; the real builds have 0.04 s
LAG_MIN_S, LAG_MAX_S = 2e-3, 0.3  # s, range of the lags (chosen)
MOVING_RAD_S = 0.05  # rad/s, commanded rate above which an axis is excited (chosen)
MOVING_M_S = 3.0  # m/s, speed above which drag is excited (chosen)
DIFFERENCE_S = 5e-4  # s, step of derivatives with respect to delay and lags (chosen)
LOGS_APART_S = 1e6  # s between logs on one time axis, so that none shares a block with another
AFTER_S = 0.3  # s for which a command may still act: delay and lags (chosen)
# Least slope of thrust over throttle, as a share of thrust over throttle: idling motors lower it little.
LEAST_RISE = 0.3
RISE_M_S2 = 1e-3  # m/s^2, least step of a thrust curve between knots, so that it is invertible
STAMP_S, FORCE_M_S2 = 4e-3, 0.1  # standard deviations of stamps, s, and of forces, m/s^2
ANYWHERE = (-1.0, -1.0)  # no start: search from a grid


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % half width."""

    value: float
    half_width: float


@dataclass(frozen=True)
class Fit:
    """Fit to logs. None for a parameter that was not excited."""

    throttle: tuple[float, ...]  # knots within the range of the logs
    thrust_m_s2: tuple[Estimate, ...]
    drag_linear_1_s: tuple[Estimate, Estimate, Estimate] | None
    drag_quadratic_1_m: Estimate | None
    delay_s: float
    thrust_lag_s: float
    rate_gain: tuple[Estimate | None, Estimate | None, Estimate | None]
    rate_lag_s: tuple[float | None, float | None, float | None]
    residual_m_s2: float  # rms on the fitted samples
    hold_out_m_s2: float  # rms on the held-out samples
    t: Array  # (M,) s
    predicted_b: Array  # (M, 3) m/s^2
    measured_b: Array  # (M, 3)
    wanted: tuple[str, ...]  # manoeuvres that would excite the rest


def identify(logs: list[Signals], linear_drag: bool = False) -> Fit:
    """Fit all logs at once.

    Args:
        linear_drag: also fit drag proportional to the speed, per body axis.

    Raises:
        SignalError: the throttle varies too little for a fit.
    """
    valid = [log.valid for log in logs]
    knots = _reached(logs, valid, KNOT_LEAST)
    if len(knots) < 2:
        raise SignalError(f"{logs[0].source}: the throttle stays near one value, so no thrust curve can be fitted")
    valid = [_explained(log, knots) for log in logs]
    held = [mask & _block(log) for log, mask in zip(logs, valid, strict=True)]
    used = [mask & ~_block(log) for log, mask in zip(logs, valid, strict=True)]
    moving = max(float(np.linalg.norm(log.v_b[mask], axis=1).max()) for log, mask in zip(logs, used, strict=True))
    drags = (3 if linear_drag else 0) + 1 if moving > MOVING_M_S else 0

    def force(delay: float, lag: float) -> tuple[Array, Array]:
        """Return design matrix (3 M, knots + drags) and measured forces (3 M,) of all samples."""
        parts = [_force_rows(log, knots, delay, lag, drags) for log in logs]
        return np.vstack([A for A, _ in parts]), np.concatenate([f for _, f in parts])

    mask, unseen, whole = (np.repeat(np.concatenate(masks), 3) for masks in (used, held, valid))

    delay, lag = _delay_and_lag(force, mask, np.ones(int(mask.sum())), ANYWHERE)
    A, f = force(delay, lag)
    weight = _weights(A @ _solve(A[mask], f[mask]))
    delay, lag = _delay_and_lag(force, mask, weight[mask], (delay, lag))
    A, f = force(delay, lag)
    A_w, f_w = A * weight[:, None], f * weight
    smooth = _straight(knots, A.shape[1]) * (
        float(np.std((A_w @ _solve(A_w[mask], f_w[mask]) - f_w)[mask])) / BEND_M_S2
    )

    def fitted(rows: np.ndarray) -> Array:
        return _solve(np.vstack([A_w[rows], smooth]), np.concatenate([f_w[rows], np.zeros(len(smooth))]))

    held_out = (A @ fitted(mask) - f)[unseen]  # residual on the held-out samples
    x = fitted(whole)
    residual = A @ x - f
    J = np.column_stack([A_w, *(slope * weight for slope in _slopes(lambda d, lag: force(d, lag)[0] @ x, delay, lag))])
    t = np.concatenate([np.repeat(log.t + LOGS_APART_S * k, 3) for k, log in enumerate(logs)])
    smooth = np.pad(smooth, ((0, 0), (0, 2)))
    unseen_sigma = _unseen(x, len(knots), drags)
    half = widened(half_widths(J[whole], (residual * weight)[whole], t[whole], smooth)[: len(x)], unseen_sigma)
    curve = [Estimate(float(v), float(h)) for v, h in zip(x[: len(knots)], half, strict=False)]
    _require_rise(knots, curve, logs[0])
    gains, lags = _rates(logs, valid, delay)
    return Fit(
        throttle=tuple(knots),
        thrust_m_s2=_rising(curve),
        drag_linear_1_s=_three(x, half, len(knots)) if drags == 4 else None,
        drag_quadratic_1_m=Estimate(float(x[-1]), float(half[-1])) if drags else None,
        delay_s=delay,
        thrust_lag_s=lag,
        rate_gain=gains,
        rate_lag_s=lags,
        residual_m_s2=float(np.sqrt((residual[whole] ** 2).mean())),
        hold_out_m_s2=float(np.sqrt((held_out**2).mean())) if unseen.any() else float("nan"),
        t=np.concatenate([log.t for log in logs]),
        predicted_b=(A @ x).reshape(-1, 3),
        measured_b=f.reshape(-1, 3),
        wanted=_wanted(_reached(logs, valid, KNOT_SAMPLES), drags, gains),
    )


def _require_rise(knots: Array, curve: list[Estimate], log: Signals) -> None:
    """Raise SignalError for a thrust that falls or hardly rises with the throttle, as no motor's does, with the likely cause."""
    first, last = curve[0], curve[-1]
    span_m_s2 = last.value - first.value
    least_m_s2 = LEAST_RISE * max(last.value, GRAVITY) * (knots[-1] - knots[0]) / knots[-1]
    if span_m_s2 >= least_m_s2:
        return
    fall = "falls" if span_m_s2 < 0 else "hardly rises"
    if log.velocity_only:
        cause = "v_z must be positive downwards (NED)"
    elif float(np.median(log.force_b[log.valid, 2])) > 0:
        cause = "the specific force must be that of body axes FRD, about -9.8 m/s^2 along z at rest"
    else:
        cause = "the throttle must be what these motors were commanded, by the clock of the motion"
    raise SignalError(
        f"{log.source}: thrust {fall} from {first.value:.1f} m/s^2 at throttle {knots[0]:.2f} to {last.value:.1f} m/s^2 at"
        f" {knots[-1]:.2f}: {cause}"
    )


def _rising(curve: list[Estimate]) -> tuple[Estimate, ...]:
    """Return the curve with no knot below the one before, by at least RISE_M_S2 above it, so that it has an inverse."""
    rising: list[Estimate] = []
    for one in curve:
        least = rising[-1].value + RISE_M_S2 if rising else 0.0
        shift = max(0.0, least - one.value)
        rising.append(Estimate(one.value + shift, one.half_width + shift))
    return tuple(rising)


def _delay_and_lag(
    force: Callable[[float, float], tuple[Array, Array]], mask: Mask, weight: Array, start: tuple[float, float]
) -> tuple[float, float]:
    """Return delay and lag, s, with the least weighted misfit on the masked samples; the linear parameters are eliminated."""
    from scipy.optimize import minimize  # slow to load, and most users of a `Fit` make none

    def misfit(parameters: Array) -> float:
        A, f = force(*_bounded(parameters))
        A, f = A[mask] * weight[:, None], f[mask] * weight
        return float(f @ f - (A.T @ f) @ np.linalg.lstsq(A.T @ A, A.T @ f, rcond=None)[0]) / len(f)

    if start == ANYWHERE:
        start = min(((d, lag) for d in DELAYS_S for lag in (0.01, 0.03, 0.06)), key=lambda p: misfit(np.array(p)))
    best = minimize(misfit, np.array(start), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6})
    return _bounded(best.x)


def lagged(u: Array, delay: float, lag: float) -> Array:
    """Return u (N, ...) on the uniform time grid, delayed by `delay` s and filtered by a first-order lag of `lag` s."""
    from scipy.signal import lfilter  # slow to load

    shift = delay / STEP_S
    whole, part = int(shift), shift - int(shift)
    late = np.concatenate([np.repeat(u[:1], whole + 1, axis=0), u])[: len(u) + 1]
    late = (1 - part) * late[1:] + part * late[:-1]
    decay = np.exp(-STEP_S / lag)
    start = decay * late[:1]
    return lfilter([1 - decay], [1.0, -decay], late, axis=0, zi=start)[0]


def hats(u: Array, knots: Array) -> Array:
    """Return the weights (N, K) of the knots for piecewise linear interpolation at u (N,), constant beyond the ends."""
    return np.column_stack([np.interp(u, knots, row) for row in np.eye(len(knots))])


def _force_rows(log: Signals, knots: Array, delay: float, lag: float, drags: int) -> tuple[Array, Array]:
    A = np.zeros((len(log.t), 3, len(knots) + drags))
    A[:, 2, : len(knots)] = -lagged(hats(log.throttle, knots), delay, lag)
    if drags == 4:
        A[:, range(3), len(knots) + np.arange(3)] = -log.v_b
    if drags:
        A[:, :, -1] = -np.linalg.norm(log.v_b, axis=1)[:, None] * log.v_b
    return A.reshape(-1, A.shape[2]), log.force_b.reshape(-1)


def _solve(A: Array, f: Array) -> Array:
    """Solve least squares with nonnegative thrust and drag."""
    from scipy.optimize import lsq_linear  # slow to load

    return lsq_linear(A, f, bounds=(0.0, np.inf), method="bvls").x


def _weights(predicted: Array) -> Array:
    """Return the weight of each row: stamps err by some ms, which increases the error where the force changes fast."""
    slope: Array = np.gradient(predicted.reshape(-1, 3), STEP_S, axis=0)  # type: ignore[assignment]
    slope = slope.reshape(-1)
    return 1.0 / np.sqrt(1.0 + (STAMP_S * slope / FORCE_M_S2) ** 2)


def _straight(knots: Array, columns: int) -> Array:
    """Return (K - 2, columns): deviation of each inner knot of the curve from the line between its neighbours."""
    rows = np.zeros((max(0, len(knots) - 2), columns))
    for k, (a, b, c) in enumerate(zip(knots, knots[1:], knots[2:], strict=False)):
        rows[k, k : k + 3] = -(c - b) / (c - a), 1.0, -(b - a) / (c - a)
    return rows


def _slopes(predict: Callable[[float, float], Array], delay: float, lag: float) -> tuple[Array, Array]:
    """Return the derivatives (N,) of a prediction with respect to delay and lag."""
    here, step = predict(delay, lag), DIFFERENCE_S
    return (predict(delay + step, lag) - here) / step, (predict(delay, lag + step) - here) / step


def _unseen(x: Array, knots: int, drags: int) -> Array:
    """Return standard deviations (K,) of thrust and drags by what fits any data: scales of force and length, and bias."""
    power = np.concatenate([np.zeros(knots), np.ones(max(drags - 1, 0)), np.full(min(drags, 1), 2.0)])  # of the speed
    bias = np.where(power == 0, FORCE_BIAS, 0.0)
    return np.sqrt((FORCE_SCALE * x) ** 2 + (LENGTH_SCALE * power * x) ** 2 + bias**2)


def _rates(
    logs: list[Signals], used: list[np.ndarray], delay: float
) -> tuple[tuple[Estimate | None, Estimate | None, Estimate | None], tuple[float | None, float | None, float | None]]:
    """Return gains and lags of the three axes, where rates were commanded and measured."""
    from scipy.optimize import minimize  # slow to load

    gains: list[Estimate | None] = []
    lags: list[float | None] = []
    for axis in range(3):
        pairs = [(np.nan_to_num(log.omega_cmd[:, axis]), log.omega_b[:, axis]) for log in logs]
        measurable = [
            ~np.isnan(log.omega_cmd[:, axis]) & ~np.isnan(log.omega_b[:, axis]) & m
            for log, m in zip(logs, used, strict=True)
        ]
        if sum(int((np.abs(c[ok]) > MOVING_RAD_S).sum()) for (c, _), ok in zip(pairs, measurable, strict=True)) < 50:
            gains.append(None)
            lags.append(None)
            continue
        measured = np.concatenate([w[ok] for (_, w), ok in zip(pairs, measurable, strict=True)])

        def follow(
            delay: float,
            lag: float,
            pairs: list[tuple[Array, Array]] = pairs,
            measurable: list[np.ndarray] = measurable,
        ) -> Array:
            return np.concatenate([lagged(c, delay, lag)[ok] for (c, _), ok in zip(pairs, measurable, strict=True)])

        def misfit(
            parameters: Array, follow: Callable[[float, float], Array] = follow, measured: Array = measured
        ) -> float:
            c = follow(delay, float(np.clip(parameters[0], LAG_MIN_S, LAG_MAX_S)))
            return float(((c * float(c @ measured) / max(float(c @ c), 1e-12) - measured) ** 2).mean())

        lag = float(np.clip(minimize(misfit, [0.03], method="Nelder-Mead").x[0], LAG_MIN_S, LAG_MAX_S))
        c = follow(delay, lag)
        gain = float(c @ measured / (c @ c))
        J = np.column_stack([c, *(gain * slope for slope in _slopes(follow, delay, lag))])
        t = np.concatenate(
            [log.t[ok] + LOGS_APART_S * k for k, (log, ok) in enumerate(zip(logs, measurable, strict=True))]
        )
        half = widened(half_widths(J, c * gain - measured, t)[:1], np.array([RATE_SCALE * gain]))
        gains.append(Estimate(gain, float(half[0])))
        lags.append(lag)
    (g0, g1, g2), (l0, l1, l2) = gains, lags
    return (g0, g1, g2), (l0, l1, l2)


def _bounded(parameters: Array) -> tuple[float, float]:
    return float(np.clip(parameters[0], 0.0, DELAYS_S[-1])), float(np.clip(parameters[1], LAG_MIN_S, LAG_MAX_S))


def _three(x: Array, half: Array, at: int) -> tuple[Estimate, Estimate, Estimate]:
    one, two, three = (Estimate(float(x[at + i]), float(half[at + i])) for i in range(3))
    return one, two, three


def _reached(logs: list[Signals], used: list[np.ndarray], least: float) -> Array:
    """Return the knots at which the logs hold enough samples."""
    weight = sum(hats(log.throttle[m], np.array(KNOTS)).sum(axis=0) for log, m in zip(logs, used, strict=True))
    return np.array(KNOTS)[np.asarray(weight) >= least]


def _explained(log: Signals, knots: Array) -> np.ndarray:
    """Return the mask of valid samples, except those still affected by a throttle beyond all knots."""
    beyond = (log.throttle < knots[0]) | (log.throttle > knots[-1])
    after = np.convolve(beyond, np.ones(round(AFTER_S / STEP_S)))[: len(beyond)] > 0
    return log.valid & ~after


def _block(log: Signals) -> np.ndarray:
    """Return the mask of samples held out for validation."""
    return ((log.t - log.t[0]) // BLOCK_S) % HOLD_OUT == HOLD_OUT - 1


def _wanted(knots: Array, drags: int, gains: tuple[Estimate | None, ...]) -> tuple[str, ...]:
    """Return the manoeuvres that would excite the remaining parameters, and how to fly them."""
    throttles = tuple(u for u in KNOTS if u not in knots)
    axes = tuple(axis for axis, gain in enumerate(gains) if gain is None)
    if not (throttles or axes or not drags):
        return ()
    wanted = [f"throttle held near {u:g}" for u in throttles]
    wanted += [f"{('roll', 'pitch', 'yaw')[axis]} rate pulses" for axis in axes]
    wanted += [] if drags else [f"flight above {MOVING_M_S:g} m/s, for the drag"]
    return *wanted, f"to be flown by: excite --set excite.manoeuvres={Manoeuvres(throttles, axes, not drags)}"
