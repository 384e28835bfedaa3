"""Simulated vehicles: command delay, mixer, pad and contacts; subclasses have the equations of motion.

Mixer saturation: collective thrust and torques share the range of the four rotors. A rotor's thrust lies between zero and a
quarter of the vehicle's maximum, so the torque available is proportional to the distance of the collective thrust from the
nearer limit: largest at half thrust, zero at full. At the lower limit rates have priority and the thrust rises. At the upper
limit either thrust has priority, as observed in the competition's simulator, or the rates, as in a Betaflight mixer with
airmode (4.4, `applyMixerAdjustment` in `src/main/flight/mixer.c`, which shares motor outputs; here it is thrust). There the
rate loop slews more slowly than the rotors alone could, and uses less of their range.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics.contact import NOTHING, Body, Colliders, Contact, body_of
from gate_racer.sim.physics.jit import boxed, inlined
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import G_W, GRAVITY, RATES_X, RatesParameters, authority
from gate_racer.vehicle.rotation import Array, conjugate, log, matrix, product
from gate_racer.vehicle.vehicle import Vehicle


class MixedRates(NamedTuple):
    """Parameters of the `rates` model behind a mixer."""

    rates: RatesParameters
    slew_max: tuple[float, float, float]  # rad/s^2, at half thrust
    slew_rotors: tuple[float, float, float]  # rad/s^2, that use the whole range of the rotors
    thrust_max: float  # m/s^2
    lift: float  # m/s^2, thrust up to which torque demands may raise a lower commanded thrust
    thrust_yields: bool  # rates have priority at the upper limit too

    @classmethod
    def of(cls, vehicle: Vehicle) -> "MixedRates":
        mixer, slew = vehicle.mixer, vehicle.slew_max
        yields = mixer is not None and mixer.thrust_yields
        rotors = vehicle.rotors.slew_max_rad_s2 if vehicle.rotors else slew
        lift = mixer.lift_m_s2 if mixer else 0.0
        return cls(vehicle.rates_parameters, slew, rotors, vehicle.thrust_max, lift, yields)


@inlined
def share(x, u, lag, slew):
    """Return the share of these slews (3), rad/s^2, that a command u (4) demands in a state x (14) with rate lags (3), s."""
    return (
        abs(u[0] - x[10]) / (lag[0] * slew[0])
        + abs(u[1] - x[11]) / (lag[1] * slew[1])
        + abs(u[2] - x[12]) / (lag[2] * slew[2])
    )


@inlined
def mixed(x, u, par):
    """Return the feasible command (4) for a command u (4) as RATES_U in a state x (14) as RATES_X."""
    ask = share(x, u, par.rates.rate_lag, par.slew_max)
    room = 1.0 if par.thrust_yields else min(1.0, max(0.0, authority(x[13], par.thrust_max)))
    k = 1.0 if ask <= room else room / ask
    used = share(x, u, par.rates.rate_lag, par.slew_rotors) if par.thrust_yields else ask
    taken = 0.5 * k * used * par.thrust_max  # m/s^2, at either limit
    thrust = max(u[3], min(taken, par.lift))
    if par.thrust_yields:
        thrust = min(thrust, par.thrust_max - taken)
    if ask <= room:
        return (u[0], u[1], u[2], thrust)
    return (x[10] + k * (u[0] - x[10]), x[11] + k * (u[1] - x[11]), x[12] + k * (u[2] - x[12]), thrust)


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
    def p_wb(self) -> Array:  # (3,) m; a view of x, like the others
        return self.x[P]

    @property
    def v_w(self) -> Array:  # (3,) m/s
        return self.x[V]

    @property
    def q_wb(self) -> Array:  # (4,) wxyz
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
        self._par = self._parameters()
        self._pars, self._boxed_body = boxed(self._par), boxed(body_of(vehicle))
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
    def trouble(self) -> str:
        """What has failed in it; empty if nothing has."""
        return ""

    @property
    def body(self) -> Body:
        return cast(Body, self._boxed_body[0])

    def knock(self, shift_w: Array, dv_w: Array, domega_b: Array) -> None:
        """Displace the vehicle by shift_w (3,) m, and add dv_w (3,) m/s and domega_b (3,) rad/s to its velocity and rates."""
        self.x[P] += shift_w
        self.x[V] += dv_w
        self.x[W] += domega_b

    @property
    def truth(self) -> Truth:
        """True state at the current time; a copy."""
        x = np.empty(RATES_X.size)
        x[RIGID], x[-1] = self.x[RIGID], self.thrust
        return Truth(self.t, x, self._force_b.copy())

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
    def _parameters(self) -> Any: ...

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
            self._unknown_w = self._residual(t, self.truth.x, self._vehicle.throttle.thrust(throttle))
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
        if self.clear:
            return
        if self.x[P][2] > self._start.p_wb[2] and self.x[V][2] > 0:  # it sinks back before it is off the ground
            self._rest()
        elif self._colliders is not None:
            self.clear = self._colliders.inside(self.body, self.x[P], self.x[Q], CLEAR_M)

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
