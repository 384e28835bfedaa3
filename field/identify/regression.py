"""The regression of specific force on thrust and drag, for given delay and lag: rows, weights, solution.

    f_b = -lag_tau[ c(u(t - delay)) ] e_z - (diag(d) + k |v|) v_b          specific force, body FRD

c(u) is piecewise linear in knots, so that force is linear in knots, d and k.
"""

from collections.abc import Callable

import numpy as np

from gate_racer.field.identify.bounds import LOG_S
from gate_racer.field.identify.signals import STEP_S, Signals
from gate_racer.pilot.guidance.exciter import THROTTLES
from gate_racer.vehicle.rotation import Array, Mask

KNOTS = np.array(THROTTLES)  # of the thrust curve
AFTER_S = 0.3  # s for which a command may still act: delay and lags (chosen)
DIFFERENCE_S = 5e-4  # s, step of derivatives with respect to delay and lags (chosen)
STAMP_S, FORCE_M_S2 = 4e-3, 0.1  # standard deviations of stamps, s, and of forces, m/s^2


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
