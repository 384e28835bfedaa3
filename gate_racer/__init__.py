"""Model-based optimal-control racing for autonomous drones: the public names. docs/api.md documents them with examples.

All else is in the rooms, `planner`, `sim` and so on, and may change between versions.
A name is loaded at its first use, since the commands import this package and must handle Ctrl-C before large modules load.
"""

HOMES = {  # the module of each name, in the order in which they are learned
    "load_track": "gate_racer.tracks.track",
    "load_vehicle": "gate_racer.vehicle.vehicle",
    "PlanOptions": "gate_racer.planner.task",
    "make_plan": "gate_racer.planner.planning",
    "Plan": "gate_racer.planner.plan",
    "write_plan": "gate_racer.planner.plan",
    "read_plan": "gate_racer.planner.plan",
    "State": "gate_racer.model.states",
    "RacerOptions": "gate_racer.pilot.racer",
    "Racer": "gate_racer.pilot.racer",
    "Controller": "gate_racer.mpc.part",
    "Guidance": "gate_racer.mpc.part",
    "Detection": "gate_racer.perception.detection",
    "GateDetector": "gate_racer.perception.detection",
    "StateEstimator": "gate_racer.estimation.part",
    "Plant": "gate_racer.sim.physics.part",
    "make_controller": "gate_racer.mpc.registry",
    "make_estimator": "gate_racer.estimation.registry",
    "open_detector": "gate_racer.perception.registry",
    "load_profile": "gate_racer.link.profile",
    "as_believed": "gate_racer.sim.worlds.world",
    "RunSetup": "gate_racer.sim.simulator",
    "Simulator": "gate_racer.sim.simulator",
    "Batch": "gate_racer.sim.physics.batch",
    "RacingEnvironment": "gate_racer.sim.environment.racing",
    "UserError": "gate_racer.common.errors",
    "ReportedFlight": "gate_racer.field.report.flight",
    "read_logged_flight": "gate_racer.field.report.flight",
}

TYPE_CHECKING = False  # as of `typing`, which is not loaded for it
if TYPE_CHECKING:
    from gate_racer.common.errors import UserError as UserError
    from gate_racer.estimation.part import StateEstimator as StateEstimator
    from gate_racer.estimation.registry import make_estimator as make_estimator
    from gate_racer.field.report.flight import ReportedFlight as ReportedFlight
    from gate_racer.field.report.flight import read_logged_flight as read_logged_flight
    from gate_racer.link.profile import load_profile as load_profile
    from gate_racer.model.states import State as State
    from gate_racer.mpc.part import Controller as Controller
    from gate_racer.mpc.part import Guidance as Guidance
    from gate_racer.mpc.registry import make_controller as make_controller
    from gate_racer.perception.detection import Detection as Detection
    from gate_racer.perception.detection import GateDetector as GateDetector
    from gate_racer.perception.registry import open_detector as open_detector
    from gate_racer.pilot.racer import Racer as Racer
    from gate_racer.pilot.racer import RacerOptions as RacerOptions
    from gate_racer.planner.plan import Plan as Plan
    from gate_racer.planner.plan import read_plan as read_plan
    from gate_racer.planner.plan import write_plan as write_plan
    from gate_racer.planner.planning import make_plan as make_plan
    from gate_racer.planner.task import PlanOptions as PlanOptions
    from gate_racer.sim.environment.racing import RacingEnvironment as RacingEnvironment
    from gate_racer.sim.physics.batch import Batch as Batch
    from gate_racer.sim.physics.part import Plant as Plant
    from gate_racer.sim.simulator import RunSetup as RunSetup
    from gate_racer.sim.simulator import Simulator as Simulator
    from gate_racer.sim.worlds.world import as_believed as as_believed
    from gate_racer.tracks.track import load_track as load_track
    from gate_racer.vehicle.vehicle import load_vehicle as load_vehicle

    __version__: str

__all__ = ["__version__", *HOMES]


def __getattr__(name: str) -> object:
    """Return a name of HOMES, or the version; for `from gate_racer import name`. Raises AttributeError: any other name."""
    if name == "__version__":
        from importlib.metadata import version

        from gate_racer.common.launch import DISTRIBUTION

        return version(DISTRIBUTION)
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
