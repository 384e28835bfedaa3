"""The plants by name: those of `SETTINGS`, those of other people's packages, or of a user's class.

The settings are the four of Swift's simulation study (Kaufmann et al. 2023, Methods, "Simulation results"): in 1 and 2 the
controller's own model, here `rates`, in 3 and 4 the grey-box plant; in 2 and 4 the controller is given, instead of the true
state, the truth plus one realisation of the residual observation model. There no camera and no IMU take part; a pilot that flies
by them makes its own observations, so that of a setting only the plant affects it.
"""

import importlib.util
from dataclasses import dataclass

from gate_racer.common.errors import UserError
from gate_racer.common.parts import CLASS, is_part
from gate_racer.vehicle.vehicle import Vehicle

PLANTS = {  # class and package
    "rotorpy": ("gate_racer.sim.physics.part:RotorPy", "rotorpy"),
    "crazyflow": ("gate_racer.sim.physics.part:Crazyflow", "drone_models"),
}


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


def missing(name: str) -> str:
    """Return why a plant cannot be flown here; empty if it can."""
    installed = importlib.util.find_spec(PLANTS[name][1]) is not None
    return "" if installed else f"{name} is not installed: pip install 'gate-racer[sims]'"


def class_of(name: str) -> str:
    """Return the class of a plant, as of a user's part. Raises UserError where its package is not installed."""
    if why := missing(name):
        raise UserError(f"plant {name}: {why}")
    return PLANTS[name][0]


def version_of(name: str) -> str:
    """Return the version of a plant's package; empty for any other name, and for a package that does not tell it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PLANTS[name][1]) if name in PLANTS else ""
    except PackageNotFoundError:
        return ""


def plant_setting(name: str) -> Setting | None:
    """Return the setting of a number of `SETTINGS`, of a name in `PLANTS` or of a user's class; None for an empty name.
    Raises UserError for another name, or a package that is not installed."""
    if not name:
        return None
    if is_part(name) or name in PLANTS:
        return Setting(aerodynamic=False, noisy=False, part=class_of(name) if name in PLANTS else name)
    if name not in map(str, SETTINGS):
        raise UserError(f"plant {name}: must be one of {', '.join([*map(str, SETTINGS), *PLANTS])}, or {CLASS}")
    return SETTINGS[int(name)]
