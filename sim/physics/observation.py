"""Residual observation model: errors of an odometry, learned from flights with ground truth (Swift, Methods, eq. 10).

Nine one-dimensional Gaussian processes of the true state give the errors of position, velocity and attitude. A realisation
is sampled as a function, so that a revisited state has the same error at any time.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.sim.physics import gaussian_process
from gate_racer.sim.physics.gaussian_process import Draw, Kernel
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.vehicle.rotation import Array, Indices, exp, product, rotate

ERRORS = 9  # position (m), velocity (m/s), attitude (rad, rotation vector), world: observed minus true
RETURN_M, AWAY_M = 2.0, 20.0  # m, a revisit: nearer than the first, and over the second farther along the path
JITTER = 0.02  # share of the variance of `of_size` that is white from sample to sample (a guess)
SAMPLES = 300  # samples of all flights to which the Gaussian processes are fitted; the paper's last 50 s


@dataclass(frozen=True, slots=True)
class Observation:
    """Observed state that is passed to a controller; world NED."""

    p_wb: Array
    q_wb: Array
    v_w: Array


def passes(x: Array, flight: Indices) -> Indices:
    """Return the pass number (n,) of states (n, >= 10) of flights (n,); a pass ends where a flight revisits a place.

    Passes are distinguished because the error of a drifting odometry differs between laps as it does between flights.
    """
    step = np.linalg.norm(np.diff(x[:, P], axis=0, prepend=x[:1, P]), axis=1)
    travelled, near = np.cumsum(step), max(RETURN_M, float(np.median(step)) / 2)
    found, begin = np.zeros(len(x), np.int64), 0
    for i in range(1, len(x)):
        found[i] = found[i - 1]
        before = slice(begin, i)
        back = np.linalg.norm(x[before, P] - x[i, P], axis=1) < near
        back &= (travelled[i] - travelled[before] > AWAY_M) & (x[before, V] @ x[i, V] > 0)
        if flight[i] != flight[i - 1] or back.any():
            found[i], begin = found[i] + 1, i
    return found


def features(x: Array) -> Array:
    """Return position, velocity and rotation matrix (N, 15) of states (N, >= 10) or (>= 10,) as RATES_X."""
    x = np.atleast_2d(x)
    columns = np.array([np.broadcast_arrays(*rotate(x[:, Q].T, axis)) for axis in np.eye(3)])  # of R_wb: (3, 3, N)
    return np.column_stack([x[:, P], x[:, V], columns.transpose(2, 1, 0).reshape(len(x), 9)])


@dataclass(frozen=True)
class Scaler:
    """Standardisation of columns to zero mean and unit variance; constant columns become zero."""

    mean: Array
    spread: Array

    @classmethod
    def of(cls, z: Array) -> "Scaler":
        """Fit mean and standard deviation (k,) to the columns of z (N, k)."""
        return cls(z.mean(axis=0), z.std(axis=0))

    def __call__(self, z: Array) -> Array:
        return (z - self.mean) / np.where(self.spread > 1e-9, self.spread, np.inf)


class ObservationModel:
    """Gaussian processes of an odometry's errors."""

    def __init__(self, x: Array, errors: Array, flight: Indices, kernels: list[Kernel]):
        """Store true states (n, >= 10), errors (n, 9), passes (n,) counted from 0, and one kernel per column of the errors.

        Raises:
            ValueError: shapes do not match, or a value is not finite.
        """
        n, kinds = len(x), {np.shape(kernel.lengths) for kernel in kernels}
        if np.shape(errors) != (n, ERRORS) or np.shape(flight) != (n,) or len(kernels) != ERRORS or kinds != {(15,)}:
            raise ValueError(
                f"{n} states: expected errors ({n}, {ERRORS}), flights ({n},) and {ERRORS} kernels of 15 lengths"
            )
        if n < 2 or not (np.isfinite(x).all() and np.isfinite(errors).all()):
            raise ValueError(f"{n} states: expected at least 2, all states and errors finite")
        if not 0 <= flight.min() <= flight.max() < n:
            raise ValueError(f"flights {flight.min()} to {flight.max()}: expected numbers from 0 to {n - 1}")
        z = features(x)
        self._scaler, self._targets = Scaler.of(z), Scaler.of(errors)
        self._z = self._scaler(z)
        self.x, self.errors, self.flight, self.kernels = x, errors, flight, kernels

    @classmethod
    def fit(cls, x: Array, errors: Array, flight: Indices | None = None, samples: int = SAMPLES) -> "ObservationModel":
        """Fit to true states x (N, >= 10) and errors (N, 9), observed minus true, in the order of time.

        Args:
            flight: (N,) flight number of each state (None: a single flight). A sample has its own realisation of the part
                that differs between passes of the course, within a flight or across flights.
            samples: number of states used, evenly spaced.

        Raises:
            ValueError: as the constructor.
        """
        pick = np.unique(np.linspace(0, len(x) - 1, min(samples, len(x))).round().astype(int))
        flight = np.zeros(len(x), int) if flight is None else flight
        blank = cls(x[pick], errors[pick], passes(x[pick], flight[pick]), [Kernel(np.ones(15), 1.0, 0.0)] * ERRORS)
        kernels = gaussian_process.fit(blank._z, blank._targets(blank.errors), blank.flight)
        return cls(blank.x, blank.errors, blank.flight, kernels)

    @classmethod
    def of_size(cls, path_w: Array, sigmas: tuple[float, float, float], length_m: float) -> "ObservationModel":
        """Return a model with errors of given size, without data: functions of position alone, independent between flights.

        Args:
            path_w: (n, 3) m, world, evenly spaced along the path of the flights; n is even.
            sigmas: standard deviations of one axis of position (m), velocity (m/s) and attitude (rad).
            length_m: correlation length of the errors in position, m.
        """
        x = np.zeros((len(path_w), 10))
        x[:, P], x[:, 3] = path_w, 1.0
        errors = np.outer((-1.0) ** np.arange(len(x)), np.repeat(sigmas, 3))  # only their spread counts
        spread = Scaler.of(features(x)).spread
        lengths = length_m / np.where(spread > 1e-9, spread, length_m)
        return cls(x, errors, np.zeros(len(x), int), [Kernel(lengths, 0.0, 1.0 - JITTER)] * ERRORS)

    def sample(self, rng: np.random.Generator) -> "Realisation":
        """Sample one realisation of the posterior for a new flight."""
        targets = self._targets(self.errors).T
        draws = [Draw(k, self._z, y, self.flight, rng) for k, y in zip(self.kernels, targets, strict=True)]
        return Realisation(self._scaler, self._targets, draws)

    def arrays(self) -> dict[str, Array]:
        """Return the arguments of `from_arrays`."""
        lengths = np.array([kernel.lengths for kernel in self.kernels])
        shares = np.array([(kernel.shared, kernel.own) for kernel in self.kernels])
        return {"x": self.x, "errors": self.errors, "flight": self.flight, "lengths": lengths, "shares": shares}

    @classmethod
    def from_arrays(cls, x: Array, errors: Array, flight: Array, lengths: Array, shares: Array) -> "ObservationModel":
        """Build the model from `arrays`. Raises ValueError, TypeError or IndexError for arrays that do not form one."""
        if not (lengths > 0).all() or not (shares >= 0).all() or not (shares.sum(axis=1) <= 1).all():
            raise ValueError(
                "lengths must be positive, and the shares of a variance must lie between 0 and 1, as must their sum"
            )
        kernels = [Kernel(length, *map(float, share)) for length, share in zip(lengths, shares, strict=True)]
        return cls(x, errors, flight.astype(int), kernels)


class Realisation:
    """Odometry errors as one fixed function of the true state."""

    def __init__(self, scaler: Scaler, targets: Scaler, draws: list[Draw]):
        self._scaler, self._targets, self._draws = scaler, targets, draws

    def errors(self, x: Array) -> Array:
        """Return errors (N, 9) at states (N, >= 10)."""
        z = self._scaler(features(x))
        drawn = np.column_stack([draw(z) for draw in self._draws])
        return self._targets.mean + self._targets.spread * drawn

    def observe(self, x: Array) -> Observation:
        """Return the observation of a state x (>= 10,) as RATES_X."""
        error = self.errors(x)[0]
        return Observation(x[P] + error[:3], np.array(product(exp(error[6:9]), x[Q])), x[V] + error[3:6])
