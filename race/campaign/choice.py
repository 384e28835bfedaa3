"""Registry of a campaign's axes: settings, controllers and estimators by name."""

from dataclasses import dataclass
from itertools import product

from gate_racer.common.errors import UserError
from gate_racer.common.files import read_bytes
from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.mpc.policy import policy
from gate_racer.mpc.problem import CONTROLLERS, load_settings
from gate_racer.perception.registry import CLASSICAL
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import PlanOptions
from gate_racer.race.campaign.case import Case, digest
from gate_racer.race.campaign.worlds import FACTORS, UNKNOWN, cells_of
from gate_racer.sim.physics import swift_plant as setting
from gate_racer.sim.physics.residual import ObservationModel, ResidualAcceleration
from gate_racer.sim.physics.swift_plant import Setting
from gate_racer.sim.worlds.distribution import load_worlds
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

MOST_SEEDS = 100_000  # per configuration; each case takes memory (chosen)
USUAL = "usual"  # the plan with the default `PlanOptions`
# Plan options by their names in `plan-track`.
PLAN = {
    "reserve": "reserve",
    "speed": "speed_m_s",
    "margin": "margin_m",
    "see": "see",
    "sight": "sight_s",
    "risk": "risk",
}
NO_ESTIMATOR = "given"  # the state is given to the controller, without an estimator


@dataclass(frozen=True, slots=True)
class PreparedCourse:
    """Data shared by the cases of one track, vehicle and number of laps; sent to every worker."""

    track: Track
    vehicle: Vehicle
    plan: Plan
    gates_s: tuple[float, ...]  # planned gate times since GO
    bound_s: (
        float | None
    )  # lower bound of the race time, of a point mass; None also for a course with a stop at its end
    errors: ObservationModel | None  # observation errors, for noisy settings
    residual: ResidualAcceleration | None = None  # residual acceleration of the plant


def plan_options(text: str, laps: int) -> PlanOptions:
    """Parse plan options such as `reserve=1,margin=0,see=0`; USUAL or an empty text for the defaults. Raises UserError."""
    values: dict[str, float] = {}
    for part in text.split(",") if text not in ("", USUAL) else ():
        name, _, value = part.partition("=")
        if name not in PLAN:
            raise UserError(
                f"--plans {text}: unknown option {name!r}; known: {', '.join(PLAN)}, such as reserve=1,margin=0"
            )
        try:
            values[PLAN[name]] = float(value)
        except ValueError:
            raise UserError(f"--plans {text}: {part}: {value!r} is not a number") from None
    return PlanOptions(laps=laps, **values)  # type: ignore[arg-type]


def plan_name(text: str) -> str:
    """Return the canonical name of plan options; empty for the defaults. Raises UserError."""
    options, usual = plan_options(text, 1), PlanOptions()
    values = {name: getattr(options, field) for name, field in PLAN.items()}
    differ = {name: value for name, value in values.items() if value != getattr(usual, PLAN[name])}
    return ",".join(f"{name}={value:g}" for name, value in differ.items())


@dataclass(frozen=True, slots=True)
class FlightConditions:
    """Plant and inputs of the pilot: IMU and camera, or the state itself."""

    simulated: Setting | None = None  # None: the most detailed plant of the vehicle
    camera: str = ""
    profile: str = "spec"
    detector: str = CLASSICAL  # detector for rendered images

    @property
    def given(self) -> bool:
        """Whether the state is given instead of estimated."""
        return not self.camera

    def flown(self, vehicle: Vehicle) -> Setting:
        """Return the setting with the plant for this vehicle."""
        return self.simulated or setting.natural(vehicle)

    @property
    def noisy(self) -> bool:
        """Whether the observation has noise."""
        return self.simulated is not None and self.simulated.noisy

    @property
    def random(self) -> bool:
        """Whether the seed has an effect."""
        return self.noisy or not self.given


def _content(controller: str) -> object:
    """Return the settings of a controller, or the file of a policy."""
    return (
        load_settings(controller) if controller in CONTROLLERS else read_bytes(policy.path_of(controller), policy.BYTES)
    )


SETTINGS = {str(number): FlightConditions(simulated) for number, simulated in setting.SETTINGS.items()}
SETTINGS |= {camera: FlightConditions(camera=camera) for camera in ("projected", "rendered")}
SETTINGS["projected-1"] = FlightConditions(setting.SETTINGS[1], "projected")
SETTINGS |= {
    f"{profile}-{camera}": FlightConditions(camera=camera, profile=profile)
    for profile in ("dcl", "betaflight")
    for camera in ("projected", "rendered")
}
SETTINGS["learned"] = FlightConditions(camera="rendered", detector="learned")


@dataclass(frozen=True, slots=True)
class Choice:
    """Axes of a campaign, as lists of known names."""

    vehicles: list[str]
    settings: list[str]
    controllers: list[str]
    estimators: list[str]
    laps: int
    seeds: int
    worlds: list[str]
    uncertified: bool = False  # accept plans that differ from the certified ones
    plans: tuple[str, ...] = (USUAL,)
    residual: str = ""  # name of the residual file
    first_seed: int = 0

    def __post_init__(self) -> None:
        """Check names and numbers. Raises UserError for an unknown name."""
        flown = [name for name in self.controllers if not name.endswith(".npz")]
        options = ("settings", self.settings, SETTINGS), ("estimators", self.estimators, ESTIMATORS)
        for option, names, known in (*options, ("controllers", flown, (*CONTROLLERS, *policy.names()))):
            for name in names:
                if name not in known:
                    raise UserError(f"--{option} {name}: unknown; known: {', '.join(known)}")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise UserError(f"--seeds {self.seeds}: must lie between 1 and {MOST_SEEDS}")
        if self.first_seed < 0:
            raise UserError(f"--first-seed {self.first_seed}: must not be negative")
        for plan in self.plans:
            plan_options(plan, self.laps)
        for world in self.worlds:
            if ":" in world:
                raise UserError(
                    f"--worlds {world}: must be a name or file without a seed, since each flight's seed draws its world"
                )
            load_worlds(world if world != FACTORS else UNKNOWN)

    def cases(self, track: Track, vehicle: Vehicle) -> list[Case]:
        """Return all cases of one track and vehicle; without noise, camera and deviations there is a single seed."""
        found = {}
        files = [load_worlds(name if name != FACTORS else UNKNOWN) for name in self.worlds]
        course = track.hash, vehicle.hash, *files
        contents = {name: digest(*course, _content(name)) for name in self.controllers}
        worlds = cells_of(self.worlds)
        plans = dict.fromkeys(map(plan_name, self.plans))
        axes = product(plans, self.settings, self.controllers, self.estimators, worlds)
        for asked, name, controller, estimator, world in axes:
            conditions, plan = SETTINGS[name], asked if controller in CONTROLLERS else ""  # a policy has no plan
            drawn = conditions.random or world != NOMINAL
            for seed in range(self.first_seed, self.first_seed + self.seeds) if drawn else range(1):
                by = NO_ESTIMATOR if conditions.given else estimator
                names = track.name, vehicle.name, self.laps, name, controller, by
                case = Case(*names, seed, world, plan, self.residual, contents[controller])
                found[case.id] = case
        return list(found.values())
