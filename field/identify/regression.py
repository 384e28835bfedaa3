"""The regression of specific force on thrust and drag, for given delay and lag: rows, weights, solution.

    f_b = -lag_tau[ c(u(t - delay)) ] e_z - (diag(d) + k |v|) v_b          specific force, body FRD

c(u) is piecewise linear in knots, so that force is linear in knots, d and k.

The battery is an input: motors see the duty times the voltage, so that thrust is a curve over throttle * (U / U_ref)^n. Body
rates have a gain and a lag per axis, omega_b = lag_tau_i[ g_i omega_cmd(t - delay) ]. A fit is tested by what it predicts of
flight that it has not seen: one step ahead, and half a second in open loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.identify.bounds import LAGS_S, LOG_S, RATE_SCALE, Interval, half_widths, widened
from gate_racer.field.identify.cuts import STEP_S
from gate_racer.field.identify.signals import Signals
from gate_racer.pilot.guidance.exciter import THROTTLES
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import Array, Mask

KNOTS = np.array(THROTTLES)  # of the thrust curve
AFTER_S = 0.3  # s for which a command may still act: delay and lags (chosen)
DIFFERENCE_S = 5e-4  # s, step of derivatives with respect to delay and lags (chosen)
STAMP_S, FORCE_M_S2 = 4e-3, 0.1  # standard deviations of stamps, s, and of forces, m/s^2


def lagged(u: Array, delay: float, lag: float, step_s: float = STEP_S) -> Array:
    """Return u (N, ...), uniform in time, delayed by `delay` s and filtered by a first-order lag of `lag` s."""
    from scipy.signal import lfilter  # slow to load

    shift = delay / step_s
    whole, part = int(shift), shift - int(shift)
    late = np.concatenate([np.repeat(u[:1], whole + 1, axis=0), u])[: len(u) + 1]
    late = (1 - part) * late[1:] + part * late[:-1]
    decay = np.exp(-step_s / lag)
    start = decay * late[:1]
    return lfilter([1 - decay], [1.0, -decay], late, axis=0, zi=start)[0]


def hats(u: Array, knots: Array) -> Array:
    """Return the weights (N, K) of the knots for piecewise linear interpolation at u (N,), constant beyond the ends."""
    return np.column_stack([np.interp(u, knots, row) for row in np.eye(len(knots))])


def reached(logs: list[Signals], least: float) -> Array:
    """Return the knots at which the logs hold enough samples."""
    weight = sum(hats(log.throttle[log.valid], KNOTS).sum(axis=0) for log in logs)
    return KNOTS[np.asarray(weight) >= least]


def explained(log: Signals, knots: Array) -> Mask:
    """Return the mask of valid samples, except those still affected by a throttle beyond all knots."""
    beyond = (log.throttle < knots[0]) | (log.throttle > knots[-1])
    after = np.convolve(beyond, np.ones(round(AFTER_S / STEP_S)))[: len(beyond)] > 0
    return log.valid & ~after


def vertical_rows(log: Signals, knots: Array, delay: float, lag: float, drags: int) -> Array:
    """Return the design matrix (N, K) of the force along z."""
    return force_rows(log, knots, delay, lag, drags)[:, 2]


def force_rows(log: Signals, knots: Array, delay: float, lag: float, drags: int) -> Array:
    """Return the design matrix (N, 3, K) of the force; `drags` is 0, 1 (quadratic) or 4 (linear by axis, quadratic)."""
    A = np.zeros((len(log.t), 3, len(knots) + drags))
    A[:, 2, : len(knots)] = -lagged(hats(log.throttle, knots), delay, lag)
    if drags == 4:
        A[:, range(3), len(knots) + np.arange(3)] = -log.v_b
    if drags:
        A[:, :, -1] = -np.linalg.norm(log.v_b, axis=1)[:, None] * log.v_b
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
EXPONENTS = np.arange(0.5, 1.21, 0.05)  # tried where several logs tell; 0 of a controller that compensates is not
SEVERAL = 3  # logs from which the exponent is fitted: within one flight voltage and throttle move together


@dataclass(frozen=True)
class BatteryUse:
    """Reference voltage of a thrust curve, and the exponent of the voltage in the throttle that the motors see."""

    reference_v: float
    exponent: float = 1.0

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


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % half width."""

    value: float
    half_width: float

    def __str__(self) -> str:
        bound = (
            f"+- {self.half_width:.2g}" if np.isfinite(self.half_width) else "without a bound, since the log is short,"
        )
        return f"{self.value:.4g} {bound}"


@dataclass(frozen=True)
class AxisRate:
    """Gain and lag (s) of one axis, None where it was not excited; `fault` says why they are not believed."""

    gain: Estimate | None = None
    lag_s: Estimate | None = None
    fault: str = ""


def fit_rates(logs: list[Signals], delay: Interval) -> tuple[AxisRate, AxisRate, AxisRate]:
    """Return gain and lag of the three axes, where rates were commanded and measured."""
    roll, pitch, yaw = (_axis(logs, axis, delay) for axis in range(3))
    return roll, pitch, yaw


def _axis(logs: list[Signals], axis: int, late: Interval) -> AxisRate:
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
    if gain <= 0:
        return AxisRate(
            fault=f"the measured {AXES[axis]} rate opposes the commanded: one of the two has the wrong sign"
        )
    J = np.column_stack([c, *(gain * slope for slope in slopes(follow, delay, lag))])
    half = half_widths(J, c * gain - measured, times(logs)[np.concatenate(used)])
    gain_half = float(widened(half[:1], np.array([RATE_SCALE * gain]))[0])
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

    Args:
        x: thrust at the knots, then drag: none, quadratic, or three linear and quadratic.
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
