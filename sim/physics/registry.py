"""The plants by name: those of `SETTINGS`, those of other people's packages, or of a user's class."""

import importlib.util
from typing import TYPE_CHECKING

from gate_racer.common.errors import UserError
from gate_racer.common.parts import CLASS, is_part

if TYPE_CHECKING:
    from gate_racer.sim.physics.plants import Setting

PLANTS = {  # class and package
    "rotorpy": ("gate_racer.sim.physics.part:RotorPy", "rotorpy"),
    "crazyflow": ("gate_racer.sim.physics.part:Crazyflow", "drone_models"),
}


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


def plant_setting(name: str) -> "Setting | None":
    """Return the setting of a number of `SETTINGS`, of a name in `PLANTS` or of a user's class; None for an empty name.
    Raises UserError for another name, or a package that is not installed."""
    from gate_racer.sim.physics.plants import SETTINGS, Setting

    if not name:
        return None
    if is_part(name) or name in PLANTS:
        return Setting(aerodynamic=False, noisy=False, part=class_of(name) if name in PLANTS else name)
    if name not in map(str, SETTINGS):
        raise UserError(f"plant {name}: must be one of {', '.join([*map(str, SETTINGS), *PLANTS])}, or {CLASS}")
    return SETTINGS[int(name)]
