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
def ahead(x, h, k):
    """x + h k, scalar by scalar: tuples stay in registers, where arrays would be allocated at every sub-step."""
    return (
        x[0] + h * k[0],
        x[1] + h * k[1],
        x[2] + h * k[2],
        x[3] + h * k[3],
        x[4] + h * k[4],
        x[5] + h * k[5],
        x[6] + h * k[6],
        x[7] + h * k[7],
        x[8] + h * k[8],
        x[9] + h * k[9],
        x[10] + h * k[10],
        x[11] + h * k[11],
        x[12] + h * k[12],
        x[13] + h * k[13],
    )


@njit
def slope(x, u, residual, par):
    """The `rates` model with an unknown acceleration."""
    k = rates(x, u, par)
    return (*k[:7], k[7] + residual[0], k[8] + residual[1], k[9] + residual[2], *k[10:])


@njit
def substep(x, u, residual, par, dt):
    """One Runge-Kutta step of length dt; changes x (14,) as RATES_X. `residual`: unknown acceleration (3,), world."""
    k1 = slope(x, u, residual, par)
    k2 = slope(ahead(x, dt / 2, k1), u, residual, par)
    k3 = slope(ahead(x, dt / 2, k2), u, residual, par)
    k4 = slope(ahead(x, dt, k3), u, residual, par)
    for i in range(14):
        x[i] += dt / 6 * k1[i] + dt / 3 * k2[i] + dt / 3 * k3[i] + dt / 6 * k4[i]
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
