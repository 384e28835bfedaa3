"""The plants, with contacts: the `rates` model, the grey-box quadrotor, and four rotors driven by another flight controller.

The settings are the four of Swift's simulation study (Kaufmann et al. 2023, Methods, "Simulation results"): in 1 and 2 the
controller's own model, here `rates`, in 3 and 4 the grey-box plant; in 2 and 4 the controller is given, instead of the true
state, the truth plus one realisation of the residual observation model. There no camera and no IMU take part; a pilot that flies
by them makes its own observations, so that of a setting only the plant affects it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gate_racer.sim.physics import lanes, swift
from gate_racer.sim.physics.contact import Colliders, collide
from gate_racer.sim.physics.jit import inlined, njit
from gate_racer.sim.physics.plant import MixedRates, Plant, Truth, UnmodelledAcceleration, mixed
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import RATES_X, RotorsParameters, drag, rates, rotors
from gate_racer.vehicle.rotation import Array, conjugate, rotate
from gate_racer.vehicle.vehicle import Vehicle

THRUST = RATES_X["c"].at.start


@inlined
def drag_force(x, par):
    """Return the specific force (3) of a vehicle's drag, m/s^2, body FRD."""
    q = (x[3], x[4], x[5], x[6])
    return rotate(conjugate(q), drag(q, (x[7], x[8], x[9]), par.drag_linear, par.drag_quadratic))


# The `rates` model (vehicle/dynamics.py), which planner and controller share, behind a mixer.


@inlined
def rates_add_scaled(x, h, k):
    """Return x + h k of 14 scalars."""
    return (*lanes.add_scaled_rigid(x, h, k), x[13] + h * k[13])


@inlined
def rates_slope(x, u, residual, par):
    """Return d/dt of the state (14) of the `rates` model behind the mixer. `residual`: acceleration (3), m/s^2, world."""
    k = rates(x, mixed(x, u, par), par.rates)
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
    k = rotors(x, (x[13], x[14], x[15], x[16]), par.rotors)
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


@dataclass(frozen=True, slots=True)
class Setting:
    """Plant and observation model of a simulated flight."""

    aerodynamic: bool  # the grey-box plant; off: the `rates` model
    noisy: bool  # the controller sees residual observations, not the truth
    part: str = ""  # a user's class in place of either plant


SETTINGS = {
    1: Setting(aerodynamic=False, noisy=False),
    2: Setting(aerodynamic=False, noisy=True),
    3: Setting(aerodynamic=True, noisy=False),
    4: Setting(aerodynamic=True, noisy=True),
}


def natural(vehicle: Vehicle) -> Setting:
    """Return the setting with the most detailed plant that the vehicle supports, and no observation model."""
    return Setting(aerodynamic=vehicle.grey_box, noisy=False)


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
