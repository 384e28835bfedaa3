"""What all scenarios share: the `Arena` of `world.yaml` or of a file of one's own, and what makes flying there hard."""

import math
from dataclasses import dataclass
from pathlib import Path

from bootcamp.api import Location
from vehicle.camera import Camera
from vehicle.config import load

FILE = Path(__file__).parent / "world.yaml"
# One seed names a stream of its own for every thing left to chance.
WAYPOINT, PADS, FLOOR, GATES, ROUTE, DISTRACTORS, WIND, NOISE, LOSS = range(9)
DRONES = SIMULATED, KINEMATIC = "simulated", "kinematic"
PROFILE = "spec"  # of the simulator's wire, which nothing here sends over; it has the rate of the physics
PX_MAX = 4096  # of a camera, each way
STEP_MIN_S = 1 / 120  # of what flies simulated, and short enough for anybody
MOST = {
    "step_s": 1.0,
    "height_m": 200.0,
    "boundary_m": 200.0,
    "pad_m": 20.0,
    "steps_max": 100_000,
}  # what can still be drawn
HARDEST = {"wind_m_s": 20.0, "gust_m_s": 10.0, "noise": 100.0, "distractors": 100}


@dataclass(frozen=True)
class WorldConditions:
    """What makes a flight hard; the default is nothing."""

    wind_m_s: float = 0.0  # steady, its direction drawn from the seed
    gust_m_s: float = 0.0  # standard deviation
    noise: float = 0.0  # of a pixel, grey levels, standard deviation
    distractors: int = 0  # blue things that are no pads
    lost: float = 0.0  # share of the images that never arrive
    lost_steps: int = 10  # length of a gap
    camera_tilt_deg: float = -90.0  # up; -90 is straight down

    def __post_init__(self) -> None:
        for name, most in HARDEST.items():
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name}: {getattr(self, name):g} does not lie between 0 and {most:g}")
        if self.lost_steps < 1:
            raise ValueError(f"lost_steps: a gap of {self.lost_steps} steps is none")
        if not 0 <= self.lost < 1:
            raise ValueError(f"lost: {self.lost:g} is no share of images from 0 to below 1")
        if not -90 <= self.camera_tilt_deg <= -60:
            raise ValueError(f"camera_tilt_deg: {self.camera_tilt_deg:g} does not lie between -90 and -60")


@dataclass(frozen=True)
class Arena:
    """The world file."""

    name: str
    source: str
    step_s: float
    height_m: float  # of flight
    boundary_m: float  # of destinations, north and east
    speed_m_s: float  # of flight, at most
    acceptance_m: float  # a destination so near is reached
    arrived_m_s: float  # at less than this speed
    settled_s: float  # for so long
    pad_m: float  # side of a landing pad
    steps_max: int
    camera: Camera  # looks straight down
    conditions: WorldConditions | None = None  # in the place of every scenario's own
    drone: str = SIMULATED
    map: str = ""  # folder of tiles; none: a painted floor

    def __post_init__(self) -> None:
        if not 0 < self.acceptance_m <= 1:
            raise ValueError(f"acceptance_m: {self.acceptance_m:g} does not lie between 0 and 1 m")
        for name in ("step_s", "height_m", "boundary_m", "arrived_m_s", "settled_s", "pad_m", "steps_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name):g} must be positive")
        if self.step_s < STEP_MIN_S - 1e-9:
            raise ValueError(f"step_s: {self.step_s:g} is less than 1/120")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name}: {getattr(self, name):g} is more than {most:g}")
        if max(self.camera.width_px, self.camera.height_px) > PX_MAX:
            raise ValueError(f"camera: more than {PX_MAX} px on a side")
        if not 0.5 <= self.speed_m_s <= 5:
            raise ValueError(f"speed_m_s: {self.speed_m_s:g} does not lie between 0.5 and 5 m/s")
        if self.drone not in DRONES:
            raise ValueError(f"drone: {self.drone!r} is none of {', '.join(DRONES)}")

    @property
    def view_m(self) -> Location:
        """How much ground the image shows from the flight's height."""
        camera = self.camera
        return Location(self.height_m * camera.height_px / camera.fy_px, self.height_m * camera.width_px / camera.fx_px)

    def ahead_m(self, conditions: WorldConditions) -> float:
        """How far north of a hovering drone the image's middle lies."""
        return self.height_m * math.tan(math.radians(90 + conditions.camera_tilt_deg))


def load_world(path: Path = FILE) -> Arena:
    """Raises UserError when the file is missing or malformed."""
    return load(path, Arena)
