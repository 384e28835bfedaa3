"""Parameters common to all scenarios: the `Arena` of `world.yaml` or another file, and the conditions of flight."""

import math
from collections.abc import Mapping
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
CONDITIONS = {  # least and most of each (chosen)
    "wind_m_s": (0.0, 20.0),
    "gust_m_s": (0.0, 10.0),
    "noise": (0.0, 100.0),
    "distractors": (0, 100),
    "lost": (0.0, 0.99),
    "lost_steps": (1, 100_000),
    "camera_tilt_deg": (-90.0, -60.0),
}
LIMITS = {  # least and most of what can be drawn and flown (chosen)
    "step_s": (1 / 120 - 1e-9, 1.0),  # from one tick of the simulated physics
    "height_m": (1.0, 200.0),
    "boundary_m": (1.0, 200.0),
    "speed_m_s": (0.5, 5.0),
    "acceptance_m": (0.01, 1.0),
    "arrived_m_s": (0.001, 5.0),
    "settled_s": (0.001, 10.0),
    "pad_m": (0.1, 20.0),
    "steps_max": (1, 100_000),
}


def require_within(settings: object, limits: Mapping[str, tuple[float, float]]) -> None:
    """Raise ValueError for a field beyond its limits."""
    for name, (least, most) in limits.items():
        if not least <= (value := getattr(settings, name)) <= most:
            raise ValueError(f"{name}: {value:g} does not lie between {least:g} and {most:g}")


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
        require_within(self, CONDITIONS)


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
        require_within(self, LIMITS)
        if max(self.camera.width_px, self.camera.height_px) > PX_MAX:
            raise ValueError(f"camera: more than {PX_MAX} px on a side")
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
