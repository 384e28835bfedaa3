"""The two flight models of a plan: layouts, dynamics, limits, and the optimiser's settings for each.

The quaternion is normalised after each Runge-Kutta step; otherwise the optimiser increases |q| to gain thrust.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gate_racer.vehicle.dynamics import RATES_U, RATES_X, ROTORS_U, ROTORS_X, Layout, authority, rates, rk4, rotors
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

# Fraction of the torque left beside the thrust that a plan may use; the rest is for the controller. In a vehicle with two thirds
# of the modelled torque, 0.5 finishes VQ1 on the true state with both controllers, 0.7 with one, 1.0 with none.
# Torque limits in the controller's own problem instead double its solver's time, and leave a third of the sightings.
TURNING = 0.5
HOLDING = 0.5  # -, the same for the torque of the air, at most that of half thrust: with less thrust there is no more (chosen)
STEP_LAGS = 1.5  # greatest Runge-Kutta step over the shortest lag: stable below 2.8
SUBSTEPS_MOST = 16  # greatest number of steps in an interval: for lags from 3 ms on
NODE_S = 0.07  # s, spacing of the first mesh (chosen)
P, Q, V, W, C = (RATES_X[name].at for name in "pqvwc")  # p, q, v, w have the same indices in both models


class Model(ABC):
    """Flight model of a vehicle, limited to the fraction `reserve` of its thrust and body rates, and to a speed."""

    name: ClassVar[str]
    x: ClassVar[Layout]
    u: ClassVar[Layout]
    f: ClassVar[Callable[..., Any]]  # dx/dt (x, u, parameters)
    substeps: int  # Runge-Kutta steps per interval
    jump: ClassVar[float]  # -, change of an input over its range above which both intervals beside it are halved
    nearby: ClassVar[float]  # initial barrier on a finer mesh: larger blurs jumps, smaller takes more iterations
    weight_level: ClassVar[Array]  # (NU,) 1/unit^2, weight of the integral of u^2, which fixes free inputs
    weight_change: ClassVar[Array]  # (NU,) s/unit^2, weight of the squared change between intervals
    parameters: Any  # third argument of `f`
    u_low: Array  # (NU,) bounds of the inputs
    u_high: Array

    def __init__(self, vehicle: Vehicle, reserve: float = 1.0, speed_m_s: float = np.inf):
        self.w_high = reserve * np.array(vehicle.rate_max_rad_s)  # (3,) rad/s
        self.x_high = np.full(self.x.size, np.inf)  # (NX,) bounds of |x|; infinite where free
        self.speed_max = min(vehicle.speed_max_m_s, speed_m_s)  # m/s; infinite if there is none
        self.thrust_rate_max = vehicle.thrust_rate_max_m_s3 or np.inf  # m/s^3; infinite if only the lag limits it
        self.thrust_max = vehicle.thrust_max
        # (3,) rad/s^2, angular accelerations available at half thrust; infinite if unknown, or if rotor thrusts are limited.
        self.slew_max = np.full(3, np.inf)
        self.held = np.zeros(2)  # s/m, fraction of `slew_max` per v_x and v_y of the body that holds it against the air

    @abstractmethod
    def thrust_rates(self, before: Any, u: Any, dt: Any) -> Any:
        """Return rates of thrust, m/s^3, under inputs u (NU, N) held for dt (NU, N) from states (NX, N); CasADi or NumPy."""

    def state(self, p: Array, q: Array, v: Array, w: Array, c: Array) -> Array:
        """Return states (NX, N) from p (3, N), q (4, N), v (3, N), w (3, N) and thrust c (N,), m/s^2."""
        return np.vstack([p, q, v, w, c[None]])[: self.x.size]

    @abstractmethod
    def commands(self, x: Array, u: Array) -> Array:
        """Return the commands (M, 4) of a flight controller, body rates and thrust, from rows x (M, NX) and u (M, NU)."""

    @abstractmethod
    def _holding(self, w: Array, c: Array) -> Array:
        """Return inputs (NU, N) that hold body rates w (3, N) and thrust c (N,), m/s^2, regardless of limits."""

    def inputs(self, w: Array, c: Array) -> Array:
        """Return the same inputs, clipped inside the limits."""
        span = self.u_high - self.u_low
        low, high = self.u_low + 0.01 * span, self.u_high - 0.01 * span
        return np.clip(self._holding(w, c), low[:, None], high[:, None])

    def turning(self, c: Any) -> Any:
        """Return the fraction of `slew_max` that a plan may use at a thrust c, m/s^2, summed over the axes."""
        return TURNING * authority(c, self.thrust_max)

    def holding(self, c: Any) -> Any:
        """Return the fraction of `slew_max` that the air may take at a thrust c, m/s^2; HOLDING below half thrust."""
        return HOLDING * authority(c, self.thrust_max)

    def derivative(self, x: Any, u: Any) -> Any:
        return self.f(x, u, self.parameters)

    def integrate(self, x: Array, u: Array, dt: Array, steps: int) -> Array:
        """Integrate states x (NX, N) over dt (N,), s, with constant inputs u (NU, N); returns (NX, N)."""
        rows = list(x)
        for _ in range(steps):
            rows = rk4(self.f, rows, list(u), self.parameters, dt / steps)
        result = np.array(rows)
        result[Q] /= np.linalg.norm(result[Q], axis=0)
        return result


class RatesModel(Model):
    """Model with state p, q, v, w, c and commanded body rates and thrust as inputs, which w and c follow with a lag."""

    name = "rates"
    x, u = RATES_X, RATES_U
    f = staticmethod(rates)
    jump, nearby = 0.6, 3e-5
    # Yaw is almost free, so the weight on rates determines it, which costs 1 % of time and halves the yaw rate.
    weight_level, weight_change = np.array([1e-3, 1e-3, 1e-3, 0.0]), np.full(4, 1e-5)

    def __init__(self, vehicle: Vehicle, reserve: float = 1.0, speed_m_s: float = np.inf):
        super().__init__(vehicle, reserve, speed_m_s)
        self.parameters, self.slew_max = vehicle.rates_parameters, np.array(vehicle.slew_max)
        if vehicle.rotors and vehicle.grey_box:
            self.slew_max = np.array(vehicle.rotors.slew_max_rad_s2)
            self.held = (np.array(vehicle.air_torque_1_ms) / self.slew_max[:2])[::-1]
        shortest_s = min(vehicle.thrust_lag_s, *vehicle.rate_lag_s)
        self.substeps = min(max(2, math.ceil(NODE_S / (STEP_LAGS * shortest_s))), SUBSTEPS_MOST)
        self.u_low = np.array([*-self.w_high, vehicle.thrust_min])
        self.u_high = np.array([*self.w_high, reserve * vehicle.thrust_max])

    def thrust_rates(self, before: Any, u: Any, dt: Any) -> Any:
        """Return the mean rates of thrust (1, N), m/s^3, over each interval."""
        length = dt[0, :]
        settled = 1 - np.e ** (-length / self.parameters.thrust_lag)  # -, by the end of an interval
        return (u[3, :] - before[C.start, :]) * settled / length

    def commands(self, x: Array, u: Array) -> Array:
        return u

    def _holding(self, w: Array, c: Array) -> Array:
        return np.vstack([w, c[None]])


class RotorsModel(Model):
    """Model with state p, q, v, w and the thrusts of four rotors, N, as inputs (CPC). Raises UserError without rotor data."""

    name = "rotors"
    x, u = ROTORS_X, ROTORS_U
    f = staticmethod(rotors)
    substeps, jump, nearby = 1, 0.07, 3e-6
    weight_level, weight_change = np.zeros(4), np.full(4, 1e-7)

    def __init__(self, vehicle: Vehicle, reserve: float = 1.0, speed_m_s: float = np.inf):
        super().__init__(vehicle, reserve, speed_m_s)
        self.parameters = vehicle.rotors_parameters
        assert vehicle.rotors is not None
        self.x_high[W] = self.w_high
        self.u_low = np.full(4, vehicle.rotors.thrust_min_n)
        self.u_high = np.full(4, reserve * vehicle.rotors.thrust_max_n)

    def thrust_rates(self, before: Any, u: Any, dt: Any) -> Any:
        """Return rates (NU, N - 1), m/s^3, between successive intervals, for each rotor as if all four changed at its rate."""
        return 4 / self.parameters.mass * 2 * (u[:, 1:] - u[:, :-1]) / (dt[:, 1:] + dt[:, :-1])

    def commands(self, x: Array, u: Array) -> Array:
        return np.column_stack([x[:, W], u.sum(axis=1) / self.parameters.mass])

    def _holding(self, w: Array, c: Array) -> Array:
        return np.tile(c / (4 / self.parameters.mass), (4, 1))


MODELS: dict[str, type[Model]] = {model.name: model for model in (RatesModel, RotorsModel)}
