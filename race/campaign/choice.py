"""Registry of a campaign's axes: settings, controllers and estimators by name."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path

from gate_racer.common.errors import UserError
from gate_racer.common.files import ARRAY_BYTES, read_bytes
from gate_racer.common.parts import CLASS, is_part, part_content
from gate_racer.common.settings import key
from gate_racer.estimation.registry import ESTIMATORS, VIO
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.perception.registry import CLASSICAL
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import PlanOptions
from gate_racer.race.campaign.case import Case, digest
from gate_racer.sim.physics.registry import PLANTS, Setting, class_of, plant_setting, version_of
from gate_racer.sim.physics.registry import SETTINGS as SWIFT_SETTINGS
from gate_racer.sim.physics.residual import ObservationModel, ResidualAcceleration, Residuals
from gate_racer.sim.worlds.distribution import load_worlds
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.tracks.track import SPACING_M, Track
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
UNKNOWN, FACTORS = "unknown", "factors"  # worlds: a file, and each of its factors alone
NO_ESTIMATOR = "given"  # the state is given to the controller, without an estimator


@dataclass(frozen=True, slots=True)
class PreparedCourse:
    """Data shared by the cases of one track, vehicle and number of laps; sent to every worker."""

    track: Track
    vehicle: Vehicle
    plan: Plan
    gates_s: tuple[float, ...]  # planned gate times since GO
    bound_s: float | None  # lower bound of the race time, of a point mass; None for a course with a stop at its end
    errors: ObservationModel | None  # observation errors, for noisy settings
    residual: ResidualAcceleration | None = None  # residual acceleration of the plant


def plan_options(text: str, laps: int) -> PlanOptions:
    """Parse plan options such as `reserve=1,margin=0,see=0`; USUAL or an empty text for the defaults. Raises UserError."""
    values: dict[str, float] = {}
    for part in text.split(",") if text not in ("", USUAL) else ():
        name, _, value = part.partition("=")
        if name not in PLAN:
            raise UserError(f"plans {text}: unknown option {name!r}; known: {', '.join(PLAN)}, as reserve=1,see=0")
        try:
            values[PLAN[name]] = float(value)
        except ValueError:
            raise UserError(f"plans {text}: {part}: {value!r} is not a number") from None
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

    @property
    def noisy(self) -> bool:
        return self.simulated is not None and self.simulated.noisy

    @property
    def random(self) -> bool:
        """Whether the seed has an effect."""
        return self.noisy or not self.given


SETTINGS = {str(number): FlightConditions(simulated) for number, simulated in SWIFT_SETTINGS.items()}
SETTINGS |= {camera: FlightConditions(camera=camera) for camera in ("projected", "rendered")}
SETTINGS["projected-1"] = FlightConditions(SWIFT_SETTINGS[1], "projected")
SETTINGS |= {
    f"{profile}-{camera}": FlightConditions(camera=camera, profile=profile)
    for profile in ("dcl", "betaflight")
    for camera in ("projected", "rendered")
}
SETTINGS["learned"] = FlightConditions(camera="rendered", detector="learned")


def conditions_of(setting: str) -> FlightConditions:
    """Return the conditions of a setting; a foreign plant, or a user's, is flown by projected camera. Raises UserError."""
    return SETTINGS[setting] if setting in SETTINGS else FlightConditions(plant_setting(setting), "projected")


def rank(setting: str) -> tuple[int, str]:
    """Return the place of a setting in a table: as listed, then plants of users."""
    return (list(SETTINGS).index(setting) if setting in SETTINGS else len(SETTINGS)), setting


def cells_of(worlds: Iterable[str]) -> list[str]:
    """Return the worlds of the cells: `as_believed`, names of files, or FILE:FACTOR+ for one factor; `factors` is expanded."""
    found: list[str] = []
    for world in worlds:
        if world == FACTORS:
            found += [f"{UNKNOWN}:{one.of}{sign}" for one in load_worlds(UNKNOWN).factors for sign in one.signs]
        else:
            found.append(world)
    return list(dict.fromkeys(found))


def asked_world(world: str, seed: int) -> str:
    """Return the name of a cell's world with its seed, for `sim.worlds.distribution.resolve`."""
    name, *factor = world.split(":")
    return ":".join([name, str(seed), *factor])


@dataclass(frozen=True)
class RivalsSettings:
    """Settings of races of several, by projected corners and the grid's own controllers."""

    grid: str = key("", "pairings: name in race/campaign/grids, or a YAML file")
    ahead_m: float = key(0.0, "distance by which the first place lies in front, m")
    spacing_m: float = key(SPACING_M, "distance between two places, m")
    rotor_radius_m: float = key(0.0, "radius of rotors whose downwash is felt, m; 0 for none", least=0, most=1)


