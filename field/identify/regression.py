"""The regression of specific force on thrust and drag, for given delay and lag: rows, weights, solution, and 95 % bounds.

    f_b = -lag_tau[ c(u(t - delay)) ] e_z - (diag(d) + k |v|) v_b          specific force, body FRD

c(u) is piecewise linear in knots, so that force is linear in knots, d and k.

The battery is an input: motors see the duty times the voltage, so that thrust is a curve over throttle * (U / U_ref)^n. Body
rates have a gain and a lag per axis, omega_b = lag_tau_i[ g_i omega_cmd(t - delay) ]. A fit is tested by what it predicts of
flight that it has not seen: one step ahead, and half a second in open loop.

Bounds are honest where residuals are correlated and where none shows the error. Residuals of logs are correlated over
seconds, since the velocity and the attitude in them are estimates: white-noise formulas promise too much. The scores of
whole blocks are summed instead (the sandwich of Liang and Zeger, Biometrika 73, 1986), for several lengths of block, of
which the widest bound holds. Scales of the sensors fit any data and are added as known by class.

Delay and lag are bounded by profile, by all values that explain the data nearly as well as the best. The misfit over a
grid of both, with the linear parameters eliminated (variable projection: Golub and Pereyra, 1973), is compared with the
least by the likelihood ratio of as many samples as are independent. Logs tell on their own, each with a thrust of its
own, and what they tell is added.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.identify.signals import AFTER_S, STEP_S, Signals
from gate_racer.pilot.guidance.exciter import THROTTLES
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import Array, Mask
from gate_racer.vehicle.statistics import Z95

BLOCKS_S = (1.0, 2.0, 4.0)  # s, lengths of a block: errors of estimated velocities last about as long (chosen)
LOG_S = 1e6  # s, a block of which holds a whole log: what a model misses lasts as long as the flight
FEWEST, FEWEST_LOGS = 3, 6  # blocks, and logs, from which a covariance can be estimated
QUANTILE = 0.975  # -, two-sided 95 %
# Standard deviations of what no residual shows: of a consumer IMU's scales, -, as in `sim/worlds/unknown.yaml`; of the scale of
# lengths, and so of velocities, in a flight without a map, - (measured: drag errs by 1.5 % rms in five explorations of VQ1); of
# the accelerometer's bias along the thrust, m/s^2, as by 0.3 deg between pad and body axes.
FORCE_SCALE, RATE_SCALE, LENGTH_SCALE, FORCE_BIAS = 0.005, 0.005, 0.008, 0.05
LOG_SCALE = FORCE_SCALE  # of the thrust in one log against another: temperature and offset of the same accelerometer


def half_widths(J: Array, residual: Array, t: Array, prior: Array | None = None) -> Array:
    """Return the 95 % half widths (K,) by the residuals of a least-squares fit.

    Args:
        J: Jacobian (N, K) of the prediction, nonlinear parameters included, weighted as the residuals.
        residual: (N,).
        t: s, time of each residual (N,); those of different logs are far apart.
        prior: further rows (P, K) of the fit without residuals of their own.
    """
    from scipy.special import stdtrit  # slow to load

    information = J.T @ J if prior is None else J.T @ J + prior.T @ prior
    inverse, widths = np.linalg.pinv(information), [np.full(J.shape[1], np.inf)]
    for length in (*BLOCKS_S, LOG_S):
        _, block = np.unique(np.floor(t / length), return_inverse=True)
        n = int(block.max()) + 1
        if n < (FEWEST if length < LOG_S else FEWEST_LOGS):
            continue
        scores = np.zeros((n, J.shape[1]))
        np.add.at(scores, block, J * residual[:, None])
        variance = np.diag(inverse @ scores.T @ scores @ inverse) * n / (n - 1)
        widths.append(float(stdtrit(n - 1, QUANTILE)) * np.sqrt(variance))
    return np.max(widths[1:], axis=0) if len(widths) > 1 else widths[0]


DELAYS_S = np.linspace(0.0, 0.12, 25)  # s, of a command; the real builds have 0.04 s
# s, range of lags (chosen)
LAGS_S = np.array([2e-3, 5e-3, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.075, 0.1, 0.15, 0.2, 0.3])
WIDEST_S = 0.07  # s, interval above which nothing is known of the delay (chosen): the range of what vehicles have

Misfit = Callable[[float, float], float]  # mean square of the residual for delay and lag, s


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % bounds."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether the bounds say anything."""
        return self.high - self.low < WIDEST_S

    @property
    def bounds(self) -> str:
        """Text of the bounds."""
        return f"{self.low * 1e3:.0f} to {self.high * 1e3:.0f} ms"

    def __str__(self) -> str:
        known = f"{self.value * 1e3:.0f} ms, {self.bounds}"
        return known if self.known else f"not identifiable from these logs ({self.bounds} fit alike)"


