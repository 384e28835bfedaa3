"""Residual models of observation and dynamics, learned from flights with ground truth (Swift, Methods, eq. 10 and 11).

Nine one-dimensional Gaussian processes of the true state give the errors of position, velocity and attitude. The error at one
state may differ between flights, or between passes of a course, as drift does; with one flight this is eq. (10):

    k = (shared + own [same flight]) exp(-1/2 (z - z')' L^-2 (z - z')) + noise [same sample],   shared + own + noise = 1

for targets of unit variance, with hyperparameters by marginal likelihood. A realisation is sampled as a function, so that a
revisited state has the same error: by pathwise conditioning (Wilson et al., "Efficiently sampling functions from Gaussian
process posteriors", ICML 2020).

`residual_accelerations` steps a plant along a flight, each tick from the true state with the recorded commands; the difference
in velocity gives the residual acceleration. It is specific to that plant, so that modelled aerodynamics are not counted twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.files import read_arrays, reading, write_arrays
from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics.plant import RIGID, P, Q, UnmodelledAcceleration, V, make_plant
from gate_racer.sim.physics.registry import Setting
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import Array, Indices, rotate
from gate_racer.vehicle.vehicle import Vehicle

WAVES = 1024  # random Fourier features of each part of a sample (chosen)
LONGEST = 1e3  # standard deviations of a feature, upper bound of a length scale: the correlation then changes by 1e-5
SHORTEST = 1e-3  # standard deviations, lower bound of the length scale of a constant feature
RATIO = 1e-6  # lower and, inverted, upper bound of a ratio of variances: a thousandth in amplitude
STEPS = 100  # iteration limit of the hyperparameter search


@dataclass(frozen=True)
class Kernel:
    """Length scales (d,) in standard deviations of the features, and shares of the variance; the remainder is white noise."""

    lengths: Array
    shared: float  # share of the variance that is a function of the state common to all flights
    own: float  # share of the variance that is a function of the state specific to each flight

    @property
    def noise(self) -> float:
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


ERRORS = 9  # position (m), velocity (m/s), attitude (rad, rotation vector), world: observed minus true
RETURN_M, AWAY_M = 2.0, 20.0  # m, a revisit: nearer than the first, and over the second farther along the path
JITTER = 0.02  # share of the variance of `of_size` that is white from sample to sample (a guess)
SAMPLES = 300  # samples of all flights to which the Gaussian processes are fitted; the paper's last 50 s


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
        return cls(z.mean(axis=0), z.std(axis=0))

    def __call__(self, z: Array) -> Array:
        return (z - self.mean) / np.where(self.spread > 1e-9, self.spread, np.inf)


class ObservationModel:
    """Gaussian processes of an odometry's errors."""

    def __init__(self, x: Array, errors: Array, flight: Indices, kernels: list[Kernel]):
        """Store true states (n, >= 10), errors (n, 9), passes (n,) counted from 0, and one kernel per column of the errors.
        Raises ValueError where shapes do not match, or a value is not finite."""
        n, kinds = len(x), [np.shape(kernel.lengths) for kernel in kernels]
        shaped = np.shape(errors) == (n, ERRORS) and np.shape(flight) == (n,) and kinds == [(15,)] * ERRORS and n > 1
        if not (
            shaped and np.isfinite(x).all() and np.isfinite(errors).all() and 0 <= flight.min() <= flight.max() < n
        ):
            raise ValueError(
                f"expected 2 or more finite states and errors (n, {ERRORS}), flights 0 to n - 1, and kernels"
            )
        z = features(x)
        self._scaler, self._targets = Scaler.of(z), Scaler.of(errors)
        self._z = self._scaler(z)
        self.x, self.errors, self.flight, self.kernels = x, errors, flight, kernels

    @classmethod
    def fit(cls, x: Array, errors: Array, flight: Indices | None = None, samples: int = SAMPLES) -> "ObservationModel":
        """Fit to true states x (N, >= 10) and errors (N, 9), observed minus true, in the order of time, by `samples` of them.

        flight: (N,) flight number of each state (None: a single flight). A sample has its own realisation of the part that
        differs between passes of the course, within a flight or across flights.
        """
        pick = np.unique(np.linspace(0, len(x) - 1, min(samples, len(x))).round().astype(int))
        flight = np.zeros(len(x), int) if flight is None else flight
        blank = cls(x[pick], errors[pick], passes(x[pick], flight[pick]), [Kernel(np.ones(15), 1.0, 0.0)] * ERRORS)
        kernels = fit(blank._z, blank._targets(blank.errors), blank.flight)
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
        if not ((lengths > 0).all() and (shares >= 0).all() and (shares.sum(axis=1) <= 1).all()):
            raise ValueError("lengths must be positive, shares of a variance and their sum between 0 and 1")
        kernels = [Kernel(length, *map(float, share)) for length, share in zip(lengths, shares, strict=True)]
        return cls(x, errors, flight.astype(int), kernels)


