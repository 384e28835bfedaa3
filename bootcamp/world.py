"""Parameters common to all scenarios: the `Arena` of `world.yaml` or another file, and the conditions of flight."""

import math
from dataclasses import dataclass
from pathlib import Path

from gate_racer.bootcamp.api import Location
from gate_racer.common.config import load
from gate_racer.vehicle.camera import Camera

FILE = Path(__file__).parent / "world.yaml"
# Each random quantity has its own stream for a seed.
WAYPOINT, PADS, FLOOR, GATES, ROUTE, DISTRACTORS, WIND, NOISE, LOSS = range(9)
DRONES = SIMULATED, KINEMATIC = "simulated", "kinematic"
PROFILE = "spec"  # link profile of the simulator; only its physics rate is used here
PX_MAX = 4096  # px, greatest width and height of an image
STEP_MIN_S = 1 / 120  # s, one tick of the simulated physics
MOST = {
    "step_s": 1.0,
    "height_m": 200.0,
    "boundary_m": 200.0,
    "pad_m": 20.0,
    "steps_max": 100_000,
}  # upper limits of what can be drawn
HARDEST = {"wind_m_s": 20.0, "gust_m_s": 10.0, "noise": 100.0, "distractors": 100}  # upper limits (chosen)


@dataclass(frozen=True)
class WorldConditions:
    """Disturbances of a flight; none by default."""

    wind_m_s: float = 0.0  # steady wind, its direction drawn from the seed
    gust_m_s: float = 0.0  # standard deviation of gusts
    noise: float = 0.0  # grey levels, standard deviation of a pixel
    distractors: int = 0  # number of blue objects that are not pads
    lost: float = 0.0  # -, share of images that are lost
    lost_steps: int = 10  # steps per gap of lost images
    camera_tilt_deg: float = -90.0  # positive up; -90 is straight down

    def __post_init__(self) -> None:
        for name, most in HARDEST.items():
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name}: {getattr(self, name):g} does not lie between 0 and {most:g}")
        if self.lost_steps < 1:
            raise ValueError(f"lost_steps: {self.lost_steps} must be at least 1")
        if not 0 <= self.lost < 1:
            raise ValueError(f"lost: {self.lost:g} must be at least 0 and below 1")
        if not -90 <= self.camera_tilt_deg <= -60:
            raise ValueError(f"camera_tilt_deg: {self.camera_tilt_deg:g} does not lie between -90 and -60")


@dataclass(frozen=True)
class Arena:
    """Contents of a world file."""

    name: str
    source: str
    step_s: float  # length of a step
    height_m: float  # of flight
    boundary_m: float  # greatest north and east coordinate of a destination
    speed_m_s: float  # greatest speed of flight
    acceptance_m: float  # distance within which a destination is reached,
    arrived_m_s: float  # ... below this speed,
    settled_s: float  # ... for this time
    pad_m: float  # side of a landing pad
    steps_max: int  # steps after which a flight ends
    camera: Camera  # looks straight down
    conditions: WorldConditions | None = None  # replaces every scenario's own
    drone: str = SIMULATED  # one of DRONES
    map: str = ""  # folder of tiles; empty for a painted floor

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
        """Extent (m, north and east) of the ground in an image from the flight's height."""
        camera = self.camera
        return Location(self.height_m * camera.height_px / camera.fy_px, self.height_m * camera.width_px / camera.fx_px)

    def ahead_m(self, conditions: WorldConditions) -> float:
        """Return the distance (m) north of a hovering drone at which the image's centre lies."""
        return self.height_m * math.tan(math.radians(90 + conditions.camera_tilt_deg))


def load_world(path: Path = FILE) -> Arena:
    """Load a world file.

    Raises:
        UserError: the file is missing or malformed.
    """
    return load(path, Arena)