@dataclass(frozen=True)
class Timing:
    """Delay and first-order lag of the thrust, and their sum, which is better known than either."""

    delay: Interval
    lag: Interval
    total: Interval
    by_log: tuple[tuple[str, Interval], ...]  # the delay by each log alone


@dataclass(frozen=True)
class Evidence:
    """What one log tells: its misfit, with parameters of its own, and how many independent samples that is."""

    source: str
    misfit: Misfit
    independent: float
    seconds: float

    def against(self, delay: float, lag: float) -> float:
        """Return twice the negative logarithm of the likelihood of delay and lag, but for a constant."""
        return self.independent * float(np.log(max(self.misfit(delay, lag), 1e-12)))


def least(against: Misfit, grid: Array | None = None, every: int = 1) -> tuple[float, float]:
    """Return delay and lag, s, for which a function of both is least.

    Its values at DELAYS_S and LAGS_S are those of `grid`, or else evaluated, at one in `every` of each.
    """
    from scipy.optimize import minimize  # slow to load

    delays, lags = DELAYS_S[::every], LAGS_S[::every]
    values = on_grid(against, delays, lags) if grid is None else grid
    i, j = np.unravel_index(int(values.argmin()), values.shape)
    limits = [(DELAYS_S[0], DELAYS_S[-1]), (LAGS_S[0], LAGS_S[-1])]
    how = {"method": "Nelder-Mead", "bounds": limits, "options": {"xatol": 1e-4, "fatol": 1e-9}}
    delay, lag = minimize(lambda x: against(*x), [delays[i], lags[j]], **how).x.tolist()
    return delay, lag


def on_grid(against: Misfit, delays: Array = DELAYS_S, lags: Array = LAGS_S) -> Array:
    """Return the values (D, L) of a function of delay and lag, evaluated lag by lag."""
    return np.array([[against(delay, lag) for delay in delays] for lag in lags]).T


def profile(logs: Sequence[Evidence], resolution_s: float) -> Timing:
    """Return delay and lag that fit all logs best, with their bounds, and what each log alone tells of the delay.

    `resolution_s`: time between two logged commands, s, to which no delay is known.
    """

    def against(delay: float, lag: float) -> float:
        return sum(log.against(delay, lag) for log in logs)

    grids = [on_grid(log.against) for log in logs]
    delay, lag = least(against, np.sum(grids, axis=0))
    delays, lags = np.meshgrid(DELAYS_S, LAGS_S, indexing="ij")
    room = float(np.diff(DELAYS_S)[0]) / 2 + resolution_s / 2

    def interval(value: float, values: Array, fits: Mask) -> Interval:
        near = values[fits].tolist()
        return Interval(value, max(0.0, min([value, *near]) - room), max([value, *near]) + room)

    alone = [delays[grid == grid.min()][0] for grid in grids]
    own = [interval(d, delays, _alike(grid, [log])) for d, grid, log in zip(alone, grids, logs, strict=True)]
    fits = _alike(np.sum(grids, axis=0), logs, against(delay, lag))
    values = ((delay, delays), (lag, lags), (delay + lag, delays + lags))
    one, two, both = (interval(value, axis, fits) for value, axis in values)
    return Timing(one, two, both, tuple(zip((log.source for log in logs), own, strict=True)))


def _alike(grid: Array, logs: Sequence[Evidence], best: float = np.inf) -> Mask:
    """Return where (D, L) the logs are explained about as well as by the best, by the likelihood ratio."""
    from scipy.special import stdtrit  # slow to load

    blocks = max(2.0, sum(log.seconds for log in logs) / BLOCKS_S[0])
    return np.asarray(grid - min(float(grid.min()), best) < float(stdtrit(blocks - 1, QUANTILE)) ** 2)


def independent_samples(residual: Array, t: Array) -> float:
    """Return how many of the residuals (N,) at times t (N,) s count as independent: white ones all, by sums over blocks."""
    white = float(residual @ residual)
    sums = []
    for length in BLOCKS_S:
        _, block = np.unique(np.floor(t / length), return_inverse=True)
        sums.append(float((np.bincount(block, residual) ** 2).sum()))
    return len(residual) * white / max(white, *sums, 1e-12)