class Realisation:
    def __init__(self, scaler: Scaler, targets: Scaler, draws: list[Draw]):
        self._scaler, self._targets, self._draws = scaler, targets, draws

    def errors(self, x: Array) -> Array:
        """Return errors (N, 9) at states (N, >= 10)."""
        z = self._scaler(features(x))
        drawn = np.column_stack([draw(z) for draw in self._draws])
        return self._targets.mean + self._targets.spread * drawn


NEIGHBOURS = 5  # nearest samples averaged, as in the paper
WINDOW_S = 0.05  # s, averaging window of one sample: the paper's 1000 samples in 50 s
SETTLE_S = 0.3  # s, time until the unmeasured states of motors and flight controller have converged
LEFT_M = 0.1  # m from the start, after which samples count: a vehicle on its pad carries no information
BLOW_M_S2 = 100.0  # m/s^2, above this a residual is a contact and not aerodynamics


class ResidualAcceleration:
    """`UnmodelledAcceleration` of a plant: mean of the five nearest neighbours in the training samples."""

    def __init__(self, x: Array, c: Array, accel: Array):
        """Store states x (N, >= 10), commanded thrusts c (N,) and accelerations (N, 3), measured minus modelled, m/s^2.
        Raises ValueError where there are too few samples, shapes do not match, or a value is not finite."""
        n = len(x)
        if n < NEIGHBOURS or np.shape(c) != (n,) or np.shape(accel) != (n, 3) or not np.isfinite(accel).all():
            raise ValueError(f"{n} samples: expected at least {NEIGHBOURS}, thrusts and accelerations (N, 3), finite")
        from scipy.spatial import KDTree  # slow to load, and most simulators have no residual

        self.x, self.c, self.accel = x, c, accel
        z = np.column_stack([features(x), c])
        self._scaler = Scaler.of(z)
        self._tree = KDTree(self._scaler(z))

    def __call__(self, _: float, x: Array, c: float) -> Array:
        return self.many(x, np.array([c]))[0]

    def many(self, x: Array, c: Array) -> Array:
        """Return accelerations (N, 3) at states (N, >= 10) and commanded thrusts (N,), as `Batch.step` takes them."""
        _, nearest = self._tree.query(self._scaler(np.column_stack([features(x), c])), NEIGHBOURS)
        return np.asarray(self.accel[nearest].mean(axis=1))


def together(*parts: UnmodelledAcceleration | None) -> UnmodelledAcceleration | None:
    """Return the sum of the residuals that are not None."""
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda t, x, c: np.sum([part(t, x, c) for part in found], axis=0)


