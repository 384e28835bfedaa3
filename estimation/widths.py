"""Widths of the priors of constants, tested in flight, and widened where the measurements contradict them.

A constant u, in units of its prior's standard deviation, enters the filter as a measurement of 0 with variance 1. In a consistent
filter its estimates have the covariance W = I - P, P that of their errors. If the prior's variance is r instead of 1,

    D = u' u,   E(D) = tr W + (r - 1) tr W^2,   var(D) = 2 tr W^2 for r = 1

so D is tested as a scaled chi-square variable (Satterthwaite 1946, its quantile by Wilson and Hilferty 1931), and r estimated by
1 + (D - tr W) / tr W^2: score test and scoring of a variance component (Rao 1948). Constants that were not observed have W = 0
and do not count.

The filter need not start again. The share 1 - 1/r of the prior's information is withdrawn, as by a measurement of 0 with the
variance -r / (r - 1). In a linear filter that gives state and covariance of one that began with the wider prior.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from gate_racer.model.gate_offsets import Constants
from gate_racer.model.kalman import FilterState
from gate_racer.model.states import ERROR, N
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import chi2_limit

COURSE, MOUNT = "course", "mount"
FACTORS: Mapping[str, tuple[str, ...]] = {  # states whose priors have one width
    "IMU": ("b_a", "b_g", "accel_delay", "s_a", "s_g"),
    MOUNT: ("yaw", "tilt", "roll", "arm"),
    "lens": ("focal", "centre", "radial"),
    "clock": ("delay", "readout"),
    "pad": ("pad", "heading"),
    COURSE: ("scale",),  # and places and rotations of the gates
}


# Thresholds of the tests.
FALSE_ALARM = 1e-3  # of a test, of all factors or of one, after one image
OBSERVED = 0.5  # least degrees of freedom of a test (chosen)
WIDEST = 3.0  # greatest width common to all factors, and greatest ratio of a factor's to it (chosen)


class PriorWidths:
    """Widths of the priors, as ratios of their standard deviations to those at the start: 1 until a test contradicts these.

    A few images show that errors are large, but not whose. Therefore the factors share one width, which is estimated anew after
    each image once a test has failed; a factor that is contradicted even then is widened alone.
    """

    def __init__(self, start: FilterState, walks: Array):
        """Create it with the state at rest, and the growth of the variances per second, (N,)."""
        self.contradicted_t: float | None = None  # s, when the first test failed
        self._common, self._own = 1.0, dict.fromkeys(FACTORS, 1.0)
        self._quantile = math.sqrt(chi2_limit(1, 2 * FALSE_ALARM))
        variances = start.cov.diagonal()
        rows = {one: np.concatenate([np.arange(N)[ERROR[name].at] for name in FACTORS[one]]) for one in FACTORS}
        rows = {one: some[variances[some] > 0] for one, some in rows.items()}
        self._rows = np.concatenate(list(rows.values()))
        self._factor = np.repeat(list(rows), [len(some) for some in rows.values()])
        self._mean, self._variance, self._walk = start.x.values[self._rows], variances[self._rows], walks[self._rows]
        self._begun_t: float | None = None  # s, of the first test

    def width(self, factor: str) -> float:
        return self._common * self._own[factor]

    @property
    def all(self) -> dict[str, float]:
        return {one: self.width(one) for one in FACTORS}

    def assume(self, row: int, sigma: float) -> None:
        """Set the standard deviation at the start of one state, by its index in the error state."""
        self._variance[self._rows == row] = sigma**2

    def test(self, state: FilterState, gates: Constants) -> FilterState:
        """Return the state with the priors that it contradicts widened; `gates`: of the gates, at their width at the start.

        Raises LinAlgError where the covariance is not that of a filter with these priors.
        """
        self._begun_t = state.x.t if self._begun_t is None else self._begun_t
        if self.contradicted_t is None:
            if not any(self._evidence(state, gates, some).contradicts(self._quantile) for some in _TESTS):
                return state
            self.contradicted_t = state.x.t
        evidence = self._evidence(state, gates, FACTORS)
        width = self._bounded(self._common * math.sqrt(evidence.ratio))
        state, self._common = evidence.widened((width / self._common) ** 2), width
        for one in FACTORS:
            evidence = self._evidence(state, gates, [one])
            if evidence.contradicts(self._quantile):
                width = self._bounded(self._own[one] * math.sqrt(evidence.ratio))
                state, self._own[one] = evidence.widened((width / self._own[one]) ** 2), width
        return state

    def _bounded(self, width: float) -> float:
        return min(max(width, 1.0), WIDEST)

    def _evidence(self, state: FilterState, gates: Constants, factors: Iterable[str]) -> "Evidence":
        """Return what the state says of the priors of some factors."""
        own = np.isin(self._factor, list(factors))
        H, mean = np.eye(N)[self._rows[own]], self._mean[own]
        walked_s = state.x.t - (self._begun_t or state.x.t)
        widths = [self.width(one) for one in self._factor[own]]
        sigma = np.sqrt(self._variance[own] + walked_s * self._walk[own]) * widths
        if COURSE in factors and len(gates.H):
            H, mean = np.concatenate([H, gates.H]), np.append(mean, np.zeros(len(gates.H)))
            sigma = np.append(sigma, self.width(COURSE) * gates.sigma)
        return Evidence(state, H, mean, sigma, OBSERVED)


_TESTS = [list(FACTORS), *([one] for one in FACTORS)]


class Evidence:
    """What a state says of the priors of the constants u = (H x - mean) / sigma, in number M."""

    def __init__(self, state: FilterState, H: Array, mean: Array, sigma: Array, observed: float):
        """Create it; with fewer than `observed` degrees of freedom it says nothing. H (M, N), mean and sigma (M,)."""
        self._state, self._u = state, (H @ state.x.values - mean) / sigma
        self._by_u = state.cov @ H.T / sigma
        self._cov = H @ self._by_u / sigma[:, None]
        W = np.eye(len(H)) - self._cov
        self._trace, self._squares, self._D = float(np.trace(W)), float((W * W).sum()), float(self._u @ self._u)
        self._observed = self._trace > observed and self._trace**2 > observed * self._squares

    def contradicts(self, quantile: float) -> bool:
        """Return whether D exceeds this quantile, in standard deviations of a normal variable."""
        if not self._observed:
            return False
        c = 2 * self._squares / (9 * self._trace**2)
        return self._trace * (1 - c + quantile * math.sqrt(c)) ** 3 < self._D

    @property
    def ratio(self) -> float:
        """Estimated ratio of the true variances to those assumed."""
        return max(1 + (self._D - self._trace) / self._squares, 0.0) if self._observed else 1.0

    def widened(self, ratio: float) -> FilterState:
        """Return the state for priors with `ratio` times the variance. Raises LinAlgError where its own are less certain."""
        if ratio == 1:
            return self._state
        S, sign = ratio / (ratio - 1) * np.eye(len(self._u)) - self._cov, math.copysign(1.0, ratio - 1)
        root = np.linalg.solve(np.linalg.cholesky(sign * S), self._by_u.T)
        gain = np.linalg.solve(S, self._by_u.T).T
        cov = self._state.cov + sign * root.T @ root
        return FilterState(self._state.x.plus(gain @ self._u), cov, self._state.reading)