KNOTS = np.array(THROTTLES)  # of the thrust curve
SPAN = 0.002  # range of the throttle below which it stays near one value (chosen)
NEAR = 0.04  # throttle within which a knot is near an end of the curve, so that no slope between them is known well (chosen)
FEW = 5.0  # sum of weights to fit a knot within the range, with its neighbours on one line (chosen)
# Samples beyond each end of the curve at most, no more than while a command acts, and their share (chosen).
MOST_BEYOND, SHARE_BEYOND = 30, 0.02
BEYOND = 0.05  # throttle beyond the ends of the curve, up to which that goes on (chosen)
DIFFERENCE_S = 5e-4  # s, step of derivatives with respect to delay and lags (chosen)
STAMP_S, FORCE_M_S2 = 4e-3, 0.1  # standard deviations of stamps, s, and of forces, m/s^2


def lagged(u: Array, delay: float, lag: float, step_s: float = STEP_S) -> Array:
    """Return u (N, ...), uniform in time, delayed by `delay` s and filtered by a first-order lag of `lag` s."""
    return delayed(filtered(u, lag, step_s), delay, step_s)


def delayed(u: Array, delay: float, step_s: float = STEP_S) -> Array:
    """Return u (N, ...), uniform in time, delayed by `delay` s; before its first value it had that one."""
    shift = delay / step_s
    whole, part = int(shift), shift - int(shift)
    late = np.concatenate([np.repeat(u[:1], whole + 1, axis=0), u])[: len(u) + 1]
    return (1 - part) * late[1:] + part * late[:-1]


def filtered(u: Array, lag: float, step_s: float = STEP_S) -> Array:
    """Return u (N, ...), uniform in time, filtered by a first-order lag of `lag` s; before its first value it had that one."""
    from scipy.signal import lfilter  # slow to load

    decay = np.exp(-step_s / lag)
    return lfilter([1 - decay], [1.0, -decay], u, axis=0, zi=decay * u[:1])[0]


def hats(u: Array, knots: Array) -> Array:
    """Return the weights (N, K) of the knots for piecewise linear interpolation at u (N,), which goes on beyond the ends."""
    k = np.clip(np.searchsorted(knots, u, side="right") - 1, 0, len(knots) - 2)
    share, rows = (u - knots[k]) / (knots[k + 1] - knots[k]), np.arange(len(u))
    weights = np.zeros((len(u), len(knots)))
    weights[rows, k], weights[rows, k + 1] = 1 - share, share
    return weights


def reached(logs: list[Signals]) -> Array:
    """Return the knots of KNOTS with any samples, and the ends of the range, beyond which only a few samples lie.

    Empty if the throttle stays near one value.
    """
    u = np.sort(np.concatenate([log.throttle[log.valid] for log in logs]))
    beyond = min(MOST_BEYOND, round(SHARE_BEYOND * len(u)))
    if not len(u) or u[-1 - beyond] - u[beyond] < SPAN:
        return np.zeros(0)
    low, high = u[beyond], u[-1 - beyond]
    inner = KNOTS[(hats(u, KNOTS).sum(axis=0) >= FEW) & (low + NEAR < KNOTS) & (high - NEAR > KNOTS)]
    return np.array([low, *inner, high])


def explained(logs: Sequence[Signals], knots: Array) -> Mask:
    """Return the mask (N,) of valid samples of all logs, except those still affected by a throttle far beyond all knots."""
    masks = []
    for log in logs:
        beyond = (log.throttle < knots[0] - BEYOND) | (log.throttle > knots[-1] + BEYOND)
        masks.append(log.valid & ~(np.convolve(beyond, np.ones(round(AFTER_S / STEP_S)))[: len(beyond)] > 0))
    return np.concatenate(masks)


def force_rows(logs: Sequence[Signals], knots: Array, delay: float, lag: float, drags: int) -> Array:
    """Return the design matrix (N, 3, K) of the force in all logs.

    `drags` is 0, 1 (quadratic) or 4 (linear by axis, quadratic).
    """
    v_b, n = np.concatenate([log.v_b for log in logs]), len(knots)
    A = np.zeros((len(v_b), 3, n + drags))
    A[:, 2, :n] = np.concatenate([-lagged(hats(log.throttle, knots), delay, lag) for log in logs])
    if drags == 4:
        A[:, range(3), n + np.arange(3)] = -v_b
    if drags:
        A[:, :, -1] = -np.linalg.norm(v_b, axis=1)[:, None] * v_b
    return A


