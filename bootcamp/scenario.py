"""What is to be flown: fixed, or drawn from a seed. One seed names a stream of its own for every thing left to chance."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bootcamp.api import Location
from tracks.track import Bounds, Start, Track
from vehicle.camera import Camera
from vehicle.config import load
from vehicle.errors import UserError

FILE = Path(__file__).parent / "world.yaml"
WAYPOINT_STREAM, PADS_STREAM, FLOOR_STREAM, GATES_STREAM = range(4)  # beside the seed
WALL_M = 5.0  # from the boundary of destinations to what the drone would crash into
HEADROOM_M = 20.0
PADS_MAX = 3
APART_M = 1.0  # between the edges of two pads, along one axis at least
TRIES = 1000


@dataclass(frozen=True)
class Arena:
    """What all scenarios share; `world.yaml`."""

    name: str
    source: str
    step_s: float
    height_m: float  # of flight
    boundary_m: float  # of destinations, north and east
    acceptance_m: float  # a destination so near is reached
    arrived_m_s: float  # at less than this speed
    settled_s: float  # for so long
    pad_m: float  # side of a landing pad
    steps_max: int
    camera: Camera  # looks straight down

    def __post_init__(self) -> None:
        if not 0 < self.acceptance_m <= 1:
            raise ValueError(f"acceptance_m: {self.acceptance_m:g} does not lie between 0 and 1 m")
        if (
            min(
                self.step_s,
                self.height_m,
                self.boundary_m,
                self.arrived_m_s,
                self.settled_s,
                self.pad_m,
                self.steps_max,
            )
            <= 0
        ):
            raise ValueError("steps, height, boundary, speed, times and pads must be positive")

    @property
    def view_m(self) -> Location:
        """How much ground the picture shows from the flight's height."""
        camera = self.camera
        return Location(self.height_m * camera.height_px / camera.fy_px, self.height_m * camera.width_px / camera.fx_px)


@dataclass(frozen=True)
class Scenario:
    """One task."""

    name: str
    seed: int
    world: Arena
    waypoint: Location | None
    pads: tuple[Location, ...]

    def track(self) -> Track:
        """The empty room around it, for the simulator."""
        wall = self.world.boundary_m + WALL_M
        bounds = Bounds((-wall, -wall, -self.world.height_m - HEADROOM_M), (wall, wall, 0.0))
        return Track(self.world.name, Start((0.0, 0.0, -0.1), 0.0), bounds, (), False, None)


def load_world() -> Arena:
    """Raises UserError when the file is malformed."""
    return load(FILE, Arena)


def make_scenario(name: str, seed: int, world: Arena | None = None) -> Scenario:
    """The scenario of a name.

    Raises:
        UserError: no such scenario, a negative seed, or a world without room for it.
    """
    if name not in SCENARIOS:
        raise UserError(f"no scenario {name!r}; known: {', '.join(SCENARIOS)}")
    if seed < 0:
        raise UserError(f"seed {seed}: must not be negative")
    return SCENARIOS[name](Scenario(name, seed, world or load_world(), None, ()))


def _figure8(base: Scenario) -> Scenario:
    """The decision example: nothing is left to chance."""
    return replace(base, pads=(Location(0.0, 0.0),))


def _waypoint(base: Scenario) -> Scenario:
    """A waypoint, with a pad there and where the flight began."""
    waypoint = _draw_waypoint(base)
    return replace(base, waypoint=waypoint, pads=(Location(0.0, 0.0), waypoint))


def _pads(base: Scenario) -> Scenario:
    """A waypoint with 1 to 3 pads in sight of it."""
    waypoint = _draw_waypoint(base)
    world, rng = base.world, np.random.default_rng([base.seed, PADS_STREAM])
    reach = np.array(world.view_m) / 2 - world.pad_m / 2 - APART_M / 2
    if min(reach) <= 0:
        raise UserError(f"{FILE.name}: pads of {world.pad_m:g} m do not fit into the picture")
    count, pads = int(rng.integers(1, PADS_MAX + 1)), list[Location]()
    for _ in range(TRIES):
        if len(pads) == count:
            return replace(base, waypoint=waypoint, pads=tuple(pads))
        north, east = (np.array(waypoint) + rng.uniform(-reach, reach)).tolist()
        if all(max(abs(north - pad.north), abs(east - pad.east)) >= world.pad_m + APART_M for pad in pads):
            pads.append(Location(north, east))
    raise UserError(f"seed {base.seed}: no room for {count} pads of {world.pad_m:g} m in sight of the waypoint")


def _draw_waypoint(base: Scenario) -> Location:
    """At least one picture from the start on each axis, and half a picture from the boundary."""
    view, boundary = np.array(base.world.view_m), base.world.boundary_m
    high = boundary - view / 2
    if (high <= view).any():
        raise UserError(f"{FILE.name}: a boundary of {boundary:g} m leaves no room for a waypoint")
    rng = np.random.default_rng([base.seed, WAYPOINT_STREAM])
    north, east = (rng.choice([-1.0, 1.0], 2) * rng.uniform(view, high)).tolist()
    return Location(north, east)


SCENARIOS: dict[str, Callable[[Scenario], Scenario]] = {"figure8": _figure8, "waypoint": _waypoint, "pads": _pads}
