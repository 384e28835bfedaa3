"""What a flight is made of: its phases and ends, what is seen, what is commanded, and the counts."""

import enum
from dataclasses import dataclass, field

from estimation.estimator import State
from link.messages import AttitudeTarget
from mpc.control import Control
from perception.detection import Detection
from perception.rival import RivalDetection
from perception.roi import SearchWindow


class Phase(enum.StrEnum):
    WAIT_LINK = "wait_link"
    CALIBRATE = "calibrate"
    WAIT_GO = "wait_go"
    ARM = "arm"
    LAUNCH = "launch"
    RACE = "race"
    FINISHED = "finished"
    ABORTED = "aborted"


class EndReason(enum.StrEnum):
    """Why a flight ended. All but the first are aborts."""

    FINISHED = "finished"
    REFUSED = "refused"  # something contradicts profile or track before the start
    INTERRUPTED = "interrupted"  # by a signal
    NO_LINK = "no link"  # the simulator is silent, or was never complete
    DISARMED = "disarmed"
    LEFT_OFFBOARD = "left off-board"  # PX4 follows set-points no more
    RESTARTED = "restarted"  # the simulator began another race
    NOT_AIRBORNE = "not airborne"
    NO_SOLUTION = "no solution"
    PLAN_OVERRUN = "plan overrun"
    TIME_LIMIT = "time limit"
    NO_PERCEPTION = "no perception"
    ERROR = "error"  # of the user's, met in flight, or internal


@dataclass(frozen=True, slots=True)
class End:
    """How a flight ended."""

    reason: EndReason
    cause: str = ""  # for people


@dataclass(frozen=True, slots=True)
class DetectedImage:
    """What perception found in one image, at the time of exposure."""

    t: float  # s
    id: int
    detections: list[Detection]
    jpeg: bytes = b""
    clock_sigma: float = 0.0  # s, of the time, in common with the other images
    window: SearchWindow | None = None  # in which gates were looked for; None: nobody looked, corners were projected
    rivals: list[RivalDetection] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Retry:
    """A gate flown again."""

    gate: int  # of the course
    time_s: float  # since GO, when that began
    why: str  # for people


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan asked for in flight. Times since GO; rests are of the flight from where it begins."""

    asked_s: float
    taken_s: float | None  # None: it was not taken over
    thrust: float  # the vehicle that it is for, against its file
    drag: float
    before_s: float  # the rest as planned before
    after_s: float | None  # ... and anew; None: no answer came in time
    solve_s: float | None
    why: str  # why it was not taken over; empty where it was

    @property
    def sentence(self) -> str:
        """For people."""
        what = f"at {self.asked_s:.1f} s for thrust x{self.thrust:.2f}, drag x{self.drag:.2f}"
        if self.taken_s is None or self.after_s is None:
            return f"{what}, not taken over: {self.why}"
        return f"{what}, {self.before_s:.2f} s left become {self.after_s:.2f} s, taken over at {self.taken_s:.1f} s"


@dataclass
class Passages:
    """The gates passed so far, by the pilot's own estimate."""

    times_s: list[float] = field(default_factory=list)  # since GO
    margins_m: list[float] = field(default_factory=list)
    retries: list[Retry] = field(default_factory=list)
    replans: list[Replan] = field(default_factory=list)


@dataclass
class FlightCounters:
    """Counts of the flight."""

    frames: int = 0
    sightings: int = 0
    rejected: int = 0
    fallbacks: int = 0
    fallback_reasons: dict[str, int] = field(default_factory=dict)  # reason to number of commands
    late: int = 0  # commands that took longer than the time between two
    lost: int = 0  # commands without knowing the position well enough to hit a gate


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """One command with the state and control that led to it, for the log."""

    state: State
    control: Control
    target: AttitudeTarget
    lands: bool = False  # after the flight proper