def solved(A: Array, f: Array) -> Array:
    """Solve least squares with nonnegative thrust and drag."""
    from scipy.optimize import lsq_linear  # slow to load

    return lsq_linear(A, f, bounds=(0.0, np.inf), method="bvls").x


def weights(predicted: Array) -> Array:
    """Return the weight of each force (N, 3): stamps err by some ms, which counts where the force changes fast."""
    slope = np.asarray(np.gradient(predicted, STEP_S, axis=0))
    return 1.0 / np.sqrt(1.0 + (STAMP_S * slope / FORCE_M_S2) ** 2)


def straight(knots: Array, columns: int) -> Array:
    """Return (K - 2, columns): deviation of each inner knot of the curve from the line between its neighbours."""
    rows = np.zeros((max(0, len(knots) - 2), columns))
    for k, (a, b, c) in enumerate(zip(knots, knots[1:], knots[2:], strict=False)):
        rows[k, k : k + 3] = -(c - b) / (c - a), 1.0, -(b - a) / (c - a)
    return rows


def slopes(predict: Callable[[float, float], Array], delay: float, lag: float) -> tuple[Array, Array]:
    """Return the derivatives (N,) of a prediction with respect to delay and lag."""
    here, step = predict(delay, lag), DIFFERENCE_S
    return (predict(delay + step, lag) - here) / step, (predict(delay, lag + step) - here) / step


def times(logs: list[Signals]) -> Array:
    """Return the times (N,) s of all samples of all logs on one axis."""
    return np.concatenate([log.t - log.t[0] + LOG_S * k for k, log in enumerate(logs)])


CELL_V, FULL_V = 3.7, 4.25  # V of a cell: nominal, and most
VARIES = 1.03  # -, ratio of the largest to the smallest voltage in flight above which it matters (chosen)
EXPONENTS = 0.0, 2.5  # range of the exponent; 0 is that of a controller that compensates for the voltage


@dataclass(frozen=True)
class BatteryUse:
    """Reference voltage of a thrust curve, and the exponent of the voltage in the throttle that the motors see."""

    reference_v: float
    exponent: float = 1.0
    assumed: bool = True  # since the logs do not tell the exponent

    def seen(self, log: Signals) -> Signals:
        """Return the log with the throttle that the motors see at the reference voltage."""
        return replace(log, throttle=log.throttle * (log.voltage / self.reference_v) ** self.exponent)


def battery_of(logs: list[Signals]) -> BatteryUse | None:
    """Return the nominal voltage of the battery; None where a log lacks it, or it hardly varies."""
    flown = [log.voltage[log.valid] for log in logs if log.valid.any()]
    volts: Array = np.concatenate(flown) if flown else np.zeros(0)
    if not len(volts) or not np.isfinite(volts).all() or volts.min() <= 0:
        return None
    low, high = np.percentile(volts, [2, 98])
    if high < VARIES * low:
        return None
    most = max(float(log.voltage[log.trusted].max()) for log in logs)
    return BatteryUse(float(CELL_V * np.ceil(most / FULL_V)))


