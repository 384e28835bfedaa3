"""The plant: what really flies. Command delay, pad and contacts are common; the equations of motion are a sub-class's."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from link.messages import AttitudeTarget
from sim.physics.contact import NOTHING, Body, Colliders, Contact, body_of, corners_w
from sim.physics.jit import boxed
from tracks.track import Start
from vehicle.dynamics import GRAVITY, RATES_X
from vehicle.rotation import Array, conjugate, log, matrix, product
from vehicle.vehicle import Vehicle

CLEAR_M = 0.05  # of the ground before touching it counts
SUBSTEP_S = 1 / 960  # an eighth of a tick at 120 Hz, about a flight controller's own 1 kHz
P, Q, V, W = (RATES_X[name].at for name in "pqvw")
RIGID = slice(0, W.stop)  # pose and motion, in the state of every plant
Residual = Callable[[float, Array, float], Array]  # (t, state (14,) as RATES_X, commanded c) -> (3,) m/s^2, world


@dataclass(frozen=True, slots=True)
class Truth:
    """The vehicle's state at a time; world NED, body FRD."""

    t: float
    x: Array  # (14,) as RATES_X
    accel_b: Array  # (3,) specific force, m/s^2

    @property
    def p_wb(self) -> Array:
        return self.x[P]

    @property
    def q_wb(self) -> Array:
        return self.x[Q]


class Plant(ABC):
    """Steps the vehicle. Commands act one command delay after they were received."""

    def __init__(
        self, vehicle: Vehicle, start: Start, colliders: Colliders | None = None, residual: Residual | None = None
    ):
        """`residual` is an acceleration that the model does not know, held for a tick: Swift eq. (11)."""
        self._vehicle, self._start, self._colliders, self._residual = vehicle, start, colliders, residual
        self._boxed_body = boxed(body_of(vehicle))
        self._solids = colliders.solids if colliders else NOTHING
        self._impulses = np.zeros(len(colliders.things) if colliders else 0)
        self._unknown_w = np.zeros(3)  # the residual acceleration now
        self._most = np.array(vehicle.rate_max_rad_s)
        self._least = -self._most
        self.reset(0.0)
        self._step(np.zeros(3), 0.0, 0, 0.0)  # no sub-step: compiles, or finds it compiled, before any clock runs

    def reset(self, t: float) -> None:
        """Back to the pad, motors off."""
        self.x = self._at_rest()
        self.t, self.armed = t, False
        self._pending: deque[tuple[float, AttitudeTarget]] = deque()
        self._active: AttitudeTarget | None = None
        self._rest()

    def place(self, p_wb: Array, q_wb: Array, v_w: Array) -> None:
        """Into the air, armed, with these states and no rotation."""
        self.x[P], self.x[Q], self.x[V], self.x[W] = p_wb, q_wb, v_w, 0.0
        self.armed, self.on_pad, self.clear = True, False, True

    @property
    def body(self) -> Body:
        """What collides."""
        return cast(Body, self._boxed_body[0])

    def knock(self, shift_w: Array, dv_w: Array, domega_b: Array) -> None:
        """Moves it by shift_w (3,) m, and changes its motion by dv_w (3,) m/s and domega_b (3,) rad/s, at once."""
        self.x[P] += shift_w
        self.x[V] += dv_w
        self.x[W] += domega_b

    @property
    def truth(self) -> Truth:
        return Truth(self.t, self._rates_x(), self._force_b.copy())

    def _rates_x(self) -> Array:
        """The state (14,) as RATES_X."""
        x = np.empty(RATES_X.size)
        x[RIGID], x[-1] = self.x[RIGID], self.thrust
        return x

    def command(self, t: float, target: AttitudeTarget) -> None:
        """A command received at t; ignored while disarmed."""
        if target.keep_throttle:
            last = self._pending[-1][1] if self._pending else self._active
            target = replace(target, throttle=last.throttle if last else 0.0)
        if self.armed:
            self._pending.append((t + self._vehicle.command_delay_s, target))

    def disarm(self) -> None:
        """Motors off, at once."""
        self.armed, self._active = False, None
        self._pending.clear()

    def advance(self, t: float) -> tuple[Contact, ...]:
        """Flies to time t and tells what was hit; a command that starts to act in between splits the step there."""
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
        """State at the origin, motors off; begins with pose and motion (13) as RATES_X."""

    @abstractmethod
    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        """Moves x by so many sub-steps of dt with held commands (rad/s, 0..1), contacts included.

        Returns the model's specific force in body axes at the end, m/s^2.
        """

    def _surroundings(self) -> tuple[Any, ...]:
        """What `collide` needs: solids, the first that counts, body, impulses.

        The walls and the floor are no obstacle to what still stands in them.
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
        if self.on_pad and (self.x[V] - before[V])[2] >= 0:  # the thrust does not carry it yet
            self.x[RIGID] = before
            return
        self.on_pad = False
        self._force_b = np.array(force_b)
        if self._residual is not None:
            self._force_b += matrix(self.x[Q]).T @ self._unknown_w
        if not self.clear:
            self._leave_pad()

    def _leave_pad(self) -> None:
        """Once off the ground it is clear for good; what sinks back before stands on its pad again."""
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
        """Body rates (3,) and throttle that the flight controller is asked for now."""
        target = self._active
        if target is None:
            return np.zeros(3), 0.0
        omega = np.array(target.omega)
        if not target.by_rates:
            turn = product(conjugate(self.x[Q].tolist()), target.q_wb)
            omega = omega + self._vehicle.attitude_gain_1_s * log(turn)
        return np.minimum(np.maximum(omega, self._least), self._most), target.throttle
