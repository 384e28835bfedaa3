"""The simple plant: the vehicle's own `rates` model (vehicle/dynamics.py), which planner and controller believe in."""

import math

import numpy as np

from sim.physics.contact import Colliders, collide
from sim.physics.jit import njit, record
from sim.physics.plant import Plant, Residual
from tracks.track import Start
from vehicle.dynamics import RATES_X, drag, rates
from vehicle.rotation import Array, conjugate, rotate
from vehicle.vehicle import Vehicle

THRUST = RATES_X["c"].at.start


@njit
def substep(x, u, residual, par, dt):
    """One Runge-Kutta step of length dt; changes x (14,) as RATES_X. `residual`: unknown acceleration (3,), world."""
    n = 14
    total, k, y = np.zeros(n), np.zeros(n), np.empty(n)
    for stage in range(4):
        ahead = 0.0 if stage == 0 else dt if stage == 3 else dt / 2
        weight = dt / 6 if stage in (0, 3) else dt / 3
        for i in range(n):
            y[i] = x[i] + ahead * k[i]
        slope = rates(y, u, par)
        for i in range(n):
            k[i] = slope[i] + (residual[i - 7] if 7 <= i < 10 else 0.0)
            total[i] += weight * k[i]
    for i in range(n):
        x[i] += total[i]
    norm = math.sqrt(x[3] ** 2 + x[4] ** 2 + x[5] ** 2 + x[6] ** 2)
    for i in range(3, 7):
        x[i] /= norm


@njit
def fly(x, u, residual, par, substeps, dt, solids, first, body, impulses):
    """Sub-steps with held input; contacts are answered after each. Returns the model's specific force (3), body axes."""
    for _ in range(substeps):
        substep(x, u, residual, par, dt)
        collide(x, solids, first, body, impulses)
    q = (x[3], x[4], x[5], x[6])
    f = rotate(conjugate(q), drag(q, (x[7], x[8], x[9]), par.drag_linear, par.drag_quadratic))
    return f[0], f[1], f[2] - x[13]


class RatesPlant(Plant):
    """State `x` as RATES_X."""

    def __init__(
        self, vehicle: Vehicle, start: Start, colliders: Colliders | None = None, residual: Residual | None = None
    ):
        self._par = record(vehicle.rates_parameters)
        super().__init__(vehicle, start, colliders, residual)

    @property
    def thrust(self) -> float:
        return float(self.x[THRUST])

    def _at_rest(self) -> Array:
        return np.zeros(RATES_X.size)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        thrust = self._vehicle.throttle.thrust(throttle) if self._active is not None else 0.0
        u = np.array([*omega, thrust])
        return fly(self.x, u, self._unknown_w, self._par, substeps, dt, *self._surroundings())
