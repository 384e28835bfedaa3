"""Plant with the `rates` model (vehicle/dynamics.py), which planner and controller share, behind a mixer."""

import math

import numpy as np

from gate_racer.sim.physics import lanes
from gate_racer.sim.physics.contact import Colliders, collide
from gate_racer.sim.physics.jit import boxed, inlined, njit
from gate_racer.sim.physics.plant import MixedRates, Plant, UnmodelledAcceleration, mixed
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import RATES_X, drag, rates
from gate_racer.vehicle.rotation import Array, conjugate, rotate
from gate_racer.vehicle.vehicle import Vehicle

THRUST = RATES_X["c"].at.start


@inlined
def ahead(x, h, k):
    """Return x + h k of 14 scalars."""
    return (*lanes.ahead_rigid(x, h, k), x[13] + h * k[13])


@inlined
def slope(x, u, residual, par):
    """Return d/dt of the state (14) of the `rates` model behind the mixer. `residual`: acceleration (3), m/s^2, world."""
    k = rates(x, mixed(x, u, par), par.rates)
    return (*k[:7], k[7] + residual[0], k[8] + residual[1], k[9] + residual[2], *k[10:])


@inlined
def stepped(x, u, residual, par, dt):
    """Return the state (14) as RATES_X after one Runge-Kutta step. `residual`: acceleration (3), m/s^2, world."""
    k1 = slope(x, u, residual, par)
    k2 = slope(ahead(x, dt / 2, k1), u, residual, par)
    k3 = slope(ahead(x, dt / 2, k2), u, residual, par)
    k4 = slope(ahead(x, dt, k3), u, residual, par)
    y = ahead(ahead(ahead(ahead(x, dt / 6, k1), dt / 3, k2), dt / 3, k3), dt / 6, k4)
    norm = math.sqrt(y[3] ** 2 + y[4] ** 2 + y[5] ** 2 + y[6] ** 2)
    return (*y[:3], y[3] / norm, y[4] / norm, y[5] / norm, y[6] / norm, *y[7:])


@inlined
def put(x, state, i, n):
    """Write the state (14) of vehicle i of n."""
    lanes.put_rigid(x, state, i, n)
    x[13 * n + i] = state[13]


@njit
def fly(x, u, residual, pars, substeps, dt, solids, first, bodies, impulses):
    """Advance x (14,) by sub-steps at constant input, with contacts resolved after each; return the specific force (3), FRD.

    pars, bodies: from `boxed`.
    """
    par, body = pars[0], bodies[0]
    commanded, unknown = lanes.four(u, 0, 0, 1), lanes.three(residual, 0, 0, 1)
    for _ in range(substeps):
        put(x, stepped((*lanes.rigid(x, 0, 1), x[13]), commanded, unknown, par, dt), 0, 1)
        collide(x, solids, first, body, impulses)
    q = (x[3], x[4], x[5], x[6])
    f = rotate(conjugate(q), drag(q, (x[7], x[8], x[9]), par.rates.drag_linear, par.rates.drag_quadratic))
    return f[0], f[1], f[2] - x[13]


@njit
def fly_lanes(x, u, residual, par, substeps, dt):
    """Advance LANES vehicles without contacts by `stepped`; bit-identical to one by one.

    x, u, residual: (14 LANES,), (4 LANES,), (3 LANES,); entry k of vehicle i at k LANES + i.
    """
    n = lanes.LANES  # a compile-time constant, so that the compiler can prove that lanes do not overlap
    for _ in range(substeps):
        for i in range(n):
            commanded, unknown = lanes.four(u, 0, i, n), lanes.three(residual, 0, i, n)
            put(x, stepped((*lanes.rigid(x, i, n), x[13 * n + i]), commanded, unknown, par, dt), i, n)


class RatesPlant(Plant):
    """Plant of the `rates` model; state `x` (14,) as RATES_X."""

    def __init__(
        self,
        vehicle: Vehicle,
        start: Start,
        colliders: Colliders | None = None,
        residual: UnmodelledAcceleration | None = None,
    ):
        self._boxed_par = boxed(MixedRates.of(vehicle))
        super().__init__(vehicle, start, colliders, residual)

    @property
    def thrust(self) -> float:
        return float(self.x[THRUST])

    def _at_rest(self) -> Array:
        return np.zeros(RATES_X.size)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        thrust = self._vehicle.throttle.thrust(throttle) if self._active is not None else 0.0
        u = np.array([*omega.tolist(), thrust])
        return fly(self.x, u, self._unknown_w, self._boxed_par, substeps, dt, *self._surroundings())
