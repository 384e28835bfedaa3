"""What a campaign can be made of: settings, controllers and estimators by name. A new one is one line here."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from benchmarks.campaign.case import Case
from benchmarks.campaign.worlds import FACTORS, UNKNOWN, cells_of
from estimation import registry
from estimation.estimator import MapEstimator
from estimation.registry import make_estimator
from mpc.controller import Controller
from mpc.make import make_controller
from mpc.policy import policy
from mpc.problem.settings import CONTROLLERS as NAMES
from perception.registry import CLASSICAL
from perception.rims import GateAppearance
from planner.options import PlanOptions
from planner.plan import Plan
from sim.physics import setting
from sim.physics.observation import ObservationModel
from sim.physics.residual import ResidualAcceleration
from sim.physics.setting import Setting
from sim.worlds.distribution import load_worlds
from sim.worlds.world import NOMINAL
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.vehicle import Vehicle

USUAL = "usual"  # the plan that `PlanOptions` gives by itself
# What a plan may be asked for, as in `plan-track`.
PLAN = {"reserve": "reserve", "margin": "margin_m", "see": "see", "risk": "risk"}
NO_ESTIMATOR = "given"  # the state is: there is nothing to estimate


@dataclass(frozen=True, slots=True)
class PreparedCourse:
    """What the cases of one track, vehicle and number of laps share; small, and sent to every worker."""

    track: Track
    vehicle: Vehicle
    plan: Plan
    gates_s: tuple[float, ...]  # planned times of the gates
    bound_s: float | None  # of a point mass
    errors: ObservationModel | None  # for noisy settings: what the estimator gets wrong here
    residual: ResidualAcceleration | None = None  # what flies has it too


def plan_options(text: str, laps: int) -> PlanOptions:
    """Of `reserve=1,margin=0,see=0`, or USUAL or nothing. Raises UserError."""
    asked: dict[str, float] = {}
    for part in text.split(",") if text not in ("", USUAL) else ():
        name, _, value = part.partition("=")
        if name not in PLAN:
            raise UserError(
                f"--plans {text}: {name!r} is not known; known: {', '.join(PLAN)}, such as reserve=1,margin=0"
            )
        try:
            asked[PLAN[name]] = float(value)
        except ValueError:
            raise UserError(f"--plans {text}: {part}: {value!r} is no number") from None
    return PlanOptions(laps=laps, **asked)  # type: ignore[arg-type]


def plan_name(text: str) -> str:
    """Of a case, one for all ways to say the same; empty for the usual plan."""
    options, usual = plan_options(text, 1), PlanOptions()
    asked = {name: getattr(options, field) for name, field in PLAN.items()}
    differ = {name: value for name, value in asked.items() if value != getattr(usual, PLAN[name])}
    return ",".join(f"{name}={value:g}" for name, value in differ.items())


@dataclass(frozen=True, slots=True)
class FlightConditions:
    """What flies and what the controller is told of it: by camera, or else the state itself."""

    simulated: Setting | None = None  # None: the most that is known of the vehicle
    camera: str = ""
    profile: str = "spec"
    detector: str = CLASSICAL  # of images

    @property
    def given(self) -> bool:
        return not self.camera

    def flown(self, vehicle: Vehicle) -> Setting:
        """With the plant that flies this vehicle."""
        return self.simulated or setting.natural(vehicle)

    @property
    def noisy(self) -> bool:
        return self.simulated is not None and self.simulated.noisy

    @property
    def random(self) -> bool:
        """Whether a seed changes anything."""
        return self.noisy or not self.given


def _by_name(name: str) -> Callable[[PreparedCourse], Controller]:
    def make(course: PreparedCourse) -> Controller:
        return make_controller(name, course.plan, course.vehicle, course.track)

    return make


def _estimator(name: str) -> Callable[[PreparedCourse], MapEstimator]:
    return lambda course: make_estimator(name, course.track.start, course.vehicle, GateAppearance())


SETTINGS = {str(number): FlightConditions(simulated) for number, simulated in setting.SETTINGS.items()}
SETTINGS |= {camera: FlightConditions(camera=camera) for camera in ("projected", "rendered")}
SETTINGS["projected-1"] = FlightConditions(setting.SETTINGS[1], "projected")
SETTINGS |= {
    f"{profile}-{camera}": FlightConditions(camera=camera, profile=profile)
    for profile in ("dcl", "betaflight")
    for camera in ("projected", "rendered")
}
SETTINGS["learned"] = FlightConditions(camera="rendered", detector="learned")
CONTROLLERS: dict[str, Callable[[PreparedCourse], Controller]] = {name: _by_name(name) for name in NAMES}
ESTIMATORS: dict[str, Callable[[PreparedCourse], MapEstimator]] = {
    name: _estimator(name) for name in registry.ESTIMATORS
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What a campaign is made of; every list by names that exist."""

    vehicles: list[str]
    settings: list[str]
    controllers: list[str]
    estimators: list[str]
    laps: int
    seeds: int
    worlds: list[str]
    uncertified: bool = False  # fly plans that are not the ones that were certified
    plans: tuple[str, ...] = (USUAL,)
    residual: str = ""  # name of the residual file

    def __post_init__(self) -> None:
        """Raises UserError for an unknown name."""
        flown = [name for name in self.controllers if not name.endswith(".npz")]
        options = ("settings", self.settings, SETTINGS), ("estimators", self.estimators, ESTIMATORS)
        for option, names, known in (*options, ("controllers", flown, (*CONTROLLERS, *policy.names()))):
            for name in names:
                if name not in known:
                    raise UserError(f"--{option} {name}: not known; known: {', '.join(known)}")
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: at least 1 is needed")
        for plan in self.plans:
            plan_options(plan, self.laps)
        for world in self.worlds:
            if ":" in world:
                raise UserError(
                    f"--worlds {world}: a file or name without a seed, since each flight's seed draws its world"
                )
            load_worlds(world if world != FACTORS else UNKNOWN)

    def cases(self, track: str, vehicle: str) -> list[Case]:
        """All of one track and vehicle. Nothing is random without noise, camera and deviations, so that is flown once."""
        found = {}
        worlds = cells_of(self.worlds)
        plans = dict.fromkeys(map(plan_name, self.plans))
        axes = product(plans, self.settings, self.controllers, self.estimators, worlds)
        for plan, name, controller, estimator, world in axes:
            told = SETTINGS[name]
            for seed in range(self.seeds if told.random or world != NOMINAL else 1):
                by = NO_ESTIMATOR if told.given else estimator
                case = Case(track, vehicle, self.laps, name, controller, by, seed, world, plan, self.residual)
                found[case.id] = case
        return list(found.values())
