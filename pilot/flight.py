"""What a flight is made of: its phases, what is seen, what is commanded, and the counts."""

import enum
from dataclasses import dataclass, field

from estimation.estimator import State
from link.messages import AttitudeTarget
from mpc.controller import Control
from perception.detection import Detection


class Phase(enum.StrEnum):
    WAIT_LINK = "wait_link"
    CALIBRATE = "calibrate"
    WAIT_GO = "wait_go"
    ARM = "arm"
    LAUNCH = "launch"
    RACE = "race"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Picture:
    """What perception found in one frame, at the time of exposure."""

    t: float
    id: int
    detections: list[Detection]
    jpeg: bytes = b""
    clock_sigma: float = 0.0  # s, of the time, in common with the other pictures


@dataclass
class Tally:
    """Counts of the flight."""

    frames: int = 0
    sightings: int = 0
    rejected: int = 0
    fallbacks: int = 0
    fallback_reasons: dict[str, int] = field(default_factory=dict)  # reason to number of commands
    late: int = 0  # commands that took longer than the time between two
    lost: int = 0  # commands without knowing the position well enough to hit a gate
    gate_times_s: list[float] = field(default_factory=list)  # s since GO, by the pilot's own estimate
    gate_margins_m: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    """One command with the state and control that led to it, for the log."""

    state: State
    control: Control
    target: AttitudeTarget
