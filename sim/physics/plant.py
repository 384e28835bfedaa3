"""The plants: command delay, mixer, pad and contacts, and the equations of motion of three kinds of vehicle: the `rates` model,
the grey-box quadrotor, and four rotors driven by another flight controller.

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
from gate_racer.sim.physics import lanes, swift
from gate_racer.sim.physics.contact import NOTHING, Body, Colliders, Contact, body_of, collide
from gate_racer.sim.physics.jit import boxed, inlined, njit
from gate_racer.sim.physics.registry import Setting
from gate_racer.tracks.track import Start
from gate_racer.vehicle import dynamics
from gate_racer.vehicle.dynamics import G_W, GRAVITY, RATES_X, RatesParameters, RotorsParameters
from gate_racer.vehicle.rotation import Array, conjugate, log, matrix, product, rotate
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
    room = 1.0 if par.thrust_yields else min(1.0, max(0.0, dynamics.authority(x[13], par.thrust_max)))
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


THRUST = RATES_X["c"].at.start


@inlined
def drag_force(x, par):
    """Return the specific force (3) of a vehicle's drag, m/s^2, body FRD."""
    q = (x[3], x[4], x[5], x[6])
    return rotate(conjugate(q), dynamics.drag(q, (x[7], x[8], x[9]), par.drag_linear, par.drag_quadratic))


# The `rates` model (vehicle/dynamics.py), which planner and controller share, behind a mixer.


@inlined
def rates_add_scaled(x, h, k):
    """Return x + h k of 14 scalars."""
    return (*lanes.add_scaled_rigid(x, h, k), x[13] + h * k[13])


@inlined
def rates_slope(x, u, residual, par):
    """Return d/dt of the state (14) of the `rates` model behind the mixer. `residual`: acceleration (3), m/s^2, world."""
    k = dynamics.rates(x, mixed(x, u, par), par.rates)
    return (*k[:7], k[7] + residual[0], k[8] + residual[1], k[9] + residual[2], *k[10:])


@inlined
def rates_stepped(x, u, residual, par, dt):
    """Return the state (14) as RATES_X after one Runge-Kutta step. `residual`: acceleration (3), m/s^2, world."""
    return lanes.with_unit_attitude(lanes.runge_kutta(rates_slope, rates_add_scaled, x, x, u, residual, par, dt))


@inlined
def rates_substep(x, u, residual, par, dt, i, n):
    state = (*lanes.rigid(x, i, n), x[13 * n + i])
    lanes.put(x, rates_stepped(state, lanes.four(u, 0, i, n), lanes.three(residual, 0, i, n), par, dt), 0, i, n)


@njit
def fly_rates(x, u, residual, pars, substeps, dt, solids, first, bodies, impulses):
    """Advance x (14,) by sub-steps at constant input, with contacts resolved after each; return the specific force (3), FRD.

    u (4,): body rates, rad/s, and thrust, m/s^2. residual (3,): m/s^2, world. pars, bodies: from `boxed`.
    """
    par, body = pars[0], bodies[0]
    for _ in range(substeps):
        rates_substep(x, u, residual, par, dt, 0, 1)
        collide(x, solids, first, body, impulses)
    f = drag_force(x, par.rates)
    return f[0], f[1], f[2] - x[13]


@njit
def fly_rates_lanes(x, u, residual, par, substeps, dt):
    """Advance LANES vehicles without contacts, bit-identical to one by one.

    x, u, residual: (14 LANES,), (4 LANES,), (3 LANES,); entry k of vehicle i at k LANES + i.
    """
    for _ in range(substeps):
        for i in range(lanes.LANES):  # a constant, so that the compiler can prove that lanes do not overlap
            rates_substep(x, u, residual, par, dt, i, lanes.LANES)


class RatesPlant(Plant):
    """Plant of the `rates` model; state `x` (14,) as RATES_X."""

    def _parameters(self) -> MixedRates:
        return MixedRates.of(self._vehicle)

    @property
    def thrust(self) -> float:
        return float(self.x[THRUST])

    def _at_rest(self) -> Array:
        return np.zeros(RATES_X.size)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        thrust = self._vehicle.throttle.thrust(throttle) if self._active is not None else 0.0
        u = np.array([*omega.tolist(), thrust])
        return fly_rates(self.x, u, self._unknown_w, self._pars, substeps, dt, *self._surroundings())


# The grey-box quadrotor (sim/physics/swift.py).


@inlined
def swift_substep(x, u, armed, residual, par, share, dt, i, n):
    """Advance vehicle i of n by one sub-step. share: from `swift.shares`."""
    motion = (*lanes.rigid(x, i, n), *lanes.four(x, 13, i, n))
    loop = (*lanes.three(x, 17, i, n), *lanes.three(x, 20, i, n), *lanes.three(x, 23, i, n))
    pack = lanes.three(x, 26, i, n)
    commanded, unknown = lanes.four(u, 0, i, n), lanes.three(residual, 0, i, n)
    motion, loop, pack = swift.stepped(motion, loop, pack, commanded, armed, unknown, par, share, dt)
    lanes.put(x, motion, 0, i, n)
    lanes.put(x, loop, 17, i, n)
    lanes.put(x, pack, 26, i, n)


@njit
def fly_swift(x, u, armed, residual, pars, substeps, dt, solids, first, bodies, impulses):
    """`fly_rates` of the grey-box quadrotor, x (29,) as `sim.physics.swift.X`; u (4,): body rates, rad/s, and throttle, 0..1."""
    par, body = pars[0], bodies[0]
    share = swift.shares(par, dt)
    for _ in range(substeps):
        swift_substep(x, u, armed, residual, par, share, dt, 0, 1)
        collide(x, solids, first, body, impulses)
    return swift.specific_force(x, par)


