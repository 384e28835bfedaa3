"""What an odometry gets wrong, learned from flights with truth (Swift, Methods, "Residual observation model", eq. 10).

Nine one-dimensional Gaussian processes of the true state give the errors of position, velocity and attitude. One realisation
is drawn as a function, so that a state met again has the same error, whenever it is asked for.
"""

from dataclasses import dataclass

import numpy as np

from sim.physics import gaussian_process
from sim.physics.gaussian_process import Draw, Indices, Kernel
from sim.physics.plant import P, Q, V
from vehicle.rotation import Array, exp, product, rotate

ERRORS = 9  # position (m), velocity (m/s), attitude (rad, rotation vector), world: observed minus true
RETURN_M, AWAY_M = 2.0, 20.0  # nearer to an earlier state than this, so much farther along the way: a place met again
JITTER = 0.02  # of the variance of errors of a chosen size: what changes from sample to sample (a guess)
SAMPLES = 300  # of all flights that the Gaussian processes are fitted to; the paper's last 50 s


@dataclass(frozen=True, slots=True)
class Observation:
    """What a controller is told of the state; world NED."""

    p_wb: Array
    q_wb: Array
    v_w: Array


def passes(x: Array, flight: Indices) -> Indices:
    """(n,) number of the pass of each state (n, >= 10): a flight (n,) that comes back to where it was begins another one.

    What drifts errs differently in every lap, as it does in every flight.
    """
    step = np.linalg.norm(np.diff(x[:, P], axis=0, prepend=x[:1, P]), axis=1)
    way, near = np.cumsum(step), max(RETURN_M, float(np.median(step)) / 2)
    found, begin = np.zeros(len(x), np.int64), 0
    for i in range(1, len(x)):
        found[i] = found[i - 1]
        before = slice(begin, i)
        back = np.linalg.norm(x[before, P] - x[i, P], axis=1) < near
        back &= (way[i] - way[before] > AWAY_M) & (x[before, V] @ x[i, V] > 0)
        if flight[i] != flight[i - 1] or back.any():
            found[i], begin = found[i] + 1, i
    return found


def features(x: Array) -> Array:
    """Position, velocity and rotation matrix (N, 15) of states (N, >= 10) or (>= 10,) as RATES_X."""
    x = np.atleast_2d(x)
    columns = np.array([np.broadcast_arrays(*rotate(x[:, Q].T, axis)) for axis in np.eye(3)])  # of R_wb: (3, 3, N)
    return np.column_stack([x[:, P], x[:, V], columns.transpose(2, 1, 0).reshape(len(x), 9)])


@dataclass(frozen=True)
class Scaler:
    """Columns to zero mean and unit spread; what never changes stays at zero."""

    mean: Array
    spread: Array

    @classmethod
    def of(cls, z: Array) -> "Scaler":
        return cls(z.mean(axis=0), z.std(axis=0))

    def __call__(self, z: Array) -> Array:
        return (z - self.mean) / np.where(self.spread > 1e-9, self.spread, np.inf)