AXES = ("roll", "pitch", "yaw")
MOVING_RAD_S = 0.05  # rad/s, commanded rate above which an axis is excited (chosen)
LEAST_SAMPLES = 50  # excited samples, least number (chosen)
EXPLAINED = 0.7  # -, share of a rate's mean square that the command must explain; in hover noise is more of it (chosen)


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % half width."""

    value: float
    half_width: float

    def __str__(self) -> str:
        if not np.isfinite(self.half_width):
            return f"{self.value:.4g} without a bound, since the log is short,"
        return f"{self.value:.4g} +- {self.half_width:.2g}"


@dataclass(frozen=True)
class AxisRate:
    """Gain and lag (s) of one axis, None where it was not excited; `fault` says why they are not believed."""

    gain: Estimate | None = None
    lag_s: Estimate | None = None
    fault: str = ""


def fit_rate(logs: list[Signals], axis: int, late: Interval) -> AxisRate:
    """Return gain and lag of an axis, where rates were commanded and measured; `late` is the delay of commands."""
    from scipy.optimize import minimize_scalar  # slow to load

    delay = late.value
    used: list[Mask] = [~np.isnan(log.omega_cmd[:, axis]) & ~np.isnan(log.omega_b[:, axis]) & log.valid for log in logs]
    commands = [np.nan_to_num(log.omega_cmd[:, axis]) for log in logs]
    if sum(int((np.abs(c[ok]) > MOVING_RAD_S).sum()) for c, ok in zip(commands, used, strict=True)) < LEAST_SAMPLES:
        return AxisRate()
    measured = np.concatenate([log.omega_b[ok, axis] for log, ok in zip(logs, used, strict=True)])

    def follow(delay: float, lag: float) -> Array:
        return np.concatenate([lagged(c, delay, lag)[ok] for c, ok in zip(commands, used, strict=True)])

    def misfit(log_lag: float) -> float:
        c = follow(delay, float(np.exp(log_lag)))
        return float(((c * float(c @ measured) / max(float(c @ c), 1e-12) - measured) ** 2).mean())

    lag = float(np.exp(minimize_scalar(misfit, bounds=np.log(LAGS_S[[0, -1]]), method="bounded").x))
    c = follow(delay, lag)
    gain = float(c @ measured / max(float(c @ c), 1e-12))
    if misfit(np.log(lag)) > (1 - EXPLAINED) * float((measured**2).mean()):
        return AxisRate()
    if gain <= 0:
        opposed = f"the measured {AXES[axis]} rate opposes the commanded"
        return AxisRate(fault=f"{opposed}: one of the two has the wrong sign")
    J = np.column_stack([c, *(gain * slope for slope in slopes(follow, delay, lag))])
    half = half_widths(J, c * gain - measured, times(logs)[np.concatenate(used)])
    gain_half = float(np.hypot(half[0], Z95 * (RATE_SCALE * gain)))
    # What the delay is short of, the lag has: it is known no better.
    lag_half = float(np.hypot(half[2], max(late.high - delay, delay - late.low)))
    return AxisRate(Estimate(gain, gain_half), Estimate(lag, lag_half))


HORIZON_S, EVERY_S = 0.5, 0.1  # s, length of an open-loop prediction, and time between two beginnings


@dataclass(frozen=True)
class Prediction:
    """Root mean squares over predictions from measured velocities, with measured attitudes; NaN without velocity."""

    starts: int
    step_m_s: float  # error of the velocity after one step
    velocity_m_s: float  # after HORIZON_S
    position_m: float  # after HORIZON_S
    steady_velocity_m_s: float  # of a constant velocity, for comparison
    steady_position_m: float


def predict(
    logs: Sequence[Signals], unseen: Sequence[Mask], knots: Array, x: Array, delay: float, lag: float
) -> Prediction:
    """Predict the unseen stretches of all logs, where they are valid for a whole horizon.

    `x`: thrust at the knots, then drag: none, quadratic, or three linear and quadratic.
    """
    n, errors = round(HORIZON_S / STEP_S), [np.zeros((0, 5))]
    for log, mask in zip(logs, unseen, strict=True):
        whole = np.convolve(mask, np.ones(n + 1), "valid") > n + 0.5
        starts = np.flatnonzero(whole)[:: round(EVERY_S / STEP_S)]
        if not len(starts) or log.velocity_unknown:
            continue
        thrust = lagged(hats(log.throttle, knots), delay, lag) @ x[: len(knots)]
        errors.append(_errors(log, thrust, x[len(knots) :], starts, n))
    rows = np.vstack(errors)
    rms = np.sqrt((rows**2).mean(axis=0)) if len(rows) else np.full(5, np.nan)
    return Prediction(len(rows), *map(float, rms))


def _errors(log: Signals, thrust: Array, drag: Array, starts: NDArray[np.intp], n: int) -> Array:
    """Return the errors (S, 5) as in `Prediction` of predictions of n steps from samples (S,)."""
    linear, quadratic = (drag[:-1] if len(drag) == 4 else np.zeros(3)), (drag[-1] if len(drag) else 0.0)
    v_w = np.einsum("nij,nj->ni", log.R_wb, log.v_b)
    v, p, true_p, first = v_w[starts], np.zeros((len(starts), 3)), np.zeros((len(starts), 3)), np.zeros(len(starts))
    for k in range(n):
        R = log.R_wb[starts + k]
        v_b = np.einsum("nji,nj->ni", R, v)
        force = -(linear + quadratic * np.linalg.norm(v_b, axis=1)[:, None]) * v_b
        force[:, 2] -= thrust[starts + k]
        v = v + STEP_S * (G_W + np.einsum("nij,nj->ni", R, force))
        p, true_p = p + STEP_S * v, true_p + STEP_S * v_w[starts + k + 1]
        if k == 0:
            first = np.linalg.norm(v - v_w[starts + 1], axis=1)
    still_p = n * STEP_S * v_w[starts] - true_p
    ends = (v - v_w[starts + n], p - true_p, v_w[starts] - v_w[starts + n], still_p)
    return np.column_stack([first, *(np.linalg.norm(error, axis=1) for error in ends)])
