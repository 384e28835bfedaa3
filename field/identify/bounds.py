"""95 % bounds of estimates by regression, honest where residuals are correlated and where none shows the error.

Residuals of logs are correlated over seconds, since the velocity and the attitude in them are estimates: white-noise
formulas promise too much. The scores of whole blocks are summed instead (the sandwich of Liang and Zeger, Biometrika 73,
1986), for several lengths of block, of which the widest bound holds. Scales of the sensors fit any data and are added as
known by class.

Delay and lag are bounded by profile, by all values that explain the data nearly as well as the best. The misfit over a
grid of both, with the linear parameters eliminated (variable projection: Golub and Pereyra, 1973), is compared with the
least by the likelihood ratio of as many samples as are independent. Logs tell on their own, each with a thrust of its
own, and what they tell is added.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.vehicle.rotation import Array, Mask

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


def white_widths(J: Array, residual: Array, prior: Array) -> Array:
    """Return the 95 % half widths (K,) that white residuals would allow; arguments as of `half_widths`."""
    from scipy.special import ndtri  # slow to load

    inverse = np.linalg.pinv(J.T @ J + prior.T @ prior)
    return float(ndtri(QUANTILE)) * np.sqrt(np.diag(inverse) * float(np.mean(residual**2)))


def widened(half: Array, sigma: Array) -> Array:
    """Return half widths (K,) with independent errors of standard deviation `sigma` (K,) in addition."""
    from scipy.special import ndtri  # slow to load

    return np.hypot(half, float(ndtri(QUANTILE)) * sigma)


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

    Args:
        grid: its values at DELAYS_S and LAGS_S; evaluated if not given.
        every: only one in so many of the grid's values is evaluated.
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
    """Return the values (D, L) of a function of delay and lag."""
    return np.array([[against(delay, lag) for lag in lags] for delay in delays])


def profile(logs: Sequence[Evidence], resolution_s: float) -> Timing:
    """Return delay and lag that fit all logs best, with their bounds, and what each log alone tells of the delay.

    Args:
        resolution_s: time between two logged commands, s, to which no delay is known.
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
