"""Many vehicles of one kind stepped by one call, without pads, sensors or cameras: for Monte-Carlo studies.

Commands act at once; whoever wants the command delay holds them back.
"""

import math

import numpy as np

from sim.physics import rates_plant, swift, swift_plant
from sim.physics.contact import NOTHING, Colliders, body_of
from sim.physics.jit import njit, record
from sim.physics.plant import RIGID, SUBSTEP_S
from sim.physics.setting import Setting
from vehicle.dynamics import RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle


@njit
def fly_rates(x, u, residual, par, substeps, dt, solids, body, impulses):
    for i in range(len(x)):
        rates_plant.fly(x[i], u[i], residual[i], par, substeps, dt, solids, 0, body, impulses[i])


@njit
def fly_swift(x, u, residual, par, terms, substeps, dt, solids, body, impulses):
    for i in range(len(x)):
        swift_plant.fly(x[i], u[i], True, residual[i], par, terms, substeps, dt, solids, 0, body, impulses[i])


class Batch:
    """N vehicles in the same world, blind to each other. Raises UserError as `make_plant` does."""

    def __init__(self, vehicle: Vehicle, setting: Setting, n: int, colliders: Colliders | None = None):
        self._vehicle, self._aerodynamic = vehicle, setting.aerodynamic
        self._body = record(body_of(vehicle))
        self._solids = colliders.solids if colliders else NOTHING
        self.impulses = np.zeros(
            (n, len(colliders.things) if colliders else 0)
        )  # of the last step, per `Colliders.things`
        if setting.aerodynamic:
            self._swift = record(swift.parameters(vehicle))
            self._x = np.tile(swift.at_rest(self._swift), (n, 1))
        else:
            self._rates = record(vehicle.rates_parameters)
            self._x = np.zeros((n, RATES_X.size))
            self._x[:, 3] = 1.0

    @property
    def x(self) -> Array:
        """(N, 13) pose and motion as the first blocks of RATES_X; writing to it moves the vehicles."""
        return self._x[:, RIGID]

    def step(self, omega: Array, throttle: Array, dt: float, residual: Array | None = None) -> None:
        """Flies on for dt with held body rates (N, 3) in rad/s and throttle (N,); `residual` (N, 3) in m/s^2, world."""
        self.impulses[:] = 0.0
        limit = np.array(self._vehicle.rate_max_rad_s)
        curve = self._vehicle.throttle
        lift = throttle if self._aerodynamic else np.interp(throttle, curve.command, curve.thrust_m_s2)
        u = np.column_stack([np.clip(omega, -limit, limit), lift])
        unknown = np.zeros((len(u), 3)) if residual is None else residual
        substeps = max(1, math.ceil(dt / SUBSTEP_S - 1e-6))
        rest = (substeps, dt / substeps, self._solids, self._body, self.impulses)
        if self._aerodynamic:
            fly_swift(self._x, u, unknown, self._swift, swift.ALL, *rest)
        else:
            fly_rates(self._x, u, unknown, self._rates, *rest)
