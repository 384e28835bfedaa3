"""Scenarios: layout, fixed or drawn from a seed, goal and conditions, in the `Arena` of `world.yaml` or another file."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from gate_racer.bootcamp.api import CourseGate, Location
from gate_racer.common.config import load, write
from gate_racer.common.errors import UserError
from gate_racer.common.settings import Limited, limited
from gate_racer.link.profile import load_profile, ticks
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import VADR_FRAME, Bounds, Start, Track
from gate_racer.vehicle.camera import Camera

FILE = Path(__file__).parent / "world.yaml"
# Each random quantity has its own stream for a seed.
WAYPOINT, PADS, FLOOR, GATES, ROUTE, DISTRACTORS, WIND, NOISE, LOSS = range(9)
DRONES = SIMULATED, KINEMATIC = "simulated", "kinematic"
PROFILE = "spec"  # link profile of the simulator; only its physics rate is used here
PX_MAX = 4096  # px, greatest width and height of an image


@dataclass(frozen=True)
class WorldConditions(Limited):
    """Disturbances of a flight; none by default. Limits: chosen."""

    wind_m_s: float = limited(0.0, least=0.0, most=20.0)  # steady wind, its direction drawn from the seed
    gust_m_s: float = limited(0.0, least=0.0, most=10.0)  # standard deviation of gusts
    noise: float = limited(0.0, least=0.0, most=100.0)  # grey levels, standard deviation of a pixel
    distractors: int = limited(0, least=0, most=100)  # number of blue objects that are not pads
    lost: float = limited(0.0, least=0.0, most=0.99)  # -, share of images that are lost
    lost_steps: int = limited(10, least=1, most=100_000)  # steps per gap of lost images
    camera_tilt_deg: float = limited(-90.0, least=-90.0, most=-60.0)  # positive up; -90 is straight down


@dataclass(frozen=True)
class Arena(Limited):
    """Contents of a world file. Limits: what can be drawn and flown (chosen)."""

    name: str
    source: str
    camera: Camera  # looks straight down
    step_s: float = limited(least=1 / 120 - 1e-9, most=1.0)  # length of a step, from one tick of the simulated physics
    height_m: float = limited(least=1.0, most=200.0)  # of flight
    boundary_m: float = limited(least=1.0, most=200.0)  # greatest north and east coordinate of a destination
    speed_m_s: float = limited(least=0.5, most=5.0)  # greatest speed of flight
    acceptance_m: float = limited(least=0.01, most=1.0)  # distance within which a destination is reached,
    arrived_m_s: float = limited(least=0.001, most=5.0)  # ... below this speed,
    settled_s: float = limited(least=0.001, most=10.0)  # ... for this time
    pad_m: float = limited(least=0.1, most=20.0)  # side of a landing pad
    steps_max: int = limited(least=1, most=100_000)  # steps after which a flight ends
    conditions: WorldConditions | None = None  # replaces every scenario's own
    drone: str = limited(SIMULATED, choices=DRONES)
    map: str = ""  # folder of tiles; empty for a painted floor

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.camera.width_px, self.camera.height_px) > PX_MAX:
            raise ValueError(f"camera: more than {PX_MAX} px on a side")

    @property
    def view_m(self) -> Location:
        """Extent (m, north and east) of the ground in an image from the flight's height."""
        camera = self.camera
        return Location(self.height_m * camera.height_px / camera.fy_px, self.height_m * camera.width_px / camera.fx_px)

    def ahead_m(self, conditions: WorldConditions) -> float:
        """Return the distance (m) north of a hovering drone at which the image's centre lies."""
        return self.height_m * math.tan(math.radians(90 + conditions.camera_tilt_deg))


def load_world(path: Path = FILE) -> Arena:
    """Load a world file. Raises UserError if the file is missing or malformed."""
    return load(path, Arena)


# Courses drawn from a seed: gates within bounds, apart, and each within a flyable turn and climb from the one before.