@njit
def fly_swift_lanes(x, u, residual, par, substeps, dt):
    """`fly_rates_lanes` of armed grey-box quadrotors, x (29 LANES,)."""
    share = swift.shares(par, dt)
    for _ in range(substeps):
        for i in range(lanes.LANES):
            swift_substep(x, u, True, residual, par, share, dt, i, lanes.LANES)


class SwiftPlant(Plant):
    """Grey-box plant; state `x` (29,) as `sim.physics.swift.X`. Raises UserError without grey-box sections."""

    def _parameters(self) -> swift.SwiftParameters:
        return swift.parameters(self._vehicle)

    @property
    def thrust(self) -> float:
        omega, par = self.x[swift.OMEGA], self._par
        return float(par.motors.thrust_n_s2 * (omega @ omega) / par.rotors.mass)

    def _at_rest(self) -> Array:
        return swift.at_rest(self._par)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        # Motors stand still until the first command.
        u, armed = np.array([*omega.tolist(), throttle]), self._active is not None
        return fly_swift(self.x, u, armed, self._unknown_w, self._pars, substeps, dt, *self._surroundings())


# Four rotors with first-order thrust lag, driven by an external flight controller: the `rotors` model (vehicle/dynamics.py).


class LaggedRotors(NamedTuple):
    rotors: RotorsParameters
    lag: float  # s


# Flight controller: motor outputs (4,), 0..1, in the vehicle's order of rotors, for the state just measured by its IMU.
MotorSource = Callable[[Truth], Array]


@inlined
def rotors_slope(x, wanted, residual, par):
    """Return d/dt of pose, motion and thrusts (17 scalars). `residual`: acceleration (3), m/s^2, world."""
    k = dynamics.rotors(x, (x[13], x[14], x[15], x[16]), par.rotors)
    off = (wanted[0] - x[13], wanted[1] - x[14], wanted[2] - x[15], wanted[3] - x[16])
    rise = (off[0] / par.lag, off[1] / par.lag, off[2] / par.lag, off[3] / par.lag)
    return (*k[:7], k[7] + residual[0], k[8] + residual[1], k[9] + residual[2], *k[10:], *rise)


@njit
def fly_rotors(x, wanted, residual, pars, substeps, dt, solids, first, bodies, impulses):
    """`fly_rates` of four rotors, x (17,), at constant target thrusts (4,), N."""
    par, body = pars[0], bodies[0]
    commanded, unknown = lanes.four(wanted, 0, 0, 1), lanes.three(residual, 0, 0, 1)
    for _ in range(substeps):
        now = (*lanes.rigid(x, 0, 1), *lanes.four(x, 13, 0, 1))
        y = lanes.runge_kutta(rotors_slope, lanes.add_scaled_with_four, now, now, commanded, unknown, par, dt)
        lanes.put(x, lanes.with_unit_attitude(y), 0, 0, 1)
        collide(x, solids, first, body, impulses)
    f = drag_force(x, par.rotors)
    return f[0], f[1], f[2] - (x[13] + x[14] + x[15] + x[16]) / par.rotors.mass


class RotorsPlant(Plant):
    """State `x` (17,): ROTORS_X and the thrusts (4), N. Driven by a `MotorSource`; commands of the link do not reach it.

    Rotor i's thrust follows a quarter of the vehicle's static curve at its motor output, with the vehicle's thrust lag. Inertia,
    arms and drag torque are those of `rotors` in the vehicle; aerodynamics are the vehicle's drag alone, and there is no battery.
    """

    def __init__(self, motors: MotorSource, *given: Any):
        """Set up as `Plant`. Raises UserError for a vehicle without a `rotors` section."""
        self._motors = motors
        super().__init__(*given)

    def _parameters(self) -> LaggedRotors:
        return LaggedRotors(self._vehicle.rotors_parameters, self._vehicle.thrust_lag_s)

    @property
    def thrust(self) -> float:
        return float(self.x[13:].sum() / self._par.rotors.mass)

    def _at_rest(self) -> Array:
        return np.zeros(17)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        outputs = self._motors(self.truth) if substeps else np.zeros(4)
        thrust, mass = self._vehicle.throttle.thrust, self._par.rotors.mass
        wanted = np.array([mass / 4 * thrust(output) if self.armed else 0.0 for output in outputs.tolist()])
        return fly_rotors(self.x, wanted, self._unknown_w, self._pars, substeps, dt, *self._surroundings())


def make_plant(
    vehicle: Vehicle,
    start: Start,
    setting: Setting,
    colliders: Colliders | None = None,
    residual: UnmodelledAcceleration | None = None,
    motors: MotorSource | None = None,
) -> Plant:
    """Return the plant of a setting; with `motors`, whatever the setting, four rotors driven by that source.

    Raises UserError for a class that cannot be made, and for a vehicle without the sections that the plant needs.
    """
    if motors is not None:
        return RotorsPlant(motors, vehicle, start, colliders, residual)
    if setting.part:
        from gate_racer.sim.physics.part import PartPlant  # which is a plant of this module's

        return PartPlant(setting.part, vehicle, start, colliders, residual)
    return (SwiftPlant if setting.aerodynamic else RatesPlant)(vehicle, start, colliders, residual)
