"""Typed messages of the link. Times are float64 seconds of the simulator's clock; each message carries its own.

World NED, body FRD, quaternions wxyz body to world, SI.
"""

import enum
import re
from dataclasses import dataclass

from gate_racer.common.strenum import StrEnum
from gate_racer.vehicle.rotation import Quaternion, Vector

ARM_COMMAND = 400  # MAV_CMD_COMPONENT_ARM_DISARM
MODE_COMMAND = 176  # MAV_CMD_DO_SET_MODE
WARNING = 4  # MAV_SEVERITY, and all below is worse


@dataclass(frozen=True, slots=True)
class Heartbeat:
    t: float
    armed: bool
    mode: str = ""  # PX4's, such as OFFBOARD; empty where there are none


@dataclass(frozen=True, slots=True)
class StatusText:
    """Text of an autopilot for people (STATUSTEXT)."""

    t: float
    severity: int  # MAV_SEVERITY: 0 emergency to 7 debug
    text: str


@dataclass(frozen=True, slots=True)
class Imu:
    t: float
    accel: Vector  # m/s^2, specific force, body FRD
    gyro: Vector  # rad/s, body FRD


@dataclass(frozen=True, slots=True)
class Attitude:
    t: float
    q_wb: Quaternion


@dataclass(frozen=True, slots=True)
class LocalPosition:
    """One LOCAL_POSITION_NED sample: the true state, which only some builds send."""

    t: float
    p_wb: Vector
    v_w: Vector


@dataclass(frozen=True, slots=True)
class Odometry:
    """One ODOMETRY sample: also the true state, or that of a VIO, in a world with z down whose origin and heading are its own."""

    t: float
    p_wb: Vector
    q_wb: Quaternion
    v_b: Vector
    omega_b: Vector
    resets: int  # how often the vehicle was put back on its pad, or the VIO was reset


@dataclass(frozen=True, slots=True)
class Motors:
    """One ACTUATOR_OUTPUT_STATUS sample: front left, front right, back left, back right, 0..1."""

    t: float
    outputs: Quaternion


@dataclass(frozen=True, slots=True)
class RaceStatus:
    """Status of the race (ENCAPSULATED_DATA type 1). Times on the simulator's clock."""

    t: float
    start: float | None  # when GO is or was scheduled
    finish: float | None
    gate: int  # to be passed next
    gate_time: float | None  # of the last one passed, since GO

    @property
    def go(self) -> bool:
        """Whether the race has started: a scheduled start lies in the future."""
        return self.start is not None and self.t >= self.start


@dataclass(frozen=True, slots=True)
class MapGate:
    number: int
    p_w: Vector
    q_wg: Quaternion  # of the wire's gate axes: y is the direction of flight
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class TrackMap:
    """Gate positions of the simulator (DATA_TRANSMISSION_HANDSHAKE, ENCAPSULATED_DATA type 2)."""

    t: float
    gates: tuple[MapGate, ...]


class Struck(enum.IntEnum):
    """Object that a vehicle collides with; the values are COLLISION.id."""

    GATE = 1001
    ENVIRONMENT = 1002


@dataclass(frozen=True, slots=True)
class Collision:
    """Contact of the vehicle during a tick (COLLISION)."""

    t: float
    struck: Struck
    impulse: float  # kg m/s


@dataclass(frozen=True, slots=True)
class RivalState:
    """State of another vehicle in the race, if reported (DEBUG_FLOAT_ARRAY `RIVAL`, an extension of this project)."""

    t: float  # s
    place: int  # on the start, from 1
    p_w: Vector  # m, world NED
    v_w: Vector  # m/s


@dataclass(frozen=True, slots=True)
class HumanSticks:
    """Sticks of a person who flies instead of the pilot, as commands."""

    t: float  # s
    omega: Vector  # rad/s, body FRD
    throttle: float  # 0..1


@dataclass(frozen=True, slots=True)
class GroundStatus:
    t: float
    landed: bool
    home_w: Vector


FINISHED = "finished"
VERDICTS = FINISHED, "crashed", "missed_gate", "timeout", "disqualified"  # by a referee; an aborted run is not judged