BOUNDS = Bounds((-60.0, -60.0, -16.0), (60.0, 60.0, 0.0))  # m, world NED (chosen)
START = Start((-45.0, 0.0, -0.1), 0.0)  # m, world NED, and yaw in deg
LEG_M = (12.0, 25.0)  # m, range of the distance from gate to gate (chosen, as those below)
TURN_RAD = math.radians(50)  # rad, greatest angle between successive legs
YAW_RAD = math.radians(25)  # rad, greatest angle between a gate's axis and the leg to it
HEIGHT_M = (2.5, 10.0)  # m, range of the height of an opening's centre
CLIMB = 0.25  # -, greatest change of height over length of a leg
GATE_WALL_M = 6.0  # m, least distance from a gate to the bounds
GATE_APART_M = 10.0  # m, least distance between any two gates
WALK_TRIES, STARTS = 200, 200  # greatest numbers of draws per walk, and of walks


def generate_track(seed: int, count: int) -> Track:
    """Return a course of `count` gates, the same for the same seed.
    Raises UserError for a negative seed, and where the bounds have no room for so many gates."""
    if seed < 0 or count < 1:
        raise UserError(f"seed {seed}, {count} gates: expected a seed that is not negative, and at least one gate")
    rng = np.random.default_rng([seed, GATES])
    for _ in range(STARTS):
        gates = _walk(rng, count)
        if len(gates) == count:
            return Track(f"generated-{seed}", START, BOUNDS, tuple(gates), False, None)
    raise UserError(f"seed {seed}: no room for {count} gates within {BOUNDS.low_m} to {BOUNDS.high_m}; request fewer")


def _walk(rng: np.random.Generator, count: int) -> list[Gate]:
    """Draw gates one after the other, until there are `count` or the draws are used up."""
    gates: list[Gate] = []
    p, heading = START.p_wb, math.radians(START.yaw_deg)
    for _ in range(WALK_TRIES):
        if len(gates) == count:
            break
        course = heading + rng.uniform(-TURN_RAD, TURN_RAD)
        length = rng.uniform(*LEG_M)
        down = float(np.clip(p[2] + rng.uniform(-CLIMB, CLIMB) * length, -HEIGHT_M[1], -HEIGHT_M[0]))
        centre = np.array([p[0] + length * math.cos(course), p[1] + length * math.sin(course), down])
        within = (np.abs(centre[:2]) <= np.array(BOUNDS.high_m[:2]) - GATE_WALL_M).all()
        others = [gate.p_wg for gate in gates] + [START.p_wb]
        if within and min(float(np.linalg.norm(centre - other)) for other in others) >= GATE_APART_M:
            yaw_deg = math.degrees(course + rng.uniform(-YAW_RAD, YAW_RAD))
            x, y, z = np.round(centre, 3).tolist()
            gates.append(Gate((x, y, z), round(yaw_deg, 2), 0.0, **asdict(VADR_FRAME)))
            p, heading = centre, course
    return gates


def write_track(track: Track, folder: Path) -> Path:
    """Write the track's file, named as the track; return its path. Raises UserError if the file cannot be written."""
    path = folder / f"{track.name}.yaml"
    write(path, {
        "name": track.name,
        "source": "drawn by `bootcamp --set generate=seed=N` from the seed in its name",
        "start": {"position_m": track.start.position_m, "yaw_deg": track.start.yaw_deg},
        "bounds": asdict(track.bounds),
        "frame": asdict(VADR_FRAME),
        "gates": [{"centre_m": gate.centre_m, "yaw_deg": gate.yaw_deg} for gate in track.gates],
    })  # fmt: skip
    return path


WALL_M = 5.0  # m from the boundary of destinations to the walls (chosen)
HEADROOM_M = 20.0  # m from the flight's height to the ceiling (chosen)
PADS_MAX = 3  # greatest number of pads
APART_M = 1.0  # m, least gap between the edges of two pads along one of the axes (chosen)
TRIES = 1000  # greatest number of draws of places
GATE_COUNT = 4  # gates of a course
COURSE_HEIGHT_M = 5.0  # m, height at which a course of gates begins
ROUTE_COUNT, ROUTE_APART_M = 5, 15.0  # number of places of a route, and their least distance in m


