"""The two flight models of a plan: layouts, dynamics, limits, and what the optimiser needs to know of each.

Both are integrated by Runge-Kutta steps with the quaternion normalised after each: without that the optimiser grows |q| to
gain thrust.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vehicle.dynamics import RATES_U, RATES_X, ROTORS_U, ROTORS_X, authority, rates, rk4, rotors
from vehicle.layout import Layout
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

# Of the rotors' room beside the thrust, that a plan turns with; the rest is the controller's. Where the rotors have two thirds of
# what is believed, 0.5 finishes VQ1 on the true state by both controllers, 0.7 by one, 1.0 by none.
TURNING = 0.5
P, Q, V, W, C = (RATES_X[name].at for name in "pqvwc")  # p, q, v, w stand at the same places in both models


@dataclass(frozen=True)
class Model(ABC):
    """A flight model of a vehicle, limited to a share `reserve` of its thrust and body rates."""

    vehicle: Vehicle
    reserve: float = 1.0

    name: ClassVar[str]
    x: ClassVar[Layout]
    u: ClassVar[Layout]
    f: ClassVar[Callable[..., Any]]  # dx/dt (x, u, parameters)
    substeps: ClassVar[int]  # Runge-Kutta steps per interval
    jump: ClassVar[float]  # share of an input's range; two intervals that differ by more are worth halving
    nearby: ClassVar[float]  # barrier to begin with on a finer mesh: more blurs jumps, less takes more iterations
    weight_level: ClassVar[Array]  # (NU,) s per unit^2 s: keeps free inputs still
    weight_change: ClassVar[Array]  # (NU,) s per unit^2 of change between intervals

    @property
    @abstractmethod
    def parameters(self) -> Any:
        """What `f` takes as its third argument."""

    @property
    @abstractmethod
    def u_low(self) -> Array:
        """(NU,)."""

    @property
    @abstractmethod
    def u_high(self) -> Array:
        """(NU,)."""

    @property
    def x_high(self) -> Array:
        """(NX,) of |x|; infinite where free."""
        return np.full(self.x.size, np.inf)

    @cached_property
    def w_high(self) -> Array:
        """(3,) rad/s of the body rates."""
        return self.reserve * np.array(self.vehicle.rate_max_rad_s)

    @property
    def speed_max(self) -> float:
        """m/s; infinite where the vehicle names none."""
        return self.vehicle.speed_max_m_s

    @property
    def thrust_rate_max(self) -> float:
        """m/s^3; infinite where only the lag limits it."""
        return self.vehicle.thrust_rate_max_m_s3 or np.inf

    @property
    def slew_max(self) -> Array:
        """(3,) rad/s^2 at half thrust; infinite where the rotors' thrusts are limited themselves, or nothing is known."""
        return np.full(3, np.inf)

    def turning(self, c: Any) -> Any:
        """Of `slew_max`, what a plan may turn with, all axes together, beside a thrust c (m/s^2)."""
        return TURNING * authority(c, self.vehicle.thrust_max)

    @abstractmethod
    def thrust_rates(self, before: Any, u: Any, dt: Any) -> Any:
        """m/s^3, how fast the thrust changes with inputs u (NU, N) held for dt (NU, N) from states (NX, N); CasADi or numpy."""

    @abstractmethod
    def state(self, p: Array, q: Array, v: Array, w: Array, c: Array) -> Array:
        """(NX, N) from p (3, N), q (4, N), v (3, N), w (3, N) and thrust c (N,)."""

    @abstractmethod
    def commands(self, x: Array, u: Array) -> Array:
        """(M, 4) body rates and thrust, as a flight controller takes them, of rows x (M, NX) and u (M, NU)."""

    @abstractmethod
    def _holding(self, w: Array, c: Array) -> Array:
        """(NU, N) that hold body rates w (3, N) and thrust c (N,), m/s^2, wherever the limits lie."""

    def inputs(self, w: Array, c: Array) -> Array:
        """(NU, N) that hold body rates w (3, N) and thrust c (N,), m/s^2, well within the limits."""
        span = self.u_high - self.u_low
        low, high = self.u_low + 0.01 * span, self.u_high - 0.01 * span
        return np.clip(self._holding(w, c), low[:, None], high[:, None])

    def derivative(self, x: Any, u: Any) -> Any:
        """dx/dt; rows of x and u may be arrays."""
        return self.f(x, u, self.parameters)

    def integrate(self, x: Array, u: Array, dt: Array, steps: int) -> Array:
        """(NX, N) states dt (N,) later, from x (NX, N) with u (NU, N) held."""
        rows = list(x)
        for _ in range(steps):
            rows = rk4(self.f, rows, list(u), self.parameters, dt / steps)
        result = np.array(rows)
        result[Q] /= np.linalg.norm(result[Q], axis=0)
        return result


