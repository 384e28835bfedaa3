"""What a model and an odometry get wrong, learned from a flight with truth (Swift, Methods, "Fine-tuning").

`ObservationModel`: nine one-dimensional Gaussian processes of the true state give the errors of position, velocity and
attitude, eq. (10). One realisation is drawn as a function, so that a state met again has the same error, whenever it is asked
for: pathwise conditioning (Wilson et al., "Efficiently sampling functions from Gaussian process posteriors", ICML 2020).
`ResidualAcceleration`: the mean of the five nearest neighbours in state and commanded thrust, eq. (11).
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel

from sim.physics.plant import P, Q, V
from vehicle.dynamics import translation
from vehicle.files import read_arrays, reading
from vehicle.rotation import Array, exp, matrix, product
from vehicle.vehicle import Vehicle

# Kernel, noise and k of the released pseudocode (RoboDD/drone_policy, mirror of Zenodo 7955278).
KERNEL = 1.0 * RBF(1.0) + 0.2 * RBF(0.5) + 0.1 * RBF(0.01)
ALPHA = np.repeat([0.05, 0.1, 0.001], 3)  # position, velocity, attitude
NEIGHBOURS = 5
SAMPLES = 300  # of a flight that a Gaussian process is fitted to; the paper's flights last 50 s
WAVES = 1024  # random Fourier features of a realisation's prior


@dataclass(frozen=True, slots=True)
class Observation:
    """What a controller is told of the state; world NED."""

    p_wb: Array
    q_wb: Array
    v_w: Array


def features(x: Array) -> Array:
    """Position, velocity and rotation matrix (..., 15) of states (..., >= 10) as RATES_X."""
    x = np.atleast_2d(x)
    R = np.array([matrix(q).ravel() for q in x[:, Q]])
    return np.column_stack([x[:, P], x[:, V], R])


@dataclass(frozen=True)
class Scaler:
    """Features to zero mean and unit spread; what never changes stays at zero."""

    mean: Array
    spread: Array

    @classmethod
    def of(cls, z: Array) -> "Scaler":
        spread = z.std(axis=0)
        return cls(z.mean(axis=0), np.where(spread > 1e-9, spread, 1.0))

    def __call__(self, z: Array) -> Array:
        return (z - self.mean) / self.spread


class ObservationModel:
    """Gaussian processes of observation errors: position (m), velocity (m/s), attitude (rad, rotation vector, world)."""

    def __init__(self, scaler: Scaler, z: Array, errors: Array, kernels: list[Kernel]):
        """z (n, 15) scaled features, errors (n, 9), one kernel for each column."""
        self._scaler, self._z, self._errors, self._kernels = scaler, z, errors, kernels

    @classmethod
    def fit(cls, x: Array, errors: Array, samples: int = SAMPLES) -> "ObservationModel":
        """Learns from true states x (N, >= 10) and errors (N, 9), observed minus true, of a flight.

        Kernels are fitted by the largest marginal likelihood, to evenly spread samples.
        """
        pick = np.unique(np.linspace(0, len(x) - 1, min(samples, len(x))).round().astype(int))
        scaler = Scaler.of(features(x[pick]))
        z = scaler(features(x[pick]))
        with warnings.catch_warnings():  # a term that the data do not need ends at its bound
            warnings.simplefilter("ignore", ConvergenceWarning)
            kernels = [
                GaussianProcessRegressor(KERNEL, alpha=alpha, random_state=0).fit(z, column).kernel_
                for alpha, column in zip(ALPHA, errors[pick].T, strict=True)
            ]
        return cls(scaler, z, errors[pick], kernels)

    def sample(self, rng: np.random.Generator) -> "Realisation":
        """One realisation of the posterior."""
        parts = [
            _Path(self._z, self._errors[:, i], kernel, float(ALPHA[i]), rng) for i, kernel in enumerate(self._kernels)
        ]
        return Realisation(self._scaler, parts)

    def save(self, path: Path) -> None:
        """Writes one .npz file."""
        theta = np.array([kernel.theta for kernel in self._kernels])
        with path.open("wb") as file:
            np.savez(
                file, mean=self._scaler.mean, spread=self._scaler.spread, z=self._z, errors=self._errors, theta=theta
            )

    @classmethod
    def load(cls, path: Path) -> "ObservationModel":
        """Raises UserError when the file is missing or no observation model."""
        file = read_arrays(path)
        with reading(path, "no observation model; make one with tools/fit_residuals.py"):
            kernels = [KERNEL.clone_with_theta(theta) for theta in file["theta"]]
            return cls(Scaler(file["mean"], file["spread"]), file["z"], file["errors"], kernels)


class Realisation:
    """Errors of an odometry as one fixed function of the true state."""

    def __init__(self, scaler: Scaler, parts: list["_Path"]):
        self._scaler, self._parts = scaler, parts

    def errors(self, x: Array) -> Array:
        """(N, 9) errors for states (N, >= 10)."""
        z = self._scaler(features(x))
        return np.column_stack([part(z) for part in self._parts])

    def observe(self, x: Array) -> Observation:
        """What is seen of the state x (>= 10,) as RATES_X."""
        error = self.errors(x)[0]
        return Observation(x[P] + error[:3], np.array(product(exp(error[6:9]), x[Q])), x[V] + error[3:6])


class _Path:
    """f(z) = w . phi(z) + k(z, Z) (K + alpha I)^-1 (y - w . phi(Z) - eps), a draw from the posterior."""

    def __init__(self, z: Array, y: Array, kernel: Kernel, alpha: float, rng: np.random.Generator):
        self._z, self._kernel = z, kernel
        variances, lengths = zip(*_terms(kernel), strict=True)
        # Fourier features of a sum of squared exponentials: each wave belongs to one term, by its share of the variance.
        term = rng.choice(len(variances), WAVES, p=np.array(variances) / sum(variances))
        self._omega = rng.standard_normal((WAVES, z.shape[1])) / np.array(lengths)[term, None]
        self._phase = rng.uniform(0, 2 * np.pi, WAVES)
        self._weight = np.sqrt(2 * sum(variances) / WAVES) * rng.standard_normal(WAVES)
        gap = y - self._prior(z) - np.sqrt(alpha) * rng.standard_normal(len(y))
        self._correction = np.linalg.solve(kernel(z) + alpha * np.eye(len(y)), gap)

    def _prior(self, z: Array) -> Array:
        return np.cos(z @ self._omega.T + self._phase) @ self._weight

    def __call__(self, z: Array) -> Array:
        return self._prior(z) + self._kernel(z, self._z) @ self._correction


def _terms(kernel: Kernel) -> list[tuple[float, float]]:
    """(variance, length scale) of each term of a sum of constant times RBF kernels."""
    if isinstance(kernel.k1, ConstantKernel):
        return [(kernel.k1.constant_value, kernel.k2.length_scale)]
    return _terms(kernel.k1) + _terms(kernel.k2)


class ResidualAcceleration:
    """Acceleration that a model lacks, world axes: a `Residual` for the plant."""

    def __init__(self, x: Array, c: Array, accel: Array):
        """States x (N, >= 10), commanded thrusts c (N,) and accelerations (N, 3), measured minus modelled, m/s^2."""
        if len(x) < NEIGHBOURS:
            raise ValueError(f"{len(x)} samples, at least {NEIGHBOURS} are needed")
        self._data = (x, c, accel)
        z = np.column_stack([features(x), c])
        self._scaler = Scaler.of(z)
        self._tree = KDTree(self._scaler(z))

    def __call__(self, _: float, x: Array, c: float) -> Array:
        _, nearest = self._tree.query(self._scaler(np.append(features(x)[0], c)), NEIGHBOURS)
        return self._data[2][nearest].mean(axis=0)

    def save(self, path: Path) -> None:
        """Writes one .npz file."""
        with path.open("wb") as file:
            np.savez(file, x=self._data[0], c=self._data[1], accel=self._data[2])

    @classmethod
    def load(cls, path: Path) -> "ResidualAcceleration":
        """Raises UserError when the file is missing or holds no residual acceleration."""
        file = read_arrays(path)
        with reading(path, "no residual acceleration; see tools/fit_residuals.py"):
            return cls(file["x"], file["c"], file["accel"])


def lacking(t: Array, x: Array, c: Array, vehicle: Vehicle) -> Array:
    """(N, 3) accelerations that the `rates` model lacks, world, m/s^2: central differences of v less the model's.

    t (N,) in s, true states x (N, >= 10), thrusts c (N,) commanded at those times, in m/s^2, before delay and lag.
    """
    par, thrust, model = vehicle.rates_parameters, 0.0, np.empty((len(t), 3))
    acting = np.interp(t - vehicle.command_delay_s, t, c)
    for i, state in enumerate(x):
        if i:
            thrust += (1 - np.exp(-(t[i] - t[i - 1]) / par.thrust_lag)) * (acting[i - 1] - thrust)
        model[i] = translation(state[Q], state[V], thrust, par.drag_linear, par.drag_quadratic)
    return np.gradient(x[:, V], t, axis=0) - model
