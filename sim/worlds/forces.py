"""Residual accelerations of a world beyond its vehicle's model: wind, gusts, battery sag and ground effect.

Gusts: Dryden turbulence of MIL-F-8785C (3.7.2.2 and 3.7.3, low altitude), along, across and normal to the mean wind.

    H_u(s) = sigma_u sqrt(2 T_u) / (1 + T_u s),    H_v(s) = sigma_v sqrt(T_v) (1 + sqrt(3) T_v s) / (1 + T_v s)^2,    w like v
    T = L / V,    L_w = h,    L_u = L_v = h / (0.177 + 0.000823 h)^1.2,    sigma_w = sigma_u (0.177 + 0.000823 h)^0.4

with the height h in feet and V the airspeed, here at least 1 m/s. Each filter is advanced exactly over a step with held T: in
units of its own standard deviation, u is an Ornstein-Uhlenbeck process, and v = (sqrt(3) x1 + (1 - sqrt(3)) x2) / sqrt(2) of
x1' = -x1 / T + noise, x2' = (x1 - x2) / T, whose stationary covariance is ((1, 1/2), (1/2, 1/2)).

wind          a = f_aero(v - w) - f_aero(v), with the drag or the grey-box aerodynamics of the vehicle
battery       thrust falls by the fraction  k integral (c / g)^1.5 dt:  rotor power is as thrust^1.5 (momentum theory)
ground        T / T_free = 1 / (1 - (R / 4 z)^2)   (Cheeseman and Bennett 1955), z the height above the bounds' floor
"""

import math
from collections.abc import Callable

import numpy as np

from gate_racer.sim.physics import swift
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.sim.worlds.world import World
from gate_racer.vehicle.dynamics import GRAVITY, drag
from gate_racer.vehicle.rotation import Array, matrix

FOOT_M = 0.3048  # m per foot: the standard's equations are in feet
LEAST_AIRSPEED_M_S = 1.0  # lower limit of V, so that gusts change in hover too (chosen)
ROOT3 = math.sqrt(3.0)
STATIONARY = np.array([[1.0, 0.5], [0.5, 0.5]])


class Dryden:
    """Realisation of Dryden turbulence, advanced step by step."""

    def __init__(self, sigma_m_s: float, height_m: float, rng: np.random.Generator):
        """Draw a stationary state. `sigma_m_s`: standard deviation along and across the wind. `height_m`: above ground."""
        feet = height_m / FOOT_M
        rough = 0.177 + 0.000823 * feet
        self._rng = rng
        self._sigma = sigma_m_s * np.array([1.0, 1.0, rough**0.4])
        self._length_m = FOOT_M * np.array([feet / rough**1.2, feet / rough**1.2, feet])
        self._u = rng.standard_normal()
        self._across = np.linalg.cholesky(STATIONARY) @ rng.standard_normal((2, 2))  # x1 and x2 of v and of w

    @property
    def gust(self) -> Array:
        """Gust velocity (3,) m/s: along the wind, to its right, and down."""
        v, w = (ROOT3 * self._across[0] + (1 - ROOT3) * self._across[1]) / math.sqrt(2)
        return self._sigma * np.array([self._u, v, w])

    def advance(self, dt: float, airspeed_m_s: float) -> None:
        """Advance by dt (s) at this airspeed."""
        share = dt * max(airspeed_m_s, LEAST_AIRSPEED_M_S) / self._length_m  # dt / T
        keep = np.exp(-share)
        self._u = keep[0] * self._u + math.sqrt(1 - keep[0] ** 2) * self._rng.standard_normal()
        noise = self._rng.standard_normal((2, 2))
        for k in (1, 2):
            A = keep[k] * np.array([[1.0, 0.0], [share[k], 1.0]])
            spread = np.linalg.cholesky(STATIONARY - A @ STATIONARY @ A.T)
            self._across[:, k - 1] = A @ self._across[:, k - 1] + spread @ noise[:, k - 1]


