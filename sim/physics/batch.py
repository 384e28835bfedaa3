"""Batched simulation of identical vehicles, without pads, sensors or cameras, for Monte-Carlo studies and learning.

Commands act without delay; a caller that models the command delay has to buffer them. Vehicles that cannot reach a solid
within a step are integrated in SIMD lanes, the others one by one; the results are bit-identical.
"""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gate_racer.sim.physics import plant, swift
from gate_racer.sim.physics.contact import NOTHING, Colliders, body_of, far
from gate_racer.sim.physics.jit import boxed, inlined, njit
from gate_racer.sim.physics.lanes import LANES, gather, scatter
from gate_racer.sim.physics.plant import RIGID, SUBSTEP_S, THRUST, MixedRates
from gate_racer.sim.physics.registry import Setting, natural
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

FEW = 4  # vehicles; with fewer, one by one is faster than a partly filled block of lanes
PUSH_M_S2 = 500.0  # m/s^2, upper bound of any vehicle's acceleration, drag at 100 m/s included


@njit
def untouched(x, residual, dt, solids, radius):
    """Check that no solid is within reach of the vehicle at x during dt."""
    speed, push = 0.0, PUSH_M_S2
    for k in range(3):
        speed += abs(x[7 + k])
        push += abs(residual[k])
    reach = radius + (speed + push * dt) * dt
    for i in range(len(solids.half)):  # noqa: SIM110 - Numba knows no generators
        if not far(x, solids, i, reach):
            return False
    return True


@inlined
def advance(fly_lanes, fly, x, u, residual, pars, substeps, dt, solids, bodies, impulses):
    """Advance x (N, n) by sub-steps of dt (s), by a plant's `fly_lanes` (blocks without contact) and `fly` (others).

    u (N, 4): body rates (rad/s) and the plant's thrust command. residual (N, 3): m/s^2, world.
    impulses (N, things): kg m/s, added to. pars, bodies: from `boxed`.
    """
    par, body = pars[0], bodies[0]
    block, commanded, unknown = np.empty(x.shape[1] * LANES), np.empty(4 * LANES), np.empty(3 * LANES)
    for begin in range(0, len(x), LANES):
        end = min(begin + LANES, len(x))
        together = end - begin >= FEW
        if together:
            gather(x, begin, end, block), gather(u, begin, end, commanded), gather(residual, begin, end, unknown)
            fly_lanes(block, commanded, unknown, par, substeps, dt)
        for j in range(begin, end):
            if together and untouched(x[j], residual[j], substeps * dt, solids, body.radius):
                scatter(block, j - begin, x[j])
            else:
                fly(x[j], u[j], residual[j], pars, substeps, dt, solids, 0, bodies, impulses[j])


@inlined
def fly_armed(x, u, residual, pars, substeps, dt, solids, first, bodies, impulses):
    """Advance one armed grey-box vehicle, with the arguments of `fly_rates`."""
    plant.fly_swift(x, u, True, residual, pars, substeps, dt, solids, first, bodies, impulses)


@njit
def advance_rates(x, u, residual, pars, substeps, dt, solids, bodies, impulses):
    """`advance` for states as RATES_X; thrust command in m/s^2."""
    advance(plant.fly_rates_lanes, plant.fly_rates, x, u, residual, pars, substeps, dt, solids, bodies, impulses)


@njit
def advance_swift(x, u, residual, pars, substeps, dt, solids, bodies, impulses):
    """`advance` for states as `sim.physics.swift.X`; throttle, 0..1."""
    advance(plant.fly_swift_lanes, fly_armed, x, u, residual, pars, substeps, dt, solids, bodies, impulses)