@dataclass(frozen=True)
class Goal:
    """Goal of a scenario: place of the landing, and conditions to meet before."""

    land: Literal["pad", "nearest_pad", "waypoint", "anywhere"]
    within_m: float = 0.0  # greatest distance of the landing from the target
    ignored_max: int | None = None  # greatest number of ignored commands; None: any
    loop_m2: float = 0.0  # least area of either loop of a figure of eight
    visit_all: bool = False  # whether to visit all places of the route
    tour_max: float = 0.0  # -, greatest length of the flight over the shortest tour; 0: any
    pass_gates: bool = False  # whether to pass all gates


@dataclass(frozen=True)
class Scenario:
    """One task as drawn by a seed: the complete description of a flight."""

    name: str
    seed: int
    world: Arena
    goal: Goal
    conditions: WorldConditions
    waypoint: Location | None = None
    pads: tuple[Location, ...] = ()
    route: tuple[Location, ...] = ()  # places to visit
    course: Track | None = None  # of gates

    def track(self) -> Track:
        """Return the bounds of the flight with the gates, if any, as a track for the simulator."""
        wall = self.world.boundary_m + WALL_M
        bounds = Bounds((-wall, -wall, -self.world.height_m - HEADROOM_M), (wall, wall, 0.0))
        if self.course is not None:
            return replace(self.course, bounds=bounds)
        return Track(self.world.name, Start((0.0, 0.0, -0.1), 0.0), bounds, (), False, None)

    @property
    def height_m(self) -> float:
        """Height at which the flight begins, m."""
        return self.world.height_m if self.course is None else COURSE_HEIGHT_M

    @property
    def gates(self) -> tuple[CourseGate, ...]:
        """Gates of the course, as given to the program; empty without one."""
        found = []
        for gate in self.course.gates if self.course else ():
            north, east, down = gate.p_wg.tolist()
            found.append(CourseGate(north, east, -down, math.atan2(gate.R_wg[1, 0], gate.R_wg[0, 0])))
        return tuple(found)


def make_scenario(name: str, seed: int, world: Arena | None = None) -> Scenario:
    """Return the scenario called `name`, drawn by a seed.
    Raises UserError for an unknown one, a negative seed, a world that is too small, and a step that is no multiple of a tick."""
    if name not in TASKS:
        raise UserError(f"no scenario {name!r}; known: {', '.join(TASKS)}")
    if seed < 0:
        raise UserError(f"seed {seed}: must not be negative")
    world, (layout, goal, own) = world or load_world(), TASKS[name]
    if world.drone == SIMULATED:
        hz = load_profile(PROFILE).physics_hz
        try:
            ticks(1 / world.step_s, hz)
        except ValueError:
            told = f"a step of {world.step_s:g} s: must be a multiple of 1/{hz:g} s; --drone kinematic accepts any"
            raise UserError(told) from None
    conditions = world.conditions or own
    world = replace(world, camera=replace(world.camera, tilt_deg=conditions.camera_tilt_deg))
    return layout(Scenario(name, seed, world, goal, conditions))


def _waypoint(base: Scenario) -> Scenario:
    """Draw a waypoint, with a pad there and one at the start."""
    waypoint = _draw_waypoint(base)
    return replace(base, waypoint=waypoint, pads=(START_PAD, waypoint))


def _pads(base: Scenario) -> Scenario:
    """Draw a waypoint with 1 to 3 pads in view of it."""
    waypoint = _draw_waypoint(base)
    world, rng = base.world, np.random.default_rng([base.seed, PADS])
    reach = _reach(world)
    count, pads = int(rng.integers(1, PADS_MAX + 1)), list[Location]()
    for _ in range(TRIES):
        if len(pads) == count:
            return replace(base, waypoint=waypoint, pads=tuple(pads))
        north, east = (np.array(waypoint) + rng.uniform(-reach, reach)).tolist()
        if all(max(abs(north - pad.north), abs(east - pad.east)) >= world.pad_m + APART_M for pad in pads):
            pads.append(Location(north, east))
    raise UserError(f"seed {base.seed}: no room for {count} pads of {world.pad_m:g} m in sight of the waypoint")


def _pad_near(base: Scenario) -> Scenario:
    """Draw a pad that is in view from the start."""
    rng = np.random.default_rng([base.seed, PADS])
    middle = np.array([base.world.ahead_m(base.conditions), 0.0])
    return replace(base, pads=(Location(*(middle + 0.9 * rng.uniform(-1, 1, 2) * _reach(base.world)).tolist()),))


