"""What crosses the link, typed. Times are float64 seconds of the simulator's clock; each message carries its own.

World NED, body FRD, quaternions wxyz body to world, SI.
"""

from dataclasses import dataclass

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


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
    """The answer to an `Arm`."""

    t: float
    accepted: bool


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


Telemetry = Heartbeat | Imu | Attitude | Frame | Ack
Command = Arm | AttitudeTarget