@dataclass(frozen=True, slots=True)
class Farewell:
    """End of the simulator: STATUSTEXT with the verdict, and a HEARTBEAT with MAV_STATE_POWEROFF.

    The text is `reason`. It begins with the verdict: "finished: 6.405 s since GO", "missed_gate: gate 3 was ...".
    """

    t: float
    reason: str

    @classmethod
    def of(cls, t: float, status: str, cause: str, finish_s: float | None) -> "Farewell":
        """Return the farewell after a run with this status; `finish_s` (s since GO) if it is finished."""
        cause = cause if finish_s is None else f"{finish_s:.3f} s since GO"
        return cls(t, f"{status}: {cause}" if cause else status)

    @property
    def finish_s(self) -> float | None:
        """Time of the finish, s since GO; None where the text has none."""
        finish = re.fullmatch(r"finished: (\d{1,6}\.\d{3}) s since GO", self.reason)
        return float(finish[1]) if finish else None

    @property
    def verdict(self) -> str:
        """The referee's verdict, one of VERDICTS; empty where it has not judged the run, or tells a finish without its time."""
        verdict = self.reason.partition(":")[0]
        judged = verdict in VERDICTS and (verdict != FINISHED or self.finish_s is not None)
        return verdict if judged else ""


@dataclass(frozen=True, slots=True)
class VideoFrame:
    t: float  # of exposure
    id: int
    jpeg: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledgement of a command: accepted, or else denied (`known`) or unsupported."""

    t: float
    accepted: bool
    command: int = ARM_COMMAND
    known: bool = True
    result: str = ""  # PX4's word for it, such as TEMPORARILY_REJECTED


@dataclass(frozen=True, slots=True)
class Arm:
    """Command: start (or stop) the motors."""

    arm: bool = True


@dataclass(frozen=True, slots=True)
class AttitudeTarget:
    """Command: SET_ATTITUDE_TARGET. The mode selects whether attitude or body rates are followed."""

    q_wb: Quaternion
    omega: Vector  # rad/s, body FRD
    throttle: float  # 0..1
    by_rates: bool = True
    keep_throttle: bool = False  # the one commanded before stays


Axes = tuple[float | None, float | None, float | None]

UNASKED: Axes = (None, None, None)


class TargetFrame(StrEnum):
    """Axes of a `PositionTarget`, and the origin of its positions."""

    LOCAL = "local"  # world NED, its origin
    OFFSET = "offset"  # world NED, where the vehicle is
    BODY = "body"  # the vehicle's level heading: forward, right, down; where the vehicle is


@dataclass(frozen=True, slots=True)
class PositionTarget:
    """Command: SET_POSITION_TARGET_LOCAL_NED. An axis without a target holds still."""

    p: Axes  # m
    v: Axes  # m/s; feed-forward where there is a position too
    yaw: float | None = None  # rad; None keeps the present one
    yaw_rate: float | None = None  # rad/s
    frame: TargetFrame = TargetFrame.LOCAL
    a: Axes = UNASKED  # m/s^2; feed-forward where there is a position or a velocity too


@dataclass(frozen=True, slots=True)
class Reset:
    """Command: return to the pad; with `race` the race restarts with its countdown."""

    race: bool


@dataclass(frozen=True, slots=True)
class EnterOffboard:
    """Command: follow set-points from now on. PX4's mode OFFBOARD, which it refuses without a stream of them."""


@dataclass(frozen=True, slots=True)
class ClientHeartbeat:
    """Heartbeat of the client."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The client has no command for the tick with this stamp (SYSTEM_TIME): in lock-step the simulator may continue."""

    t: float


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    command: int


@dataclass(frozen=True, slots=True)
class TimesyncRequest:
    sent_ns: int  # of the asker's clock


@dataclass(frozen=True, slots=True)
class TimesyncReply:
    t: float
    sent: float  # s of the client's clock, when it asked


Sensed = Imu | Attitude | LocalPosition | Odometry | Motors | Collision | RivalState
# By MAVLink; a Frame comes by the video stream.
Telemetry = Sensed | Heartbeat | Ack | StatusText | RaceStatus | TrackMap | GroundStatus | Farewell | HumanSticks
Outgoing = Telemetry | TimesyncRequest  # all that the simulator says of itself
SetPoint = AttitudeTarget | PositionTarget
Command = Arm | EnterOffboard | SetPoint | Reset
