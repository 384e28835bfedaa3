"""Gaussian processes over several flights: hyperparameters by marginal likelihood, and function samples of the posterior.

Swift (Kaufmann et al. 2023, Methods, eq. 10) has  k(z, z') = sigma_f^2 exp(-1/2 (z - z')' L^-2 (z - z')) + sigma_n^2  with L
diagonal. Here the error at one state may differ between flights, or between passes of a course, as drift does:

    k = (shared + own [same flight]) exp(-1/2 (z - z')' L^-2 (z - z')) + noise [same sample],   shared + own + noise = 1

for targets of unit variance, so that samples keep the variance of the data. With one flight it is eq. (10).
Samples by pathwise conditioning (Wilson et al., "Efficiently sampling functions from Gaussian process posteriors", ICML 2020).
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.vehicle.rotation import Array, Indices

WAVES = 1024  # random Fourier features of each part of a sample (chosen)
LONGEST = 1e3  # standard deviations of a feature, upper bound of a length scale: the correlation then changes by 1e-5
SHORTEST = 1e-3  # standard deviations, lower bound of the length scale of a constant feature
RATIO = 1e-6  # lower and, inverted, upper bound of a ratio of variances: a thousandth in amplitude
STEPS = 100  # iteration limit of the hyperparameter search


@dataclass(frozen=True)
class Kernel:
    """Length scales (d,) in standard deviations of the features, and shares of the variance; the remainder is noise."""

    lengths: Array
    shared: float  # share of the variance that is a function of the state common to all flights
    own: float  # share of the variance that is a function of the state specific to each flight

    @property
    def noise(self) -> float:
        """Share of the variance that is independent from sample to sample."""
        return 1.0 - self.shared - self.own

    def correlation(self, a: Array, b: Array) -> Array:
        """Return the correlation (n, m) between features (n, d) and (m, d)."""
        a, b = a / self.lengths, b / self.lengths
        squared = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))

    def covariance(self, z: Array, flight: Indices) -> Array:
        """Return the covariance (n, n) of the targets at features (n, d) of flights (n,)."""
        same = flight[:, None] == flight
        return (self.shared + self.own * same) * self.correlation(z, z) + self.noise * np.eye(len(z))


def step_of(z: Array, flight: Indices) -> Array:
    """Return the median step (d,) between consecutive samples of a flight by feature: shorter scales are noise."""
    steps = np.abs(np.diff(z, axis=0))[np.diff(flight) == 0]
    return np.asarray(np.median(steps, axis=0)) if len(steps) else np.zeros(z.shape[1])


def fit(z: Array, targets: Array, flight: Indices) -> list[Kernel]:
    """Fit one kernel to each column of targets (n, m) of zero mean and unit variance, at features (n, d) of unit variance.

    Maximises the marginal likelihood. A length scale at its upper bound means that the feature has no effect; at its lower bound
    (half a step between samples), that samples do not correlate. Shares at a bound are indistinguishable from 0 or 1.
    """
    from scipy.optimize import minimize  # slow to load, and only a fit needs it

    squares = np.array([(column[:, None] - column) ** 2 for column in z.T])
    likelihood = _Likelihood(squares, flight[:, None] == flight)
    lower = np.maximum(step_of(z, flight) / 2, SHORTEST)
    ratios = [(np.log(RATIO), -np.log(RATIO))] * (2 if likelihood.several else 1)
    bounds = [*((np.log(low), np.log(LONGEST)) for low in lower), *ratios]
    starts = [np.log([*np.maximum(length, lower), *[0.5] * len(ratios)]) for length in (1.5, np.sqrt(z.shape[1]))]
    found = []
    for y in targets.T:  # from two starts, since a search whose first step is too long may end with noise alone
        given = {"args": (y,), "method": "L-BFGS-B", "jac": True, "bounds": bounds, "options": {"maxiter": STEPS}}
        best = min((minimize(likelihood, start, **given) for start in starts), key=lambda search: float(search.fun))
        found.append(Kernel(np.exp(best.x[: len(lower)]), *likelihood.shares(best.x)[:2]))
    return found


class _Likelihood:
    """Negative log marginal likelihood of (log length scales, log noise / shared, log own / shared), and its gradient."""

    def __init__(self, squares: Array, same: Array):
        """Store squared distances (d, n, n) by feature and the mask (n, n) of samples from the same flight."""
        self._squares, self._same, self.several = squares, same, not same.all()

    def shares(self, theta: Array) -> tuple[float, float, float]:
        """Return the shares of the variance: shared, own and noise."""
        noise, own = np.exp([*theta[len(self._squares) :], -np.inf][:2])
        total = 1 + noise + own
        return 1 / total, own / total, noise / total

    def __call__(self, theta: Array, y: Array) -> tuple[float, Array]:
        from scipy.linalg import cho_factor, cho_solve  # slow to load, and only a fit needs it

        inverse_squares = np.exp(-2 * theta[: len(self._squares)])
        shared, own, noise = self.shares(theta)
        correlation = np.exp(-0.5 * np.tensordot(inverse_squares, self._squares, 1))
        smooth = (shared + own * self._same) * correlation
        factor = cho_factor(smooth + noise * np.eye(len(y)), lower=True)
        inverse, alpha = cho_solve(factor, np.eye(len(y))), cho_solve(factor, y)
        value = 0.5 * y @ alpha + np.log(np.diag(factor[0])).sum()
        pull = inverse - np.outer(alpha, alpha)  # twice the derivative with respect to the covariance
        by_length = np.tensordot(self._squares, pull * smooth, 2) * inverse_squares
        by_shared, by_own, by_noise = (pull * correlation).sum(), (pull * correlation * self._same).sum(), pull.trace()
        mean = shared * by_shared + own * by_own + noise * by_noise
        by_ratio = [noise * (by_noise - mean), own * (by_own - mean)][: len(theta) - len(self._squares)]
        return float(value), 0.5 * np.array([*by_length, *by_ratio])


class Draw:
    """Function sample of the posterior for a new flight, from (k, d) features to (k,) targets.

    f(z) = shared(z) + own(z) + noise(z) + shared k(z, Z) K^-1 (y - prior sample at Z). Noise is a function of z as well, which
    decorrelates over one step between samples, so that a revisited state has the same error.
    """

    def __init__(self, kernel: Kernel, z: Array, y: Array, flight: Indices, rng: np.random.Generator):
        n, d = z.shape
        omega, phase = rng.standard_normal((WAVES, d)) / kernel.lengths, rng.uniform(0, 2 * np.pi, WAVES)
        unit = np.sqrt(2 / WAVES)
        shared = np.sqrt(kernel.shared) * unit * rng.standard_normal(WAVES)
        # One set of weights for each flight of the data, and the last for the new flight.
        own = np.sqrt(kernel.own) * unit * rng.standard_normal((int(flight.max()) + 2, WAVES))
        at_data = np.cos(z @ omega.T + phase)
        drawn = at_data @ shared + (at_data * own[flight]).sum(1) + np.sqrt(kernel.noise) * rng.standard_normal(n)
        self._kernel, self._z = kernel, z
        self._correction = kernel.shared * np.linalg.solve(kernel.covariance(z, flight), y - drawn)
        step = step_of(z, flight)
        moving = float(np.count_nonzero(step))
        fine = np.where(step > 0, step * np.sqrt(moving) / 2, np.inf)  # the correlation falls to e^-2 over one step
        self._omega = np.vstack([omega, rng.standard_normal((WAVES, d)) / fine])
        self._phase = np.concatenate([phase, rng.uniform(0, 2 * np.pi, WAVES)])
        noise = np.sqrt(kernel.noise) * unit * rng.standard_normal(WAVES)
        self._weight = np.concatenate([shared + own[-1], noise])

    def __call__(self, z: Array) -> Array:
        prior = np.cos(z @ self._omega.T + self._phase) @ self._weight
        return np.asarray(prior + self._kernel.correlation(z, self._z) @ self._correction)
