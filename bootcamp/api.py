"""What a learner's program sees: `decide(report, pads)` is asked for one command per step.

Ground coordinates are metres north and east of where the flight began (on a course of gates: of the course's origin); images
have north at the top while the drone hovers.
"""

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

from vehicle.camera import Camera


class Status(enum.StrEnum):
    """How the drone stands. It ends landed, or crashed."""

    HALTED = "halted"
    MOVING = "moving"
    LANDED = "landed"
    CRASHED = "crashed"


class Location(NamedTuple):
    """A place on the ground, m."""

    north: float
    east: float

    def distance(self, other: "Location") -> float:
        """m."""
        return math.hypot(self.north - other.north, self.east - other.east)


class CourseGate(NamedTuple):
    """The centre of a gate's opening, and the direction of flight through it."""

    north: float  # m
    east: float
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
    """Does nothing, but lets time pass. Always legal."""


@dataclass(frozen=True, slots=True)
class Go:
    """Flies to a place so far north, east and up of here, m. Legal when halted, on a course of gates when moving too; to a
    place inside the boundary."""

    north: float
    east: float
    up: float = 0.0


@dataclass(frozen=True, slots=True)
class Halt:
    """Stops as soon as physics allows. Legal when moving, in a descent too."""


@dataclass(frozen=True, slots=True)
class Land:
    """Descends here and ends the flight. Legal when halted."""


Command = Null | Go | Halt | Land


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for what a program returned instead of a command; always ignored."""

    text: str
    hint: str = ""  # what may be the mistake


@dataclass(frozen=True, slots=True)
class Report:
    """The drone after a step."""

    step: int
    t: float  # s, since the first step
    status: Status
    position: Location
    height: float  # m above the ground
    speed: float  # m/s
    q_wb: tuple[float, float, float, float]  # attitude, wxyz body to world
    destination: Location  # the position, when halted or landed
    drift: float  # m off the straight line to the destination
    waypoint: Location | None  # of the scenario
    reached: bool  # whether the waypoint has been
    seed: int
    camera: Camera  # K (3, 3) px, and R_bc (3, 3) from the camera's axes to the body's
    route: tuple[Location, ...] = ()  # places of the scenario not yet visited
    gates: tuple[CourseGate, ...] = ()  # of the course, in order
    passed: int = 0  # of them
    has_image: bool = True  # whether this step's image arrived; else it is black
    taken: int = 0  # commands so far
    ignored: int = 0  # of them invalid
    warning: str = ""  # why this step's command was ignored, or what was hit