class ObservationModel:
    """Gaussian processes of the errors of an odometry."""

    def __init__(self, x: Array, errors: Array, flight: Indices, kernels: list[Kernel]):
        """True states (n, >= 10), errors (n, 9), passes (n,) counted from 0, one kernel for each column of the errors.

        Raises:
            ValueError: shapes that do not fit, or what is not finite.
        """
        n, kinds = len(x), {np.shape(kernel.lengths) for kernel in kernels}
        if np.shape(errors) != (n, ERRORS) or np.shape(flight) != (n,) or len(kernels) != ERRORS or kinds != {(15,)}:
            raise ValueError(
                f"{n} states want errors ({n}, {ERRORS}), flights ({n},) and {ERRORS} kernels of 15 lengths"
            )
        if n < 2 or not (np.isfinite(x).all() and np.isfinite(errors).all()):
            raise ValueError(f"{n} states: at least 2 are needed, with errors, and all finite")
        if not 0 <= flight.min() <= flight.max() < n:
            raise ValueError(f"flights {flight.min()} to {flight.max()}: are counted from 0, and each has a state")
        z = features(x)
        self._scaler, self._targets = Scaler.of(z), Scaler.of(errors)
        self._z = self._scaler(z)
        self.x, self.errors, self.flight, self.kernels = x, errors, flight, kernels

    @classmethod
    def fit(cls, x: Array, errors: Array, flight: Indices | None = None, samples: int = SAMPLES) -> "ObservationModel":
        """Learns from true states x (N, >= 10) and errors (N, 9), observed minus true, in the order of time.

        Args:
            flight: (N,) number of the flight of each (None: all of one). What the passes of the same course differ in, in
                one flight or in several, a draw has for itself.
            samples: so many, evenly spread, are used.

        Raises:
            ValueError: as of the constructor.
        """
        pick = np.unique(np.linspace(0, len(x) - 1, min(samples, len(x))).round().astype(int))
        flight = np.zeros(len(x), int) if flight is None else flight
        blank = cls(x[pick], errors[pick], passes(x[pick], flight[pick]), [Kernel(np.ones(15), 1.0, 0.0)] * ERRORS)
        kernels = gaussian_process.fit(blank._z, blank._targets(blank.errors), blank.flight)
        return cls(blank.x, blank.errors, blank.flight, kernels)

    @classmethod
    def of_size(cls, way_w: Array, sigmas: tuple[float, float, float], length_m: float) -> "ObservationModel":
        """Errors of a chosen size, learned from nothing: functions of the place alone, each flight's its own.

        Args:
            way_w: (n, 3) m, world, evenly along where flights lead; n is even.
            sigmas: standard deviations of one axis of position (m), velocity (m/s) and attitude (rad).
            length_m: over which they change.
        """
        x = np.zeros((len(way_w), 10))
        x[:, P], x[:, 3] = way_w, 1.0
        errors = np.outer((-1.0) ** np.arange(len(x)), np.repeat(sigmas, 3))  # of this spread; no draw depends on them
        spread = Scaler.of(features(x)).spread
        lengths = length_m / np.where(spread > 1e-9, spread, length_m)
        return cls(x, errors, np.zeros(len(x), int), [Kernel(lengths, 0.0, 1.0 - JITTER)] * ERRORS)

    def sample(self, rng: np.random.Generator) -> "Realisation":
        """One realisation of the posterior, of a flight of its own."""
        targets = self._targets(self.errors).T
        draws = [Draw(k, self._z, y, self.flight, rng) for k, y in zip(self.kernels, targets, strict=True)]
        return Realisation(self._scaler, self._targets, draws)

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes."""
        lengths = np.array([kernel.lengths for kernel in self.kernels])
        shares = np.array([(kernel.shared, kernel.own) for kernel in self.kernels])
        return {"x": self.x, "errors": self.errors, "flight": self.flight, "lengths": lengths, "shares": shares}

    @classmethod
    def from_arrays(cls, x: Array, errors: Array, flight: Array, lengths: Array, shares: Array) -> "ObservationModel":
        """Raises ValueError, TypeError or IndexError for what is none."""
        if not (lengths > 0).all() or not (shares >= 0).all() or not (shares.sum(axis=1) <= 1).all():
            raise ValueError("lengths must be positive, and shares of a variance lie between 0 and 1")
        kernels = [Kernel(length, *map(float, share)) for length, share in zip(lengths, shares, strict=True)]
        return cls(x, errors, flight.astype(int), kernels)


class Realisation:
    """Errors of an odometry as one fixed function of the true state."""

    def __init__(self, scaler: Scaler, targets: Scaler, draws: list[Draw]):
        self._scaler, self._targets, self._draws = scaler, targets, draws

    def errors(self, x: Array) -> Array:
        """(N, 9) errors for states (N, >= 10)."""
        z = self._scaler(features(x))
        drawn = np.column_stack([draw(z) for draw in self._draws])
        return self._targets.mean + self._targets.spread * drawn

    def observe(self, x: Array) -> Observation:
        """What is seen of the state x (>= 10,) as RATES_X."""
        error = self.errors(x)[0]
        return Observation(x[P] + error[:3], np.array(product(exp(error[6:9]), x[Q])), x[V] + error[3:6])
