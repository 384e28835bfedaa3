"""Grey-box plant behind the `Plant` interface, and the four settings of Swift's simulation study.

Grey-box plant: `sim.physics.swift` with contacts, behind the `Plant` interface.

The four settings of Swift's simulation study (Kaufmann et al. 2023, Methods, "Simulation results"; Extended Data Table 1c).

| setting | dynamics | observation handed to the controller |
|---|---|---|
| 1 | the planner's and the controller's own model | true state |
| 2 | the same | truth plus one realisation of the residual observation model |
| 3 | grey-box aerodynamic simulation | true state |
| 4 | the same | truth plus one realisation of the residual observation model |

In the paper no camera and no IMU take part: the controller is given position, velocity and attitude, and the noise does
not depend on what the camera would see. "The dynamics model used by the trajectory generation and the MPC controller
matches the simulated dynamics of experimental setting (1)": here that is the vehicle's `rates` model. A setting therefore
selects the plant of a simulator, and for a benchmark whether `ObservationModel` comes between truth and controller;
a pilot that flies by IMU and camera makes its own observations, so that only the plant affects it.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.sim.physics import lanes, swift
from gate_racer.sim.physics.contact import Colliders, collide
from gate_racer.sim.physics.flight_controller import steady_speed
from gate_racer.sim.physics.jit import boxed, inlined, njit, record
from gate_racer.sim.physics.plant import Plant, UnmodelledAcceleration
from gate_racer.sim.physics.rates_plant import RatesPlant
from gate_racer.sim.physics.rotors_plant import MotorSource, RotorsPlant
from gate_racer.sim.physics.swift import ALL, Terms
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import ThrottleCurve, Vehicle


@inlined
def taken(x, i, n):
    """Return motion and motor speeds (17), flight controller (9) and battery (3) of vehicle i of n."""
    loop = (*lanes.three(x, 17, i, n), *lanes.three(x, 20, i, n), *lanes.three(x, 23, i, n))
    return (*lanes.rigid(x, i, n), *lanes.four(x, 13, i, n)), loop, lanes.three(x, 26, i, n)


@inlined
def put(x, state, i, n):
    """Write the state that `taken` reads."""
    motion, loop, pack = state
    lanes.put_rigid(x, motion, i, n)
    lanes.put_four(x, motion[13:], 13, i, n)
    lanes.put_three(x, loop[:3], 17, i, n)
    lanes.put_three(x, loop[3:6], 20, i, n)
    lanes.put_three(x, loop[6:], 23, i, n)
    lanes.put_three(x, pack, 26, i, n)


@njit
def fly(x, u, armed, residual, pars, terms, substeps, dt, solids, first, bodies, impulses):
    """Advance x (29,) by sub-steps at constant input, with contacts resolved after each; return the specific force (3), FRD.

    pars, bodies: from `boxed`.
    """
    par, body = pars[0], bodies[0]
    share = swift.shares(par, dt)
    commanded, unknown = lanes.four(u, 0, 0, 1), lanes.three(residual, 0, 0, 1)
    for _ in range(substeps):
        motion, loop, pack = taken(x, 0, 1)
        put(x, swift.stepped(motion, loop, pack, commanded, armed, unknown, par, terms, share, dt), 0, 1)
        collide(x, solids, first, body, impulses)
    return swift.specific_force(x, par, terms)


@njit
def fly_lanes(x, u, residual, par, substeps, dt):
    """Advance LANES armed vehicles without contacts by `swift.stepped`; bit-identical to one by one.

    x, u, residual: (29 LANES,), (4 LANES,), (3 LANES,); entry k of vehicle i at k LANES + i.
    """
    n = lanes.LANES
    share = swift.shares(par, dt)
    for _ in range(substeps):
        for i in range(n):
            motion, loop, pack = taken(x, i, n)
            commanded, unknown = lanes.four(u, 0, i, n), lanes.three(residual, 0, i, n)
            put(x, swift.stepped(motion, loop, pack, commanded, True, unknown, par, ALL, share, dt), i, n)


class SwiftPlant(Plant):
    """Grey-box plant; state `x` (29,) as `sim.physics.swift.X`. Raises UserError without grey-box sections."""

    def __init__(
        self,
        vehicle: Vehicle,
        start: Start,
        colliders: Colliders | None = None,
        residual: UnmodelledAcceleration | None = None,
        terms: Terms = ALL,
    ):
        """Set up the plant on its pad. `terms.flight_controller` must be on: the inputs are rates and throttle."""
        if not terms.flight_controller:
            raise ValueError("a plant is flown by rates and throttle, so its flight controller cannot be switched off")
        self._boxed_par, self._terms = boxed(swift.parameters(vehicle)), terms
        self._par = self._boxed_par[0]
        super().__init__(vehicle, start, colliders, residual)

    @property
    def thrust(self) -> float:
        omega = self.x[swift.OMEGA]
        return float(self._par.c_l * (omega @ omega) / self._par.mass)

    @property
    def motor_speeds(self) -> Array:
        """Motor speeds (4,), rad/s."""
        return self.x[swift.OMEGA].copy()

    def _at_rest(self) -> Array:
        return swift.at_rest(self._par)

    def _step(self, omega: Array, throttle: float, substeps: int, dt: float) -> tuple[float, float, float]:
        # Motors stand still until the first command.
        u, armed = np.array([*omega.tolist(), throttle]), self._active is not None
        given = self._unknown_w, self._boxed_par, self._terms, substeps, dt
        return fly(self.x, u, armed, *given, *self._surroundings())


def static_curve(vehicle: Vehicle, points: int) -> ThrottleCurve:
    """Return thrust over throttle in still air at nominal voltage, from which the vehicle's `throttle` is taken."""
    par = record(swift.parameters(vehicle))
    command, thrust = np.linspace(0.0, 1.0, points), []
    for throttle in command:
        x = swift.at_rest(par)
        x[swift.OMEGA] = steady_speed(throttle, par.battery.nominal_v, par.loop, par.speed)
        thrust.append(-swift.specific_force(x, par, ALL)[2])
    return ThrottleCurve(tuple(command.tolist()), tuple(thrust))


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

    Raises:
        UserError: a class that cannot be made, an aerodynamic setting for a vehicle without grey-box sections, or motors for one
            without `rotors`.
    """
    if motors is not None:
        return RotorsPlant(vehicle, start, colliders, residual, motors=motors)
    if setting.part:
        from gate_racer.sim.physics.part import PartPlant  # which is a plant of this module's

        return PartPlant(setting.part, vehicle, start, colliders, residual)
    return (SwiftPlant if setting.aerodynamic else RatesPlant)(vehicle, start, colliders, residual)
