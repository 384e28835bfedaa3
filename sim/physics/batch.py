"""Many vehicles of one kind stepped by one call, without pads, sensors or cameras: for Monte-Carlo studies and learning.

Commands act at once; whoever wants the command delay holds them back. Vehicles that nothing can touch within a
step fly side by side in the processor's vector registers, the others one after the other: the same to the last bit.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sim.physics import rates_plant, swift, swift_plant
from sim.physics.contact import NOTHING, Colliders, body_of, far
from sim.physics.jit import boxed, njit
from sim.physics.lanes import LANES, gather, scatter
from sim.physics.mixer import MixedRates
from sim.physics.plant import RIGID, SUBSTEP_S
from sim.physics.setting import Setting
from sim.physics.swift import ALL
from vehicle.dynamics import GRAVITY, RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

FEW = 4  # vehicles that are faster stepped one by one than side by side
PUSH_M_S2 = 500.0  # more than any vehicle here accelerates, drag at 100 m/s included


@njit
def untouched(x, residual, dt, solids, radius):
    """Whether nothing solid is within reach of x during dt."""
    speed, push = 0.0, PUSH_M_S2
    for k in range(3):
        speed += abs(x[7 + k])
        push += abs(residual[k])
    reach = radius + (speed + push * dt) * dt
    for i in range(len(solids.half)):  # noqa: SIM110 - Numba knows no generators
        if not far(x, solids, i, reach):
            return False
    return True


@njit
def fly_rates(x, u, residual, pars, substeps, dt, solids, bodies, impulses):
    par, body = pars[0], bodies[0]
    block, asked, unknown = np.empty(x.shape[1] * LANES), np.empty(4 * LANES), np.empty(3 * LANES)
    for begin in range(0, len(x), LANES):
        end = min(begin + LANES, len(x))
        together = end - begin >= FEW
        if together:
            gather(x, begin, end, block), gather(u, begin, end, asked), gather(residual, begin, end, unknown)
            rates_plant.fly_lanes(block, asked, unknown, par, substeps, dt)
        for j in range(begin, end):
            if together and untouched(x[j], residual[j], substeps * dt, solids, body.radius):
                scatter(block, j - begin, x[j])
            else:
                rates_plant.fly(x[j], u[j], residual[j], pars, substeps, dt, solids, 0, bodies, impulses[j])


@njit
def fly_swift(x, u, residual, pars, substeps, dt, solids, bodies, impulses):
    par, body = pars[0], bodies[0]
    block, asked, unknown = np.empty(x.shape[1] * LANES), np.empty(4 * LANES), np.empty(3 * LANES)
    for begin in range(0, len(x), LANES):
        end = min(begin + LANES, len(x))
        together = end - begin >= FEW
        if together:
            gather(x, begin, end, block), gather(u, begin, end, asked), gather(residual, begin, end, unknown)
            swift_plant.fly_lanes(block, asked, unknown, par, substeps, dt)
        for j in range(begin, end):
            if together and untouched(x[j], residual[j], substeps * dt, solids, body.radius):
                scatter(block, j - begin, x[j])
            else:
                swift_plant.fly(x[j], u[j], True, residual[j], pars, ALL, substeps, dt, solids, 0, bodies, impulses[j])


class Batch:
    """N vehicles in the same world, blind to each other.

    `impulses` (N, things) holds what each hit in the last step, kg m/s, per `Colliders.things`.

    Examples:
        >>> from gate_racer import Batch
        >>> from sim.physics.setting import SETTINGS
        >>> batch = Batch(vehicle, SETTINGS[1], 100)
        >>> batch.step(np.zeros((100, 3)), np.full(100, 0.5), dt=0.01)
        >>> batch.x.shape
        (100, 13)
    """

    def __init__(
        self, vehicle: Vehicle, setting: Setting, n: int, colliders: Colliders | None = None, threads: int = 1
    ):
        """All at the origin, level, motors off.

        Args:
            threads: over which the vehicles are spread; the results do not depend on it.

        Raises:
            UserError: as `make_plant`.
            ValueError: no vehicle, or no thread.
        """
        if min(n, threads) < 1:
            raise ValueError(f"{n} vehicles on {threads} threads: at least one of each is needed")
        curve, self._aerodynamic = vehicle.throttle, setting.aerodynamic
        self._curve = np.array(curve.command), np.array(curve.thrust_m_s2)
        self._limit = np.array(vehicle.rate_max_rad_s)
        self._body = boxed(body_of(vehicle))
        self._solids = colliders.solids if colliders else NOTHING
        self.impulses = np.zeros((n, len(colliders.things) if colliders else 0))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._parts = [part for part in np.array_split(np.arange(n), threads) if len(part)]
        if setting.aerodynamic:
            self._par = boxed(swift.parameters(vehicle))
            self._rest = swift.at_rest(self._par[0])
        else:
            self._par = boxed(MixedRates.of(vehicle))
            self._rest = np.zeros(RATES_X.size)
            self._rest[3] = 1.0
        self._x = np.tile(self._rest, (n, 1))

    @property
    def x(self) -> Array:
        """(N, 13) pose and motion as the first blocks of RATES_X; writing to it moves the vehicles."""
        return self._x[:, RIGID]

    @property
    def state(self) -> Array:
        """(N, n) all that the next step depends on: RATES_X, or `sim.physics.swift.X`. Copy it to keep it, write it to return."""
        return self._x

    def reset(self, which: Any = slice(None), x: Array | None = None) -> None:
        """Puts vehicles back to rest, thrust, motors, flight controller and battery included.

        Args:
            which: index of the vehicles: a slice, numbers or a mask (N,).
            x: (13,) or (k, 13) pose and motion that they get, else level at the origin.
        """
        self._x[which] = self._rest
        self.impulses[which] = 0.0
        if x is not None:
            self._x[which, RIGID] = x

    def carry(self, which: Any = slice(None)) -> None:
        """Gives vehicles the thrust of hover, at once; `which` as of `reset`."""
        if self._aerodynamic:
            self._x[which, swift.OMEGA] = math.sqrt(self._par[0].hover_sqr)
        else:
            self._x[which, rates_plant.THRUST] = GRAVITY

    def step(self, omega: Array, throttle: Array, dt: float, residual: Array | None = None) -> None:
        """Flies on for dt with held body rates (N, 3) in rad/s and throttle (N,), 0..1; both are limited to what there is.

        Args:
            residual: (N, 3) m/s^2, world: an acceleration that no model knows.

        Raises:
            ValueError: arrays of another shape, or a dt that is not positive.
        """
        n = len(self._x)
        unknown = np.zeros((n, 3)) if residual is None else np.ascontiguousarray(residual, float)
        if np.shape(omega) != (n, 3) or np.shape(throttle) != (n,) or unknown.shape != (n, 3) or not dt > 0:
            shapes = f"{np.shape(omega)}, {np.shape(throttle)}, {unknown.shape}"
            raise ValueError(f"omega, throttle, residual of {shapes} and dt {dt:g}: ({n}, 3), ({n},), ({n}, 3), dt > 0")
        self.impulses[:] = 0.0
        u = np.empty((n, 4))
        np.minimum(np.maximum(omega, -self._limit), self._limit, out=u[:, :3])
        asked = np.minimum(np.maximum(throttle, 0.0), 1.0)
        u[:, 3] = asked if self._aerodynamic else np.interp(asked, *self._curve)
        substeps = max(1, math.ceil(dt / SUBSTEP_S - 1e-6))
        fly = self._fly(u, unknown, substeps, dt / substeps)
        if self._pool is None:
            fly(slice(None))
        else:
            list(self._pool.map(fly, [slice(part[0], part[-1] + 1) for part in self._parts]))

    def _fly(self, u: Array, unknown: Array, substeps: int, dt: float) -> Callable[[slice], None]:
        """What flies a part of the vehicles."""
        law = fly_swift if self._aerodynamic else fly_rates
        rest = self._par, substeps, dt, self._solids, self._body

        def fly(part: slice) -> None:
            law(self._x[part], u[part], unknown[part], *rest, self.impulses[part])

        return fly

    def close(self) -> None:
        """Ends its threads."""
        if self._pool is not None:
            self._pool.shutdown()
