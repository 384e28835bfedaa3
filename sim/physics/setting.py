"""The four settings of Swift's simulation study (Kaufmann et al. 2023, Methods, "Simulation results"; Extended Data Table 1c).

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

from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plant import Plant, UnmodelledAcceleration
from gate_racer.sim.physics.rates_plant import RatesPlant
from gate_racer.sim.physics.rotors_plant import MotorSource, RotorsPlant
from gate_racer.sim.physics.swift_plant import SwiftPlant
from gate_racer.tracks.track import Start
from gate_racer.vehicle.vehicle import Vehicle


@dataclass(frozen=True, slots=True)
class Setting:
    """Plant and observation model of a simulated flight."""

    aerodynamic: bool  # the grey-box plant; off: the `rates` model
    noisy: bool  # the controller sees residual observations, not the truth


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
        UserError: an aerodynamic setting for a vehicle without grey-box sections, or motors for one without `rotors`.
    """
    if motors is not None:
        return RotorsPlant(vehicle, start, colliders, residual, motors=motors)
    return (SwiftPlant if setting.aerodynamic else RatesPlant)(vehicle, start, colliders, residual)