class Batch:
    """N vehicles in the same world, without interaction.

    `impulses` (N, things) holds the contact impulses of the last step, kg m/s, by `Colliders.things`.

    Examples:
        >>> from gate_racer import Batch
        >>> batch = Batch(vehicle, None, 100)
        >>> batch.step(np.zeros((100, 3)), np.full(100, 0.5), dt=0.01)
        >>> batch.x.shape
        (100, 13)
    """

    def __init__(
        self, vehicle: Vehicle, setting: Setting | None, n: int, colliders: Colliders | None = None, threads: int = 1
    ):
        """Place all vehicles at the origin, level, with motors off.

        Args:
            setting: one of Swift's settings; None: the most detailed plant of the vehicle.
            threads: number of threads that share the vehicles; the results do not depend on it.

        Raises:
            UserError: as `make_plant`.
            ValueError: fewer than one vehicle or one thread.
        """
        if min(n, threads) < 1:
            raise ValueError(f"{n} vehicles on {threads} threads: expected at least one of each")
        self._aerodynamic, curve = (setting or natural(vehicle)).aerodynamic, vehicle.throttle
        self._curve = np.array(curve.command), np.array(curve.thrust_m_s2)
        self._limit = np.array(vehicle.rate_max_rad_s)
        self._body = boxed(body_of(vehicle))
        self._solids = colliders.solids if colliders else NOTHING
        self.impulses = np.zeros((n, len(colliders.things) if colliders else 0))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        ends = np.linspace(0, n, threads + 1).astype(int).tolist()
        self._parts = [slice(begin, end) for begin, end in itertools.pairwise(ends)]
        if self._aerodynamic:
            self._par = boxed(swift.parameters(vehicle))
            self._rest = swift.at_rest(self._par[0])
        else:
            self._par = boxed(MixedRates.of(vehicle))
            self._rest = np.zeros(RATES_X.size)
            self._rest[3] = 1.0
        self._x = np.tile(self._rest, (n, 1))

    @property
    def x(self) -> Array:
        """Pose and motion (N, 13), the first blocks of RATES_X; a view: writing to it moves the vehicles."""
        return self._x[:, RIGID]

    @property
    def state(self) -> Array:
        """Full state (N, n) as RATES_X or `sim.physics.swift.X`; a view: copy it to save the state, write it to restore it."""
        return self._x

    def reset(self, which: Any = slice(None), x: Array | None = None) -> None:
        """Reset vehicles to rest: thrust, motors, flight controller and battery included.

        Args:
            which: vehicles to reset, as a slice, indices or a mask (N,).
            x: (13,) or (k, 13) pose and motion after the reset; None for level at the origin.
        """
        self._x[which] = self._rest
        self.impulses[which] = 0.0
        if x is not None:
            self._x[which, RIGID] = x

    def carry(self, which: Any = slice(None)) -> None:
        """Set the thrust (or motor speeds) of vehicles to that of hover, without lag; `which` as in `reset`."""
        if self._aerodynamic:
            self._x[which, swift.OMEGA] = math.sqrt(self._par[0].hover_sqr)
        else:
            self._x[which, THRUST] = GRAVITY

    def step(self, omega: Array, throttle: Array, dt: float, residual: Array | None = None) -> None:
        """Advance by dt (s) with constant body rates (N, 3) in rad/s and throttle (N,) in 0..1, both clipped to their limits.

        Args:
            residual: (N, 3) m/s^2, world: unmodelled acceleration.

        Raises:
            ValueError: an array has another shape, or dt is not positive.
        """
        n = len(self._x)
        unknown = np.zeros((n, 3)) if residual is None else np.ascontiguousarray(residual, float)
        if np.shape(omega) != (n, 3) or np.shape(throttle) != (n,) or unknown.shape != (n, 3) or not dt > 0:
            raise ValueError(f"expected omega ({n}, 3), throttle ({n},), residual ({n}, 3) and dt > 0")
        self.impulses[:] = 0.0
        u = np.empty((n, 4))
        np.clip(omega, -self._limit, self._limit, out=u[:, :3])
        commanded = np.clip(throttle, 0.0, 1.0)
        u[:, 3] = commanded if self._aerodynamic else np.interp(commanded, *self._curve)
        substeps = max(1, math.ceil(dt / SUBSTEP_S - 1e-6))
        law = advance_swift if self._aerodynamic else advance_rates
        rest = self._par, substeps, dt / substeps, self._solids, self._body

        def fly(part: slice) -> None:
            law(self._x[part], u[part], unknown[part], *rest, self.impulses[part])

        if self._pool is None:
            fly(slice(None))
        else:
            list(self._pool.map(fly, self._parts))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
