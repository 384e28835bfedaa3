"""Interface of a learner's program: `decide(report, pads)` returns one command per step.

Ground coordinates are metres north and east of the start of the flight (on a course of gates: of the course's origin); images
have north at the top while the drone hovers.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from gate_racer.common.strenum import StrEnum
from gate_racer.vehicle.camera import Camera


class Status(StrEnum):
    """Status of the drone. Landed and crashed are final."""

    HALTED = "halted"
    MOVING = "moving"
    LANDED = "landed"
    CRASHED = "crashed"


class Location(NamedTuple):
    """A place on the ground."""

    north: float  # m
    east: float  # m

    def distance(self, other: "Location") -> float:
        """Return the distance to another place, m."""
        return math.hypot(self.north - other.north, self.east - other.east)


class CourseGate(NamedTuple):
    """The centre of a gate's opening, and the direction of flight through it."""

    north: float  # m
    east: float  # m
    height: float  # m above the ground
    heading: float  # rad, clockwise from north


class Box(NamedTuple):
    """A bounding box in an image, px; pixel centres are at integers, v grows downward."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Null:
    """Command without effect. Always legal."""


@dataclass(frozen=True, slots=True)
class Go:
    """Fly to a place relative to the drone, m north, east and up. Legal when halted, on a course of gates when moving as well;
    the place must be inside the boundary."""

    north: float
    east: float
    up: float = 0.0


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop as soon as physics allows. Legal when moving, also in a descent."""


@dataclass(frozen=True, slots=True)
class Land:
    """Descend here and end the flight. Legal when halted."""


Command = Null | Go | Halt | Land


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Substitute for a return value that is not a command; always ignored."""

    text: str
    hint: str = ""  # the likely mistake


@dataclass(frozen=True, slots=True)
class Report:
    """State of the drone after a step."""

    step: int
    t: float  # s, since the first step
    status: Status
    position: Location
    height: float  # m above the ground
    speed: float  # m/s
    q_wb: tuple[float, float, float, float]  # attitude, wxyz body to world
    destination: Location  # equal to the position when halted or landed
    drift: float  # m, distance from the straight line to the destination
    waypoint: Location | None  # of the scenario
    reached: bool  # whether the waypoint has been reached
    seed: int
    camera: Camera  # K (3, 3) px, and R_bc (3, 3) from the camera's axes to the body's
    route: tuple[Location, ...] = ()  # places of the scenario not yet visited
    gates: tuple[CourseGate, ...] = ()  # of the course, in order
    passed: int = 0  # number of gates passed
    has_image: bool = True  # whether this step's image arrived; else it is black
    taken: int = 0  # number of commands so far
    ignored: int = 0  # number of invalid ones among them
    warning: str = ""  # reason for ignoring this step's command, or the obstacle hit
