"""Base class of the simulated vehicles: command delay, pad and contacts; subclasses have the equations of motion."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics.contact import NOTHING, Body, Colliders, Contact, body_of, corners_w
from gate_racer.sim.physics.jit import boxed
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import G_W, GRAVITY, RATES_X
from gate_racer.vehicle.rotation import Array, conjugate, log, matrix, product
from gate_racer.vehicle.vehicle import Vehicle

CLEAR_M = 0.05  # m, clearance from the bounds after which contact with them counts (chosen)
SUBSTEP_S = 1 / 960  # s, an eighth of a tick at 120 Hz, near the 1 kHz loop of a flight controller
P, Q, V, W = (RATES_X[name].at for name in "pqvw")
RIGID = slice(0, W.stop)  # pose and motion, in the state of every plant
# (t, state (14,) as RATES_X, commanded c) -> (3,) m/s^2, world.
UnmodelledAcceleration = Callable[[float, Array, float], Array]


@dataclass(frozen=True, slots=True)
class Truth:
    """True state of the vehicle at time t (s); world NED, body FRD."""

    t: float
    x: Array  # (14,) as RATES_X
    accel_b: Array  # (3,) specific force, m/s^2

    @property
    def p_wb(self) -> Array:
        """Position (3,) m, world; a view of x."""
        return self.x[P]

    @property
    def q_wb(self) -> Array:
        """Attitude (4,), body to world, wxyz; a view of x."""
        return self.x[Q]


class Plant(ABC):
    """Vehicle in simulation. Commands take effect one command delay after reception."""

    def __init__(
        self,
        vehicle: Vehicle,
        start: Start,
        colliders: Colliders | None = None,
        residual: UnmodelledAcceleration | None = None,
    ):
        """Set up the plant on its pad. `residual`: unmodelled acceleration, constant within a tick: Swift eq. (11)."""
        self._vehicle, self._start, self._colliders, self._residual = vehicle, start, colliders, residual
        self._boxed_body = boxed(body_of(vehicle))
        self._solids = colliders.solids if colliders else NOTHING
        self._impulses = np.zeros(len(colliders.things) if colliders else 0)
        self._unknown_w = np.zeros(3)  # m/s^2, residual acceleration of the current tick, world
        self._most = np.array(vehicle.rate_max_rad_s)
        self._least = -self._most
        self.reset(0.0)
        self._step(np.zeros(3), 0.0, 0, 0.0)  # no sub-step: compiles or loads the machine code before any clock runs

    def reset(self, t: float) -> None:
        """Return the vehicle to its pad at time t (s), with motors off."""
        self.x = self._at_rest()
        self.t, self.armed = t, False
        self._pending: deque[tuple[float, AttitudeTarget]] = deque()
        self._active: AttitudeTarget | None = None
        self._rest()

    def place(self, p_wb: Array, q_wb: Array, v_w: Array) -> None:
        """Place the vehicle in the air, armed, at this pose and velocity with zero body rates."""
        self.x[P], self.x[Q], self.x[V], self.x[W] = p_wb, q_wb, v_w, 0.0
        self.armed, self.on_pad, self.clear = True, False, True

    @property
    def body(self) -> Body:
        """Colliding box of the vehicle."""
        return cast(Body, self._boxed_body[0])

    def knock(self, shift_w: Array, dv_w: Array, domega_b: Array) -> None:
        """Displace the vehicle by shift_w (3,) m, and add dv_w (3,) m/s and domega_b (3,) rad/s to its velocity and rates."""
        self.x[P] += shift_w
        self.x[V] += dv_w
        self.x[W] += domega_b

    @property
    def truth(self) -> Truth:
        """True state at the current time; a copy."""
        return Truth(self.t, self._rates_x(), self._force_b.copy())

    def _rates_x(self) -> Array:
        """Return the state (14,) as RATES_X."""
        x = np.empty(RATES_X.size)
        x[RIGID], x[-1] = self.x[RIGID], self.thrust
        return x

    def command(self, t: float, target: AttitudeTarget) -> None:
        """Queue a command received at time t (s); ignored while disarmed."""
        if target.keep_throttle:
            last = self._pending[-1][1] if self._pending else self._active
            target = replace(target, throttle=last.throttle if last else 0.0)
        if self.armed:
            self._pending.append((t + self._vehicle.command_delay_s, target))

    def disarm(self) -> None:
        """Stop the motors immediately and drop pending commands."""
        self.armed, self._active = False, None
        self._pending.clear()

    def advance(self, t: float) -> tuple[Contact, ...]:
        """Advance to time t (s) and return the contacts; the step is split where a pending command takes effect."""
        self._impulses[:] = 0.0
        while self._pending and self._pending[0][0] < t:
            acts, target = self._pending.popleft()
            self._fly(max(acts, self.t))
            self._active = target
        self._fly(t)
        return self._colliders.contacts(t, self._impulses) if self._colliders and self._impulses.any() else ()

    @property
    @abstractmethod
    def thrust(self) -> float:
        """Rotor thrust over mass along -z of the body, m/s^2."""

    @abstractmethod
    def _at_rest(self) -> Array:
        """Return the state at the origin with motors off; it begins with pose and motion (13) as RATES_X."""

    @abstractmethod
    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        """Advance x by `substeps` steps of dt with constant commands (rad/s, 0..1), contacts included.

        Returns the model's specific force at the end, m/s^2, body FRD.
        """

    def _surroundings(self) -> tuple[Any, ...]:
        """Return the arguments of `collide`: solids, index of the first active one, body, impulses.

        The bounds are inactive until the vehicle has cleared them after take-off.
        """
        first = 0 if self.clear or self._colliders is None else self._colliders.walls
        return self._solids, first, self._boxed_body, self._impulses

    def _fly(self, t: float) -> None:
        dt, self.t = t - self.t, t
        if dt <= 0:
            return
        omega, throttle = self._input()
        if self._residual is not None:
            self._unknown_w = self._residual(t, self._rates_x(), self._vehicle.throttle.thrust(throttle))
        before = self.x[RIGID].copy()
        substeps = max(1, math.ceil(dt / SUBSTEP_S - 1e-6))
        force_b = self._step(omega, throttle, substeps, dt / substeps)
        if self.on_pad and (self.x[V] - before[V])[2] >= 0:  # the thrust does not yet lift it
            self.x[RIGID] = before
            return
        self.on_pad = False
        self._force_b = np.array(force_b)
        if self._residual is not None:
            self._force_b += matrix(self.x[Q]).T @ self._unknown_w
        if self._impulses.any():  # what carries or strikes it is felt, on average over the step
            self._force_b = matrix(self.x[Q]).T @ ((self.x[V] - before[V]) / dt - G_W)
        if not self.clear:
            self._leave_pad()

    def _leave_pad(self) -> None:
        """Mark the vehicle as clear once off the ground; before that, sinking back returns it to its pad."""
        if self.x[P][2] > self._start.p_wb[2] and self.x[V][2] > 0:
            self._rest()
        elif self._colliders is not None:
            corners = corners_w(self._vehicle, self.x[P], self.x[Q])
            self.clear = self._colliders.inside(corners, CLEAR_M)

    def _rest(self) -> None:
        self.on_pad, self.clear = True, self._colliders is None
        self.x[RIGID] = 0.0
        self.x[P], self.x[Q] = self._start.p_wb, self._start.q_wb
        self._force_b = -GRAVITY * matrix(self.x[Q])[2]

    def _input(self) -> tuple[Array, float]:
        """Return the commanded body rates (3,), rad/s, and throttle, 0..1, in effect."""
        target = self._active
        if target is None:
            return np.zeros(3), 0.0
        omega = np.array(target.omega)
        if not target.by_rates:
            turn = product(conjugate(self.x[Q].tolist()), target.q_wb)
            omega = omega + self._vehicle.attitude_gain_1_s * log(turn)
        return np.minimum(np.maximum(omega, self._least), self._most), target.throttle