def _strip(base: Scenario) -> Scenario:
    """Draw a straight line to search, given by two places, and a pad beside it that is in view from neither end."""
    rng, view = np.random.default_rng([base.seed, PADS]), base.world.view_m
    angle = rng.choice([0.0, 0.5, 1.0, 1.5]) * np.pi + np.pi / 2
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    start, end = 10.0 * along, (base.world.boundary_m - 10) * along
    pad = rng.uniform(0.45, 0.55) * (start + end) + rng.uniform(-0.25, 0.25) * view.north * across
    route = tuple(Location(*np.round(p, 6).tolist()) for p in (start, end))
    return replace(base, route=route, pads=(Location(*pad.tolist()),))


def _route(base: Scenario) -> Scenario:
    """Draw places to visit in any order."""
    rng, places = np.random.default_rng([base.seed, ROUTE]), [Location(0.0, 0.0)]
    reach = base.world.boundary_m - 10
    for _ in range(TRIES):
        place = Location(*np.round(rng.uniform(-reach, reach, 2), 1).tolist())
        if min(map(place.distance, places)) >= ROUTE_APART_M:
            places.append(place)
        if len(places) > ROUTE_COUNT:
            return replace(base, route=tuple(places[1:]))
    raise UserError(f"seed {base.seed}: no room for {ROUTE_COUNT} places {ROUTE_APART_M:g} m apart")


def _reach(world: Arena) -> np.ndarray:
    """Return the greatest distances (2,) m, north and east, from the image's centre of a wholly visible pad."""
    reach = np.array(world.view_m) / 2 - world.pad_m / 2 - APART_M / 2
    if min(reach) <= 0:
        raise UserError(f"{FILE.name}: pads of {world.pad_m:g} m do not fit into the image")
    return reach


def _draw_waypoint(base: Scenario) -> Location:
    """Draw a waypoint at least one image from the start on each axis, and half an image from the boundary."""
    view, boundary = np.array(base.world.view_m), base.world.boundary_m
    high = boundary - view / 2
    if (high <= view).any():
        raise UserError(f"{base.world.name}: a boundary of {boundary:g} m leaves no room for a waypoint")
    rng = np.random.default_rng([base.seed, WAYPOINT])
    north, east = (rng.choice([-1.0, 1.0], 2) * rng.uniform(view, high)).tolist()
    return Location(north, east)


def _course(base: Scenario) -> Scenario:
    return replace(base, course=generate_track(base.seed, GATE_COUNT))


START_PAD, TEN_NORTH, CALM = Location(0.0, 0.0), Location(10.0, 0.0), WorldConditions()
_pad_below = partial(replace, pads=(START_PAD,))
_ten_north = partial(replace, waypoint=TEN_NORTH, pads=(TEN_NORTH,))
# By name: what is laid out, when it is done, and what makes it hard.
TASKS: dict[str, tuple[Callable[[Scenario], Scenario], Goal, WorldConditions]] = {
    "detector": (_pad_below, Goal("pad", within_m=1.0), CALM),
    "figure8": (_pad_below, Goal("pad", within_m=1.0, loop_m2=150.0), CALM),
    "waypoint": (_waypoint, Goal("waypoint", within_m=1.0), CALM),
    "pads": (_pads, Goal("nearest_pad", within_m=1.0), CALM),
    "hear": (_ten_north, Goal("waypoint", within_m=1.0, ignored_max=0), CALM),
    "distractors": (_pad_near, Goal("pad", within_m=1.0), WorldConditions(noise=12.0, distractors=6)),
    "locate": (_pad_near, Goal("pad", within_m=0.6), WorldConditions(camera_tilt_deg=-72.0)),
    "wind": (_waypoint, Goal("waypoint", within_m=0.3), WorldConditions(wind_m_s=7.0)),
    "lost": (_strip, Goal("pad", within_m=1.0), WorldConditions(lost=0.5)),
    "route": (_route, Goal("anywhere", visit_all=True, tour_max=1.1), CALM),
    "gates": (_course, Goal("anywhere", pass_gates=True), CALM),
}