@dataclass(frozen=True)
class Choice:
    """Axes of a campaign, settings of `race-bench`."""

    vehicles: tuple[str, ...] = key(("dcl",), "names or YAML files")
    settings: tuple[str, ...] = key(
        ("projected",), f"from {', '.join((*SETTINGS, *PLANTS))}, or a range such as 1-4", "S"
    )
    controllers: tuple[str, ...] = key(
        (CONTROLLERS[0],),
        f"from {', '.join(CONTROLLERS)}, YAML files, learned policies (name or .onnx), or {CLASS}",
        "NAME",
    )
    estimators: tuple[str, ...] = key((ESTIMATORS[0],), "state estimators", choices=tuple(ESTIMATORS), part=True)
    laps: int = key(1, "number of laps")
    seeds: int = key(10, "flights per configuration with random elements", "N", least=1, most=MOST_SEEDS)
    worlds: tuple[str, ...] = key(
        (NOMINAL,), "names or files, drawn by the flight's seed; factors: each factor of unknown alone", "W"
    )
    uncertified: bool = key(False, "fly plans without a valid certificate")
    plans: tuple[str, ...] = key(
        (USUAL,), "planning options, such as reserve=1,margin=0,see=0 for the time-optimal plan", "P"
    )
    residual: Path | None = key(
        None, "file of fit-residuals or make-errors: accelerations added to the plant, errors added to the observation"
    )
    first_seed: int = key(0, "seed of the first flight", least=0)

    def require_known(self) -> None:
        """Check names and numbers. Raises UserError for an unknown name."""
        for name in self.flown:
            if name not in (*SETTINGS, *PLANTS) and not is_part(name):
                raise UserError(f"settings {name}: unknown; known: {', '.join((*SETTINGS, *PLANTS))}, or {CLASS}")
        if VIO in self.estimators and (self.residuals is None or self.residuals.observation is None):
            raise UserError(f"estimators {VIO}: needs a VIO: give its errors, residual=FILE of race-bench make-errors")
        from gate_racer.mpc.registry import controller_content

        for name in self.controllers:
            if not is_part(name):  # which are loaded for the cases
                controller_content(name)
        for plan in self.plans:
            plan_options(plan, self.laps)
        for world in self.worlds:
            load_worlds(world if world != FACTORS else UNKNOWN)

    @property
    def flown(self) -> list[str]:
        """The settings, with ranges such as 1-4 expanded."""
        found: list[str] = []
        for name in self.settings:
            span = re.fullmatch(r"(\d)-(\d)", name)
            found += [str(k) for k in range(int(span[1]), int(span[2]) + 1)] if span else [name]
        return list(dict.fromkeys(found))

    @cached_property
    def residuals(self) -> Residuals | None:
        """Content of the residual file. Raises UserError for an unreadable one."""
        return Residuals.load(self.residual) if self.residual is not None else None

    def cases(self, track: Track, vehicle: Vehicle) -> list[Case]:
        """Return all cases of one track and vehicle; without noise, camera and deviations there is a single seed."""
        from gate_racer.mpc.registry import controller_content, needs_plan

        found = {}
        contents = {name: controller_content(name) for name in self.controllers}
        needing = {name: needs_plan(name) for name in self.controllers}
        parts = {name: class_of(name) if name in PLANTS else name for name in (*self.flown, *self.estimators)}
        brought = {name: (part_content(part), version_of(name)) for name, part in parts.items() if is_part(part)}
        worlds = {world: load_worlds(world.partition(":")[0]) for world in cells_of(self.worlds)}
        plans, residual = dict.fromkeys(map(plan_name, self.plans)), ""
        if self.residual is not None:  # its name, with a hash of its content
            content = hashlib.sha256(read_bytes(self.residual, ARRAY_BYTES)).hexdigest()
            residual = f"{self.residual.stem}-{content[:8]}"
        axes = product(plans, self.flown, self.controllers, self.estimators, worlds)
        for asked, name, controller, estimator, world in axes:
            conditions, plan = conditions_of(name), asked if needing[controller] else ""
            of_parts = (brought[k] for k in (name, estimator) if k in brought)
            content = digest(track.hash, vehicle.hash, worlds[world], contents[controller], *of_parts)
            drawn = conditions.random or world != NOMINAL
            for seed in range(self.first_seed, self.first_seed + self.seeds) if drawn else range(1):
                by = NO_ESTIMATOR if conditions.given else estimator
                names = track.name, vehicle.name, self.laps, name, controller, by
                case = Case(*names, seed, world, plan, residual, content)
                found[case.id] = case
        return list(found.values())


@dataclass(frozen=True)
class BenchSettings(Choice):
    tracks: tuple[str, ...] = key(("vq1",), "names or YAML files", "TRACK")
    workers: int | None = key(None, "number of processes on this machine; else one per core", least=1)
    out: Path | None = key(
        None, "folder of the campaign, which is continued if it exists; else logs/campaign-COMMIT", "FOLDER"
    )
    retry: bool = key(False, "repeat failed cases")
    worst: int = key(3, "number of worst flights to log and draw", least=0)
    rivals: RivalsSettings = field(default_factory=RivalsSettings)