class RatesModel(Model):
    """State p, q, v, w, c; inputs commanded body rates and thrust, which w and c follow with a lag."""

    name = "rates"
    x, u = RATES_X, RATES_U
    f = staticmethod(rates)
    substeps, jump, nearby = 2, 0.6, 3e-5
    # Yaw is free almost everywhere, so the weight on rates decides it; it costs 1 % of time and halves the yaw rate.
    weight_level, weight_change = np.array([1e-3, 1e-3, 1e-3, 0.0]), np.full(4, 1e-5)

    @property
    def parameters(self) -> Any:
        return self.vehicle.rates_parameters

    @cached_property
    def u_low(self) -> Array:
        return np.array([*-self.w_high, self.vehicle.thrust_min])

    @cached_property
    def u_high(self) -> Array:
        return np.array([*self.w_high, self.reserve * self.vehicle.thrust_max])

    @property
    def slew_max(self) -> Array:
        return np.array(self.vehicle.slew_max)

    def thrust_rates(self, before: Any, u: Any, dt: Any) -> Any:
        """The fastest in each interval (N,)."""
        return (u[3, :] - before[C.start, :]) / self.parameters.thrust_lag

    def state(self, p: Array, q: Array, v: Array, w: Array, c: Array) -> Array:
        return np.vstack([p, q, v, w, c[None]])

    def commands(self, x: Array, u: Array) -> Array:
        return u

    def _holding(self, w: Array, c: Array) -> Array:
        return np.vstack([w, c[None]])


class RotorsModel(Model):
    """State p, q, v, w; inputs the thrusts of four rotors (CPC)."""

    name = "rotors"
    x, u = ROTORS_X, ROTORS_U
    f = staticmethod(rotors)
    substeps, jump, nearby = 1, 0.07, 3e-6
    weight_level, weight_change = np.zeros(4), np.full(4, 1e-7)

    def __post_init__(self) -> None:
        """Raises UserError for a vehicle without rotor-level facts."""
        _ = self.vehicle.rotors_parameters

    @property
    def parameters(self) -> Any:
        return self.vehicle.rotors_parameters

    @cached_property
    def x_high(self) -> Array:
        high = np.full(self.x.size, np.inf)
        high[W] = self.w_high
        return high

    @property
    def u_low(self) -> Array:
        return np.zeros(4)

    @cached_property
    def u_high(self) -> Array:
        assert self.vehicle.rotors is not None
        return np.full(4, self.reserve * self.vehicle.rotors.thrust_max_n)

    def thrust_rates(self, before: Any, u: Any, dt: Any) -> Any:
        """From each interval to the next (NU, N - 1), of four rotors that all change as fast as that one."""
        return 4 * 4 / self.parameters.mass * 2 * (u[:, 1:] - u[:, :-1]) / (dt[:, 1:] + dt[:, :-1])

    def state(self, p: Array, q: Array, v: Array, w: Array, c: Array) -> Array:
        return np.vstack([p, q, v, w])

    def commands(self, x: Array, u: Array) -> Array:
        return np.column_stack([x[:, W], u.sum(axis=1) / self.parameters.mass])

    def _holding(self, w: Array, c: Array) -> Array:
        return np.tile(c / (4 / self.parameters.mass), (4, 1))


MODELS: dict[str, type[Model]] = {model.name: model for model in (RatesModel, RotorsModel)}