Stirred = Callable[[Array], Array]  # position (3,) m -> air velocity (3,) m/s induced by other vehicles' wakes; world
STEP_S = 1 / 120  # s, step of the gusts, independent of the caller's, so that a seed gives the same gusts
NEAREST = 0.5  # lower limit of height over rotor radius, as of a vehicle on its legs


class Forces:
    """`UnmodelledAcceleration` of the plant: wind, gusts, battery sag and ground effect. Call with non-decreasing times."""

    def __init__(self, world: World, seed: int, stirred: Stirred | None = None):
        self._plant, self._vehicle = world.deviations.plant, world.vehicle
        self._floor_m = world.track.bounds.high_m[2]
        air, self._stirred = world.deviations.air, stirred
        self._wind_w = np.array([air.wind_north_m_s, air.wind_east_m_s, 0.0])
        rng = np.random.default_rng([seed, 5])
        self._gusts = Dryden(air.gust_m_s, air.gust_height_m, rng) if air.gust_m_s else None
        heading = math.atan2(air.wind_east_m_s, air.wind_north_m_s)
        c, s = math.cos(heading), math.sin(heading)
        self._R_w_wind = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        self._swift = swift.parameters(world.vehicle) if world.vehicle.grey_box else None
        self._t = self._gusts_t = 0.0
        self._drawn = 0.0  # integral of (c / g)^1.5

    def __call__(self, t: float, x: Array, c: float) -> Array:
        """Return the acceleration (3,) m/s^2, world, at t (s) in the state x (14,) as RATES_X."""
        thrust, dt, self._t = max(float(x[-1]), 0.0), t - self._t, t  # rotors that hardly turn may brake
        self._drawn += (thrust / GRAVITY) ** 1.5 * dt
        more = (1 - self._plant.battery_sag_1_s * self._drawn) * self._ground(x) - 1
        lift = -max(more, -1.0) * thrust * matrix(x[Q])[:, 2]
        air_w = self._air(t, x)
        if self._stirred is not None:
            air_w = air_w + self._stirred(x[P])
        return lift + self._aero(x, x[V] - air_w) - self._aero(x, x[V]) if air_w.any() else lift

    def _ground(self, x: Array) -> float:
        radius = self._plant.ground_effect_radius_m
        if radius == 0:
            return 1.0
        height = max(self._floor_m - float(x[2]), NEAREST * radius)
        return 1 / (1 - (radius / (4 * height)) ** 2)

    def _air(self, t: float, x: Array) -> Array:
        """Return the wind with gusts (3,) m/s, world, at t (s)."""
        if self._gusts is None:
            return self._wind_w
        while self._gusts_t < t - 1e-9:
            self._gusts.advance(STEP_S, float(np.linalg.norm(x[V] - self._wind_w)))
            self._gusts_t += STEP_S
        return self._wind_w + self._R_w_wind @ self._gusts.gust

    def _aero(self, x: Array, v_air: Array) -> Array:
        """Return the aerodynamic force over mass (3,) m/s^2, world, at the airspeed v_air (3,) m/s, world."""
        vehicle = self._vehicle
        if self._swift is None:
            q, v = x[Q].tolist(), v_air.tolist()  # Python's floats cost a third of numpy's
            return np.array(drag(q, v, vehicle.drag_linear_1_s, vehicle.drag_quadratic_1_m))
        R_wb = matrix(x[Q])
        thrust_n = max(float(x[-1]), 0.0) * self._swift.rotors.mass
        squared = thrust_n / (4 * self._swift.motors.thrust_n_s2)  # mean squared motor speed, (rad/s)^2
        force, _ = swift.aero(tuple(R_wb.T @ v_air), squared, self._swift)  # type: ignore[no-untyped-call]
        return np.asarray(R_wb @ np.array(force))


def forces_of(world: World, seed: int, stirred: Stirred | None = None) -> Forces | None:
    """Return the residual accelerations of a world; None where it has none."""
    plant, air = world.deviations.plant, world.deviations.air
    some = plant.battery_sag_1_s or plant.ground_effect_radius_m
    windy = air.gust_m_s or air.wind_north_m_s or air.wind_east_m_s
    return Forces(world, seed, stirred) if some or windy or stirred is not None else None
