"""Model-based optimal-control racing for autonomous drones: the public names. docs/api.md documents them with examples.

All else is in the rooms, `planner`, `sim` and so on, and may change between versions.
A name is loaded at its first use, since the commands import this package and must handle Ctrl-C before large modules load.
"""

from vehicle.rooms import module_name

HOMES = {  # the module of each name, in the order in which they are learned
    "load_track": "tracks.track",
    "load_vehicle": "vehicle.vehicle",
    "PlanOptions": "planner.options",
    "make_plan": "planner.planning",
    "Plan": "planner.plan",
    "read_plan": "planner.plan",
    "make_controller": "mpc.make",
    "make_estimator": "estimation.registry",
    "open_detector": "perception.registry",
    "load_profile": "link.profile",
    "as_believed": "sim.worlds.world",
    "Simulator": "sim.simulator",
    "Batch": "sim.physics.batch",
    "RacingEnvironment": "sim.environment.racing",
    "UserError": "vehicle.errors",
}

TYPE_CHECKING = False  # as of `typing`, which is not loaded for it
if TYPE_CHECKING:
    from estimation.registry import make_estimator as make_estimator
    from link.profile import load_profile as load_profile
    from mpc.make import make_controller as make_controller
    from perception.registry import open_detector as open_detector
    from planner.options import PlanOptions as PlanOptions
    from planner.plan import Plan as Plan
    from planner.plan import read_plan as read_plan
    from planner.planning import make_plan as make_plan
    from sim.environment.racing import RacingEnvironment as RacingEnvironment
    from sim.physics.batch import Batch as Batch
    from sim.simulator import Simulator as Simulator
    from sim.worlds.world import as_believed as as_believed
    from tracks.track import load_track as load_track
    from vehicle.errors import UserError as UserError
    from vehicle.vehicle import load_vehicle as load_vehicle

    __version__: str

__all__ = ["__version__", *HOMES]


def __getattr__(name: str) -> object:
    """Return a name of HOMES, or the version; for `from gate_racer import name`.

    Raises:
        AttributeError: any other name.
    """
    if name == "__version__":
        from importlib.metadata import version

        from vehicle.launch import DISTRIBUTION

        return version(DISTRIBUTION)
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module_name(HOMES[name])), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
