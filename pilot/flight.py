"""Data types of a flight: options, phases, end reasons, detections, commands and counters."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gate_racer.common.parts import PATIENCE_S
from gate_racer.common.strenum import StrEnum
from gate_racer.estimation.estimator import State
from gate_racer.link.messages import AttitudeTarget
from gate_racer.mpc.control import Control
from gate_racer.perception.detection import Detection
from gate_racer.perception.roi import SearchWindow
from gate_racer.vehicle.vehicle import Vehicle

if TYPE_CHECKING:
    from gate_racer.pilot.guidance.rivals import StartGrid
    from gate_racer.pilot.handshake import Preflight
    from gate_racer.pilot.replanning import Replanning

SAME_START_S = 1.0  # s, largest difference between starts, or a start and GO, of one race; clock corrections are less


class Phase(StrEnum):
    """Phase of a flight; all but the last two follow in this order."""

    WAIT_LINK = "wait_link"
    CALIBRATE = "calibrate"
    WAIT_GO = "wait_go"
    ARM = "arm"
    LAUNCH = "launch"
    RACE = "race"
    FINISHED = "finished"
    ABORTED = "aborted"


class EndReason(StrEnum):
    """Reason for the end of a flight. All but the first are aborts."""

    FINISHED = "finished"
    REFUSED = "refused"  # something contradicts the profile or the track before the start
    INTERRUPTED = "interrupted"  # by a signal
    NO_LINK = "no link"  # the simulator is silent, or not all telemetry was received
    DISARMED = "disarmed"
    LEFT_OFFBOARD = "left off-board"  # PX4 no longer follows set-points
    RESTARTED = "restarted"  # the simulator began another race
    NOT_AIRBORNE = "not airborne"
    NO_SOLUTION = "no solution"
    PLAN_OVERRUN = "plan overrun"
    BLIND = "blind"  # the position was unknown for too long
    TIME_LIMIT = "time limit"
    ERROR = "error"  # a user error met in flight, or an internal error


@dataclass(frozen=True)
class FlightOptions:
    laps: int = 1
    pose: bool = False  # use position and velocity where they are told
    preflight: "Preflight | None" = None  # see `Handshake`
    by_rates: bool = True  # command body rates instead of attitudes
    retry: bool = True  # fly missed gates again
    lands: bool = False  # land after the end of the flight
    grid: "StartGrid | None" = None  # place in a race of several whose rivals are given way to
    shadow: bool = False  # a person flies: no gate is flown again, and nothing is learned from commands not sent
    replanning: "Replanning | None" = None  # replaces the plan in flight where that saves time
    patience_s: float = PATIENCE_S  # s, longest step of a user's class


USUAL = FlightOptions()


@dataclass(frozen=True, slots=True)
class End:
    reason: EndReason
    cause: str = ""  # human-readable


@dataclass(frozen=True, slots=True)
class DetectedImage:
    """Detections in one image, at the time of exposure."""

    t: float  # s, simulator clock
    id: int
    detections: list[Detection]
    jpeg: bytes = b""
    clock_sigma: float = 0.0  # s, standard deviation of the clock offset, common to all images
    window: SearchWindow | None = None  # region searched for gates; None: no search, corners were projected


@dataclass(frozen=True, slots=True)
class Retry:
    """A gate flown again after a miss."""

    gate: int  # index in the course
    time_s: float  # s since GO, start of the retry
    why: str  # human-readable


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan requested in flight. Times in s since GO; remaining times are counted from the start of the requested plan."""

    asked_s: float  # s
    taken_s: float | None  # s; None: not taken over
    thrust: float  # thrust of the vehicle planned for, relative to its file
    drag: float  # relative to its file
    before_s: float  # s, remaining flight time by the previous plan
    after_s: float | None  # s, remaining flight time by the new plan; None: no answer in time
    solve_s: float | None  # s, solver time
    why: str  # reason why it was not taken over; empty if taken over

    @property
    def sentence(self) -> str:
        what = f"at {self.asked_s:.1f} s for thrust x{self.thrust:.2f}, drag x{self.drag:.2f}"
        if self.taken_s is None or self.after_s is None:
            return f"{what}, not taken over: {self.why}"
        return f"{what}, remaining time {self.before_s:.2f} -> {self.after_s:.2f} s, taken over at {self.taken_s:.1f} s"


@dataclass
class Passages:
    """Gates passed so far, according to the pilot's own estimate."""

    times_s: list[float] = field(default_factory=list)  # s since GO
    margins_m: list[float] = field(default_factory=list)
    retries: list[Retry] = field(default_factory=list)
    replans: list[Replan] = field(default_factory=list)


@dataclass
class FlightCounters:
    frames: int = 0
    sightings: int = 0
    rejected: int = 0
    fallbacks: int = 0
    fallback_reasons: dict[str, int] = field(default_factory=dict)  # reason to number of commands
    late: int = 0  # commands computed in more than a command period
    lost: int = 0  # commands issued while the position was too uncertain to hit a gate


def set_point(control: Control, vehicle: Vehicle, by_rates: bool = True) -> AttitudeTarget:
    """Return the set-point of a control: attitude and body rates, of which one is followed, and throttle."""
    q_wb, omega = tuple(control.q_wb.tolist()), tuple(control.u[:3].tolist())
    return AttitudeTarget(q_wb, omega, vehicle.throttle.throttle(control.u[3]), by_rates)


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """One command with the state and control behind it, for the log."""

    state: State
    control: Control
    target: AttitudeTarget
    lands: bool = False  # issued by the landing, after the flight proper
