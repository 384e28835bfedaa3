"""Plant of four rotors driven by an external flight controller: the `rotors` model with first-order thrust lag.

Rotor i's thrust follows a quarter of the vehicle's static curve at its motor output, with the vehicle's thrust lag. Inertia,
arms and drag torque are those of `rotors` in the vehicle; aerodynamics are the vehicle's drag alone, and there is no battery.
"""

import math
from typing import Protocol

import numpy as np

from gate_racer.sim.physics import lanes
from gate_racer.sim.physics.contact import Colliders, collide
from gate_racer.sim.physics.jit import boxed, inlined, njit
from gate_racer.sim.physics.plant import Plant, Truth, UnmodelledAcceleration
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import drag, rotors
from gate_racer.vehicle.rotation import Array, conjugate, rotate
from gate_racer.vehicle.vehicle import Vehicle

STATES = 17  # ROTORS_X and four thrusts, N
THRUSTS = slice(13, STATES)


class MotorSource(Protocol):
    """Source of the motor outputs: a flight controller."""

    def outputs(self, truth: Truth) -> Array:
        """Return the motor outputs (4,), 0..1, in the vehicle's order of rotors, for the state just measured by its IMU."""
        ...


@inlined
def slope(x, wanted, residual, par, lag):
    """Return d/dt of pose, motion and thrusts (17 scalars). `residual`: acceleration (3), m/s^2, world."""
    thrusts = (x[13], x[14], x[15], x[16])
    k = rotors(x, thrusts, par)
    rise = (
        (wanted[0] - x[13]) / lag,
        (wanted[1] - x[14]) / lag,
        (wanted[2] - x[15]) / lag,
        (wanted[3] - x[16]) / lag,
    )
    return (*k[:7], k[7] + residual[0], k[8] + residual[1], k[9] + residual[2], *k[10:], *rise)


@inlined
def ahead(x, h, k):
    """Return x + h k of 17 scalars."""
    return (*lanes.ahead_rigid(x, h, k), x[13] + h * k[13], x[14] + h * k[14], x[15] + h * k[15], x[16] + h * k[16])


@njit
def fly(x, wanted, residual, pars, lag, substeps, dt, solids, first, bodies, impulses):
    """Advance x (17,) by Runge-Kutta sub-steps at constant target thrusts (4,), N; return the specific force (3), FRD.

    pars, bodies: from `boxed`.
    """
    par, body = pars[0], bodies[0]
    commanded, unknown = lanes.four(wanted, 0, 0, 1), lanes.three(residual, 0, 0, 1)
    for _ in range(substeps):
        now = (*lanes.rigid(x, 0, 1), *lanes.four(x, 13, 0, 1))
        k1 = slope(now, commanded, unknown, par, lag)
        k2 = slope(ahead(now, dt / 2, k1), commanded, unknown, par, lag)
        k3 = slope(ahead(now, dt / 2, k2), commanded, unknown, par, lag)
        k4 = slope(ahead(now, dt, k3), commanded, unknown, par, lag)
        y = ahead(ahead(ahead(ahead(now, dt / 6, k1), dt / 3, k2), dt / 3, k3), dt / 6, k4)
        norm = math.sqrt(y[3] ** 2 + y[4] ** 2 + y[5] ** 2 + y[6] ** 2)
        lanes.put_rigid(x, (*y[:3], y[3] / norm, y[4] / norm, y[5] / norm, y[6] / norm, *y[7:13]), 0, 1)
        lanes.put_four(x, y[13:], 13, 0, 1)
        collide(x, solids, first, body, impulses)
    q = (x[3], x[4], x[5], x[6])
    f = rotate(conjugate(q), drag(q, (x[7], x[8], x[9]), par.drag_linear, par.drag_quadratic))
    return f[0], f[1], f[2] - (x[13] + x[14] + x[15] + x[16]) / par.mass


class RotorsPlant(Plant):
    """State `x` (17,): ROTORS_X and the thrusts (4), N. Driven by a `MotorSource`; commands of the link do not reach it."""

    def __init__(
        self,
        vehicle: Vehicle,
        start: Start,
        colliders: Colliders | None = None,
        residual: UnmodelledAcceleration | None = None,
        *,
        motors: MotorSource,
    ):
        """Set up the plant on its pad. Raises UserError for a vehicle without a `rotors` section."""
        par = vehicle.rotors_parameters
        self._boxed_par, self._motors, self._mass = boxed(par), motors, par.mass
        super().__init__(vehicle, start, colliders, residual)

    @property
    def thrust(self) -> float:
        return float(self.x[THRUSTS].sum() / self._mass)

    def _at_rest(self) -> Array:
        return np.zeros(STATES)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        outputs = self._motors.outputs(self.truth) if substeps else np.zeros(4)
        thrust = self._vehicle.throttle.thrust
        wanted = np.array([self._mass / 4 * thrust(output) if self.armed else 0.0 for output in outputs.tolist()])
        given = self._unknown_w, self._boxed_par, self._vehicle.thrust_lag_s, substeps, dt
        return fly(self.x, wanted, *given, *self._surroundings())