def residual_accelerations(
    t: Array, x: Array, commands: Iterable[tuple[float, AttitudeTarget]], vehicle: Vehicle, setting: Setting
) -> tuple[Array, Array, Array]:
    """Return states (N, 13), commanded thrusts (N,) and residual accelerations (N, 3) of a setting's plant, m/s^2, world.

    t (M,): s, increasing. x (M, 13): true pose and motion then. commands: those of that flight, with the time of reception, s.
    Raises UserError where the vehicle cannot fly in this setting.
    """
    commanded = [0.0]  # m/s^2, at every advance

    def probe(_: float, __: Array, c: float) -> Array:
        commanded.append(c)
        return np.zeros(3)

    plant = make_plant(vehicle, Start((0.0, 0.0, 0.0), 0.0), setting, None, probe)
    plant.reset(float(t[0]))
    plant.armed = True
    for at, target in commands:
        plant.command(at, target)
    plant.place(x[0, P], x[0, Q], x[0, V])
    rows, missed, window, left = list[tuple[Array, float, Array]](), np.zeros(3), list[tuple[Array, float]](), False
    begin = float(t[0])
    for i in range(len(t) - 1):
        plant.x[RIGID] = x[i]
        plant.advance(float(t[i + 1]))
        missed += x[i + 1, V] - plant.x[V]
        window.append((x[i], commanded[-1]))
        if t[i + 1] - begin < WINDOW_S - 1e-6:
            continue
        accel = missed / (t[i + 1] - begin)
        left = left or bool(np.linalg.norm(x[i + 1, P] - x[0, P]) > LEFT_M)
        if left and begin - t[0] >= SETTLE_S and np.linalg.norm(accel) < BLOW_M_S2:
            rows.append((*window[len(window) // 2], accel))
        missed, window, begin = np.zeros(3), [], float(t[i + 1])
    states, thrusts, accel = zip(*rows, strict=True) if rows else ((), (), ())
    return np.reshape(states, (-1, 13)), np.array(thrusts), np.reshape(accel, (-1, 3))


@dataclass(frozen=True)
class Residuals:
    """Contents of a residual file: the residual models of one vehicle's plant and of its odometry, learned or specified."""

    vehicle: str  # hash of the vehicle
    aerodynamic: bool  # whether the acceleration belongs to the grey-box plant
    acceleration: ResidualAcceleration | None  # None: no residual acceleration
    observation: ObservationModel | None = None  # None: no estimates were available

    def require(self, vehicle: Vehicle, setting: Setting, where: str) -> None:
        """Check vehicle and plant. Raises UserError for another plant, whose aerodynamics would count twice or not at all."""
        if self.vehicle != vehicle.hash:
            raise UserError(f"{where}: was fitted to another vehicle than {vehicle.name}, or to other parameters of it")
        if self.acceleration is not None and self.aerodynamic != setting.aerodynamic:
            names = {True: "grey-box model (settings 3 and 4)", False: "`rates` model (settings 1 and 2)"}
            fitted, flown = names[self.aerodynamic], names[setting.aerodynamic]
            raise UserError(f"{where}: was fitted to the {fitted}, but the {flown} is simulated: fit it to that one")

    def save(self, path: Path) -> None:
        """Write one .npz file. Raises UserError when it cannot be written."""
        facts = {"vehicle": np.array(self.vehicle), "aerodynamic": np.array(self.aerodynamic)}
        if (of := self.acceleration) is not None:
            facts |= {"acceleration_x": of.x, "acceleration_c": of.c, "acceleration": of.accel}
        seen = self.observation.arrays() if self.observation else {}
        write_arrays(path, facts | {f"observation_{name}": array for name, array in seen.items()})

    @classmethod
    def load(cls, path: Path) -> "Residuals":
        """Read a residual file. Raises UserError when it is missing or not a residual file."""
        file = read_arrays(path)
        with reading(path, "no residual file; make one with race-bench fit-residuals"):
            acceleration = None
            if "acceleration" in file:
                given = (file[name] for name in ("acceleration_x", "acceleration_c", "acceleration"))
                acceleration = ResidualAcceleration(*given)
            seen = {name.removeprefix("observation_"): a for name, a in file.items() if name.startswith("observation_")}
            observation = ObservationModel.from_arrays(**seen) if seen else None
            return cls(str(file["vehicle"]), bool(file["aerodynamic"]), acceleration, observation)
