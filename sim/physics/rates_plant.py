"""The simple plant: the vehicle's own `rates` model (vehicle/dynamics.py), which planner and controller have, behind a mixer."""

import math

import numpy as np

from sim.physics.contact import Colliders, collide
from sim.physics.jit import inlined, njit, record
from sim.physics.mixer import MixedRates, mixed
from sim.physics.plant import Plant, Residual
from tracks.track import Start
from vehicle.dynamics import RATES_X, drag, rates
from vehicle.rotation import Array, conjugate, rotate
from vehicle.vehicle import Vehicle

LANES = 32  # vehicles that are stepped side by side
THRUST = RATES_X["c"].at.start


@inlined
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


@inlined
def slope(x, u, residual, par):
    """The `rates` model behind the vehicle's mixer, with an unknown acceleration."""
    k = rates(x, mixed(x, u, par), par.rates)
    return (*k[:7], k[7] + residual[0], k[8] + residual[1], k[9] + residual[2], *k[10:])


@inlined
def stepped(x, u, residual, par, dt):
    """The state (14) as RATES_X after one Runge-Kutta step. `residual`: unknown acceleration (3), world."""
    k1 = slope(x, u, residual, par)
    k2 = slope(ahead(x, dt / 2, k1), u, residual, par)
    k3 = slope(ahead(x, dt / 2, k2), u, residual, par)
    k4 = slope(ahead(x, dt, k3), u, residual, par)
    y = ahead(ahead(ahead(ahead(x, dt / 6, k1), dt / 3, k2), dt / 3, k3), dt / 6, k4)
    norm = math.sqrt(y[3] ** 2 + y[4] ** 2 + y[5] ** 2 + y[6] ** 2)
    return (*y[:3], y[3] / norm, y[4] / norm, y[5] / norm, y[6] / norm, *y[7:])


@njit
def substep(x, u, residual, par, dt):
    """`stepped` in place, on x (14,)."""
    now = (x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13])
    then = stepped(now, (u[0], u[1], u[2], u[3]), (residual[0], residual[1], residual[2]), par, dt)
    for i in range(14):
        x[i] = then[i]


@njit
def fly_lanes(x, u, residual, par, substeps, dt):
    """`stepped` for LANES vehicles side by side, in registers as wide as the processor has; nothing stands in their way.

    x, u, residual: (14 LANES,), (4 LANES,), (3 LANES,); entry k of vehicle i at k LANES + i.
    """
    n = LANES  # known when it is compiled, so that lanes are known not to overlap
    for _ in range(substeps):
        for i in range(n):
            now = (
                x[i],
                x[n + i],
                x[2 * n + i],
                x[3 * n + i],
                x[4 * n + i],
                x[5 * n + i],
                x[6 * n + i],
                x[7 * n + i],
                x[8 * n + i],
                x[9 * n + i],
                x[10 * n + i],
                x[11 * n + i],
                x[12 * n + i],
                x[13 * n + i],
            )
            asked = (u[i], u[n + i], u[2 * n + i], u[3 * n + i])
            unknown = (residual[i], residual[n + i], residual[2 * n + i])
            then = stepped(now, asked, unknown, par, dt)
            x[i] = then[0]
            x[n + i] = then[1]
            x[2 * n + i] = then[2]
            x[3 * n + i] = then[3]
            x[4 * n + i] = then[4]
            x[5 * n + i] = then[5]
            x[6 * n + i] = then[6]
            x[7 * n + i] = then[7]
            x[8 * n + i] = then[8]
            x[9 * n + i] = then[9]
            x[10 * n + i] = then[10]
            x[11 * n + i] = then[11]
            x[12 * n + i] = then[12]
            x[13 * n + i] = then[13]


@njit
def fly(x, u, residual, par, substeps, dt, solids, first, body, impulses):
    """Sub-steps with held input; contacts are answered after each. Returns the model's specific force (3), body axes."""
    for _ in range(substeps):
        substep(x, u, residual, par, dt)
        collide(x, solids, first, body, impulses)
    q = (x[3], x[4], x[5], x[6])
    f = rotate(conjugate(q), drag(q, (x[7], x[8], x[9]), par.rates.drag_linear, par.rates.drag_quadratic))
    return f[0], f[1], f[2] - x[13]


class RatesPlant(Plant):
    """State `x` as RATES_X."""

    def __init__(
        self, vehicle: Vehicle, start: Start, colliders: Colliders | None = None, residual: Residual | None = None
    ):
        self._par = record(MixedRates.of(vehicle))
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
