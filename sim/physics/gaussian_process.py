"""Gaussian processes over several flights: hyperparameters by marginal likelihood, and draws that are functions.

Swift (Kaufmann et al. 2023, Methods, eq. 10) has  k(z, z') = sigma_f^2 exp(-1/2 (z - z')' L^-2 (z - z')) + sigma_n^2  with L
diagonal. Here the same state in two flights, or passes of a course, may have two errors, as drift has:

    k = (shared + own [same flight]) exp(-1/2 (z - z')' L^-2 (z - z')) + noise [same sample],   shared + own + noise = 1

for targets of unit variance: a draw can neither be louder than the data nor quieter. With one flight it is eq. (10).
Draws by pathwise conditioning (Wilson et al., "Efficiently sampling functions from Gaussian process posteriors", ICML 2020).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vehicle.rotation import Array

Indices = NDArray[np.int64]
WAVES = 1024  # random Fourier features of each part of a draw
LONGEST = 1e3  # length scale in spreads of a feature, at which it changes a correlation by 1e-5: it has no effect
SHORTEST = 1e-3  # of a feature that never changes
RATIO = 1e-6  # least and, inverted, largest ratio of variances: a thousandth of the amplitude
STEPS = 100  # of the search for the hyperparameters


@dataclass(frozen=True)
class Kernel:
    """Length scales (d,), in spreads of the features, and shares of the variance, of which the rest is noise."""

    lengths: Array
    shared: float  # of what all flights have in common, as a function of the state
    own: float  # of what each flight has for itself, as a function of the state

    @property
    def noise(self) -> float:
        """Share of what changes from sample to sample."""
        return 1.0 - self.shared - self.own

    def correlation(self, a: Array, b: Array) -> Array:
        """(n, m) of features (n, d) and (m, d)."""
        a, b = a / self.lengths, b / self.lengths
        squared = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))

    def covariance(self, z: Array, flight: Indices) -> Array:
        """(n, n) of the targets at features (n, d) of flights (n,)."""
        same = flight[:, None] == flight
        return (self.shared + self.own * same) * self.correlation(z, z) + self.noise * np.eye(len(z))


def step_of(z: Array, flight: Indices) -> Array:
    """(d,) median distance of consecutive samples of a flight, feature by feature: what is finer cannot be told from noise."""
    steps = np.abs(np.diff(z, axis=0))[np.diff(flight) == 0]
    return np.asarray(np.median(steps, axis=0)) if len(steps) else np.zeros(z.shape[1])


def fit(z: Array, targets: Array, flight: Indices) -> list[Kernel]:
    """One kernel for each column of targets (n, m) of zero mean and unit variance, at features (n, d) of unit spread.

    Maximises the marginal likelihood. The bounds are without meaning: a length scale at its upper one says that the feature has
    no effect, at its lower one, half a step of the samples, that they do not correlate; shares cannot be told from 0 or 1.
    """
    from scipy.optimize import minimize  # slow to load, and only a fit needs it

    squares = np.array([(column[:, None] - column) ** 2 for column in z.T])
    likelihood = _Likelihood(squares, flight[:, None] == flight)
    lower = np.maximum(step_of(z, flight) / 2, SHORTEST)
    ratios = [(np.log(RATIO), -np.log(RATIO))] * (2 if likelihood.several else 1)
    bounds = [*((np.log(low), np.log(LONGEST)) for low in lower), *ratios]
    starts = [np.log([*np.maximum(length, lower), *[0.5] * len(ratios)]) for length in (1.5, np.sqrt(z.shape[1]))]
    found = []
    for y in targets.T:  # from two sides, since a search that begins with too long a step may end in noise
        given = {"args": (y,), "method": "L-BFGS-B", "jac": True, "bounds": bounds, "options": {"maxiter": STEPS}}
        best = min((minimize(likelihood, start, **given) for start in starts), key=lambda search: float(search.fun))
        found.append(Kernel(np.exp(best.x[: len(lower)]), *likelihood.shares(best.x)[:2]))
    return found


class _Likelihood:
    """Negative log marginal likelihood over (log length scales, log noise / shared, log own / shared), and its gradient."""

    def __init__(self, squares: Array, same: Array):
        """Squared distances (d, n, n) feature by feature, and which samples are of the same flight (n, n)."""
        self._squares, self._same, self.several = squares, same, not same.all()

    def shares(self, theta: Array) -> tuple[float, float, float]:
        """Shared, own and noise."""
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
        pull = inverse - np.outer(alpha, alpha)  # twice the derivative by the covariance
        by_length = np.tensordot(self._squares, pull * smooth, 2) * inverse_squares
        by_shared, by_own, by_noise = (pull * correlation).sum(), (pull * correlation * self._same).sum(), pull.trace()
        mean = shared * by_shared + own * by_own + noise * by_noise
        by_ratio = [noise * (by_noise - mean), own * (by_own - mean)][: len(theta) - len(self._squares)]
        return float(value), 0.5 * np.array([*by_length, *by_ratio])


class Draw:
    """One function of the posterior for a flight of its own, (k, d) features to (k,) targets.

    f(z) = shared(z) + own(z) + noise(z) + shared k(z, Z) K^-1 (y - what the draw has at Z). Noise is a function too, which
    forgets over one step of the samples, so that a state met again has the same error.
    """

    def __init__(self, kernel: Kernel, z: Array, y: Array, flight: Indices, rng: np.random.Generator):
        n, d = z.shape
        omega, phase = rng.standard_normal((WAVES, d)) / kernel.lengths, rng.uniform(0, 2 * np.pi, WAVES)
        unit = np.sqrt(2 / WAVES)
        shared = np.sqrt(kernel.shared) * unit * rng.standard_normal(WAVES)
        # Of each flight, and of the one that is drawn.
        own = np.sqrt(kernel.own) * unit * rng.standard_normal((int(flight.max()) + 2, WAVES))
        at_data = np.cos(z @ omega.T + phase)
        drawn = at_data @ shared + (at_data * own[flight]).sum(1) + np.sqrt(kernel.noise) * rng.standard_normal(n)
        self._kernel, self._z = kernel, z
        self._correction = kernel.shared * np.linalg.solve(kernel.covariance(z, flight), y - drawn)
        step = step_of(z, flight)
        moving = float(np.count_nonzero(step))
        fine = np.where(step > 0, step * np.sqrt(moving) / 2, np.inf)  # e^-2 is left after a step
        self._omega = np.vstack([omega, rng.standard_normal((WAVES, d)) / fine])
        self._phase = np.concatenate([phase, rng.uniform(0, 2 * np.pi, WAVES)])
        noise = np.sqrt(kernel.noise) * unit * rng.standard_normal(WAVES)
        self._weight = np.concatenate([shared + own[-1], noise])

    def __call__(self, z: Array) -> Array:
        prior = np.cos(z @ self._omega.T + self._phase) @ self._weight
        return np.asarray(prior + self._kernel.correlation(z, self._z) @ self._correction)
