"""What crosses the link, typed. Times are float64 seconds of the simulator's clock; each message carries its own.

World NED, body FRD, quaternions wxyz body to world, SI.
"""

from dataclasses import dataclass

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]

ARM_COMMAND = 400  # MAV_CMD_COMPONENT_ARM_DISARM


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The simulator lives."""

    t: float
    armed: bool


@dataclass(frozen=True, slots=True)
class Imu:
    """One HIGHRES_IMU sample."""

    t: float
    accel: Vector  # m/s^2, specific force, body FRD
    gyro: Vector  # rad/s, body FRD


@dataclass(frozen=True, slots=True)
class Attitude:
    """One ATTITUDE sample."""

    t: float
    q_wb: Quaternion


@dataclass(frozen=True, slots=True)
class Frame:
    """One camera picture, still compressed."""

    t: float  # of exposure
    id: int
    jpeg: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to an `Arm`, or the refusal of an `UnknownCommand`."""

    t: float
    accepted: bool
    command: int = ARM_COMMAND


@dataclass(frozen=True, slots=True)
class Arm:
    """Command: start (or stop) the motors."""

    arm: bool = True


@dataclass(frozen=True, slots=True)
class AttitudeTarget:
    """Command: SET_ATTITUDE_TARGET. The mode says which of attitude and body rates the receiver follows."""

    q_wb: Quaternion
    omega: Vector  # rad/s, body FRD
    throttle: float  # 0..1
    by_rates: bool = True


@dataclass(frozen=True, slots=True)
class ClientHeartbeat:
    """The client lives."""


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A COMMAND_LONG that the simulator does not carry out."""

    command: int


@dataclass(frozen=True, slots=True)
class TimesyncRequest:
    """The client asks for the simulator's time."""

    sent_ns: int  # of the client's clock


@dataclass(frozen=True, slots=True)
class TimesyncReply:
    """The simulator's time at its answer."""

    t: float
    sent: float  # s of the client's clock, when it asked


Telemetry = Heartbeat | Imu | Attitude | Ack  # by MAVLink; a Frame comes by the video stream
Command = Arm | AttitudeTarget
