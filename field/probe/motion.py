"""Signals of a probe flight, on one clock and in the wire's signs, and the motion integrated from them."""

import math
from dataclasses import dataclass, field

import numpy as np

from gate_racer.estimation.imu import LONGEST_STEP_S, REPEATS_S
from gate_racer.field.probe.raw_link import ReceivedMessages
from gate_racer.vehicle.dynamics import G_W, GRAVITY
from gate_racer.vehicle.rotation import Array, exp, from_euler, matrix, normalised, product

STILL_M_S2 = 0.5  # m/s^2, largest standard deviation of a reading at rest (chosen)
TILTED_RAD = 0.05  # rad, tilt of the pad below which it determines no signs (chosen)


@dataclass(frozen=True)
class Order:
    """One SET_ATTITUDE_TARGET, in wire units."""

    mask: int
    rates: tuple[float, float, float]
    throttle: float
    q: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class RestMean:
    """Means over the rest before the flight. Times: local = stamp + offset."""

    offset_s: float  # s, of the telemetry's stamps
    force_b: Array  # (3,) mean accelerometer reading, m/s^2
    spread: float  # m/s^2, standard deviation of the worst axis
    gyro: Array  # (3,) rad/s, mean, in the wire's signs

    @property
    def still(self) -> bool:
        """Whether it was at rest, upright and with gravity in m/s^2."""
        return self.spread < STILL_M_S2 and abs(self.weight - GRAVITY) < 1.0 and self.force_b[2] < 0

    @property
    def weight(self) -> float:
        """Norm of the mean specific force, m/s^2."""
        return float(np.linalg.norm(self.force_b))

    @property
    def tilt(self) -> tuple[float, float]:
        """Roll and pitch from gravity, rad."""
        x, y, z = self.force_b
        return math.atan2(-y, -z), math.asin(max(-1.0, min(1.0, x / max(self.weight, 1e-9))))


def rest_of(received: ReceivedMessages) -> RestMean | None:
    """Return the means over the samples at rest; None with too few."""
    rows = received["HIGHRES_IMU"]
    values = np.array([imu_values(m) for _, m in rows]).reshape(-1, 6)
    sound = np.isfinite(values).all(axis=1)
    if sound.sum() < 10:
        return None
    offset = min(arrival - m.time_usec * 1e-6 for arrival, m in rows)
    force = values[sound, :3]
    return RestMean(offset, force.mean(axis=0), float(force.std(axis=0).max()), values[sound, 3:].mean(axis=0))


def imu_values(m: object) -> tuple[float, ...]:
    """Return accelerometer and gyro of a HIGHRES_IMU."""
    return tuple(getattr(m, name) for name in ("xacc", "yacc", "zacc", "xgyro", "ygyro", "zgyro"))


@dataclass
class Series:
    """Time series of a probe flight, times in s of the local clock; vectors as on the wire."""

    imu: list[tuple[float, Array, Array]] = field(default_factory=list)  # accelerometer, gyro
    attitude: list[tuple[float, Array, Array]] = field(default_factory=list)  # Euler angles, their rates
    odometry: list[tuple[float, Array, Array]] = field(default_factory=list)  # quaternion, rates
    turns: list[tuple[float, float, Array]] = field(default_factory=list)  # camera: begin, end, rotation vector
    sent: list[tuple[float, Order]] = field(default_factory=list)
    marks: dict[str, tuple[float, float]] = field(default_factory=dict)  # begin and end of manoeuvres

    def between(self, begin: float, end: float) -> tuple[Array, Array, Array]:
        """Return times (N,), accelerometer (N, 3) and gyro (N, 3) of an interval."""
        rows = [row for row in self.imu if begin <= row[0] <= end]
        t = np.array([row[0] for row in rows])
        accel, gyro = (np.array([row[k] for row in rows]).reshape(-1, 3) for k in (1, 2))
        return t, accel, gyro


@dataclass
class Notes:
    """Results obtained during the flight, for the table."""

    signs: tuple[float, float, float] = (1.0, 1.0, 1.0)  # gyro on the wire relative to body FRD
    why: tuple[str, str, str] = ("", "", "")  # sensor that determined each sign; empty: none
    lifted: bool = False
    hover: float | None = None  # throttle
    bank: float | None = None  # bank angle reached over commanded, in attitude mode
    end: str = ""  # reason for an early end


class IntegratedMotion:
    """Attitude (yaw 0 at the start), velocity and position since lift-off, for the gyro signs assumed at present."""

    def __init__(self, rest: RestMean, signs: tuple[float, float, float]):
        self._rest, self.signs = rest, np.array(signs, float)
        self.begin()

    def begin(self) -> None:
        """Reset to rest at the origin."""
        self.q_wb = from_euler(*self._rest.tilt, 0.0)
        self.v_w, self.p_w, self.omega_b = np.zeros(3), np.zeros(3), np.zeros(3)
        self._last: tuple[float, Array] | None = None  # time and force of the newest sample

    def imu(self, t: float, accel: Array, gyro: Array) -> None:
        """Integrate one sample, corrected by the accelerometer's error at rest. Repeated values are ignored."""
        omega_b = self.signs * (gyro - self._rest.gyro)
        force_b = accel - self._rest.force_b * (1 - GRAVITY / self._rest.weight)
        last = self._last
        if (
            last is not None
            and t - last[0] < REPEATS_S
            and (force_b == last[1]).all()
            and (omega_b == self.omega_b).all()
        ):
            return
        before = last if last is not None else (t, force_b)
        dt, a_w = min(t - before[0], LONGEST_STEP_S), 0.5 * matrix(self.q_wb) @ before[1]
        self.q_wb = normalised(product(self.q_wb, exp(0.5 * dt * (self.omega_b + omega_b))))
        a_w += 0.5 * matrix(self.q_wb) @ force_b + G_W
        self.p_w = self.p_w + dt * self.v_w
        self.v_w = self.v_w + dt * a_w
        self.omega_b, self._last = omega_b, (t, force_b)

    def reintegrate(self, rows: list[tuple[float, Array, Array]], signs: Array) -> None:
        """Integrate all samples since lift-off again, with other signs."""
        self.signs = signs
        self.begin()
        for row in rows:
            self.imu(*row)

    @property
    def down(self) -> float:
        """Cosine of the tilt."""
        return float(matrix(self.q_wb)[2, 2])
