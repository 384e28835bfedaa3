"""Signals of a probe flight, on one clock and in the wire's signs and units, and what is computed from them.

Rotations of the camera between two images, by optical flow of corners, are the only measurement of rotation that no sign
convention of telemetry affects. A camera that rotates by theta (RDF axes) moves the point of rays (x, y, 1) by
(Longuet-Higgins and Prazdny 1980, eq. 2.6)

    dx = x y theta_x - (1 + x^2) theta_y + y theta_z,    dy = (1 + y^2) theta_x - x y theta_y - x theta_z

The response to commands, which are held constant in between, is a delay, a first-order lag, and a gain for each kind of
command:

    y = lag[ sum_m a_m u_m(t - delay) + b_m u_m |u_m| (t - delay) ]

with a and b by linear least squares for given delay and lag (variable projection).
"""

import math
from dataclasses import dataclass, field

import cv2
import numpy as np

from gate_racer.common.images import decode_image
from gate_racer.estimation.imu_samples import levelled
from gate_racer.estimation.odometry import InertialOdometry
from gate_racer.field.identify.regression import lagged, least
from gate_racer.field.probe.links import ReceivedMessages
from gate_racer.link.messages import Imu
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, as_vector, from_euler, to_euler

CORNERS, QUALITY, APART_PX = 150, 0.01, 7
FEWEST = 12  # least corners for a rotation
WINDOW_PX, LEVELS = 15, 3  # window and levels of the pyramid for tracking
HALF = 2  # images are processed in half size
ROUNDS = 6  # iterations of reweighting: parallax and moving objects are outliers


def half_size(jpeg: bytes, camera: Camera) -> np.ndarray | None:
    return decode_image(jpeg, (camera.width_px, camera.height_px), cv2.IMREAD_REDUCED_GRAYSCALE_2)


def turn_between(a: np.ndarray, b: np.ndarray, camera: Camera) -> Array | None:
    """Return the rotation vector (3,) rad, body FRD, from image a to b (both `half_size`); None with too few corners."""
    if a.shape != b.shape:
        return None
    corners = cv2.goodFeaturesToTrack(a, CORNERS, QUALITY, APART_PX)
    if corners is None or len(corners) < FEWEST:
        return None
    moved, found, _ = cv2.calcOpticalFlowPyrLK(a, b, corners, None, winSize=(WINDOW_PX, WINDOW_PX), maxLevel=LEVELS)
    kept = found.ravel() == 1
    if kept.sum() < FEWEST:
        return None
    centre, focal = np.array([camera.cx_px, camera.cy_px]), np.array([camera.fx_px, camera.fy_px])
    before, after = (((HALF * points[kept].reshape(-1, 2)) - centre) / focal for points in (corners, moved))
    (x, y), flow = before.T, (after - before).reshape(-1)
    A = np.stack([[x * y, -(1 + x * x), y], [1 + y * y, -x * y, -x]]).transpose(2, 0, 1).reshape(-1, 3)
    theta, weight = np.zeros(3), np.ones(len(flow))
    for _ in range(ROUNDS):
        theta = np.linalg.lstsq(A * weight[:, None], flow * weight, rcond=None)[0]
        residual = np.repeat(np.linalg.norm((flow - A @ theta).reshape(-1, 2), axis=1), 2)
        weight = 1.0 / (1.0 + (residual / max(float(np.median(residual)), 1e-4)) ** 2)
    return camera.R_bc @ theta


STILL_M_S2 = 0.5  # m/s^2, largest standard deviation of a reading at rest (chosen)
TILTED_RAD = 0.05  # rad, tilt of the pad below which it determines no signs (chosen)


@dataclass(frozen=True)
class Order:
    mask: int
    rates: tuple[float, float, float]
    throttle: float


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
        return to_euler(levelled(self.force_b))[:2]


def rest_of(received: ReceivedMessages) -> RestMean | None:
    rows = received["HIGHRES_IMU"]
    values = np.array([imu_values(m) for _, m in rows]).reshape(-1, 6)
    sound = np.isfinite(values).all(axis=1)
    if sound.sum() < 10:
        return None
    offset = min(arrival - m.time_usec * 1e-6 for arrival, m in rows)
    force = values[sound, :3]
    return RestMean(offset, force.mean(axis=0), float(force.std(axis=0).max()), values[sound, 3:].mean(axis=0))


def imu_values(m: object) -> tuple[float, ...]:
    return tuple(getattr(m, name) for name in ("xacc", "yacc", "zacc", "xgyro", "ygyro", "zgyro"))


ROLL, PITCH, YAW = range(3)
AGREEMENT = 0.6  # correlation of camera and gyro required for a sign
FEWEST_TURNS, FEWEST_SAMPLES = 5, 10
GRID_S = 0.002  # s, spacing of the time grid: finer than the lags of interest (chosen)
BEFORE_S = 0.4  # s of commands before the interval that still act in it
DELAYS_S = np.arange(0.0, 0.16, 0.01)  # tried in the search for a first gain
USUAL_LAG_S = 0.03  # s, lag assumed in the search for the delay: that of a racing rate loop (chosen)


@dataclass
class Series:
    """Time series of a probe flight after a rest, times in s of the local clock; vectors as on the wire."""

    rest: RestMean
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

    def commands(self, t: Array, axis: int | None, masks: tuple[int, ...]) -> "Commands":
        """Return the commands for times t (N,): rates about an axis by kind of command; for axis None throttle of any kind."""
        grid = np.arange(t[0] - BEFORE_S, t[-1] + GRID_S, GRID_S)
        rows = self.sent or [(0.0, Order(0, (0.0, 0.0, 0.0), 0.0))]
        stamps = np.array([row[0] for row in rows])
        if axis is None:
            values = np.array([[order.throttle] for _, order in rows])
        else:
            values = np.array([[one.rates[axis] if one.mask == mask else 0.0 for mask in masks] for _, one in rows])
        held = np.searchsorted(stamps, grid, side="right") - 1
        return Commands(t, grid, np.where(held[:, None] >= 0, values[np.maximum(held, 0)], 0.0))

    def ratio(self, mask: int, axis: int, begin: float, end: float) -> float:
        """Return gyro over command of one kind; 0 without a response."""
        t, _, gyro = self.between(begin, end)
        if len(t) < FEWEST_SAMPLES:
            return 0.0
        return self.commands(t, axis, (mask,)).quick_gain(gyro[:, axis] - self.rest.gyro[axis])

    def sign_by_camera(self, axis: int, begin: float, end: float) -> float:
        """Return the sign of the gyro relative to the camera's rotations; 0 if undecided."""
        turns = [row for row in self.turns if row[0] >= begin]
        if len(turns) < FEWEST_TURNS:
            return 0.0
        camera_angles = np.array([turn[axis] for _, _, turn in turns])
        spans = np.array([row[:2] for row in turns])
        t, _, gyro = self.between(float(spans.min()) - 0.1, end)
        gyro_angles = turned(t, gyro - self.rest.gyro, spans)[:, axis]
        norm = float(np.linalg.norm(camera_angles) * np.linalg.norm(gyro_angles))
        agreement = float(camera_angles @ gyro_angles) / norm if norm > 1e-9 else 0.0
        return math.copysign(1.0, agreement) if abs(agreement) > AGREEMENT else 0.0


def turned(t: Array, rates: Array, spans: Array) -> Array:
    """Return the integrals (M, 3), rad, of rates (N, 3) at times t (N,) over spans (M, 2)."""
    angle = np.vstack([np.zeros(3), np.cumsum(np.diff(t)[:, None] * 0.5 * (rates[1:] + rates[:-1]), axis=0)])
    begins, ends = (np.column_stack([np.interp(side, t, axis) for axis in angle.T]) for side in spans.T)
    return ends - begins


Row = tuple[float, Array, Array]  # s; accelerometer (3,) and gyro (3,), as on the wire


def signed(row: Row, signs: Array) -> Imu:
    """Return a sample in body axes, for signs (3,) of the gyro."""
    t, accel, gyro = row
    return Imu(t, as_vector(accel), as_vector(signs * gyro))


def integrated_motion(rest: RestMean, lift_t: float, rows: list[Row], signs: Array) -> InertialOdometry:
    """Return the motion since lift-off, with yaw 0 there, by all samples; the rest before tells the biases."""
    motion = InertialOdometry(np.zeros(3), from_euler(*rest.tilt, 0.0))
    motion.imu(signed((lift_t, rest.force_b, rest.gyro), signs))
    motion.release()
    for row in rows:
        motion.imu(signed(row, signs))
    return motion


@dataclass(frozen=True)
class Fitted:
    gain: tuple[float, ...]  # a_m
    growth: tuple[float, ...]  # b_m / a_m
    delay_s: float
    lag_s: float
    unexplained: float  # share of the motion, 0..1


@dataclass(frozen=True)
class Commands:
    """Commands on a fine time grid, and the times t of the response."""

    t: Array  # (N,) s
    grid: Array  # (G,) s
    u: Array  # (G, M), one column for each kind

    def followed(self, delay: float, lag: float, growth: tuple[float, ...] | None) -> Array:
        """Return the responses (N, M) of unit gain; with `growth` None (N, 2 M), to the commands and to their signed squares."""
        square = self.u * np.abs(self.u)
        u = np.column_stack([self.u, square]) if growth is None else self.u + square * np.array(growth)
        response = lagged(u, delay, max(lag, GRID_S), GRID_S)
        return np.column_stack([np.interp(self.t, self.grid, column) for column in response.T])

    def quick_gain(self, measured: Array) -> float:
        """Return the gain of a single kind for the best delay; 0 if it explains less than half."""
        best, gain = 0.5 * float(measured @ measured), 0.0
        for delay in DELAYS_S:
            c = self.followed(delay, USUAL_LAG_S, (0.0,))[:, 0]
            if (power := float(c @ c)) > 1e-9:
                a = float(c @ measured) / power
                misfit = float(((measured - a * c) ** 2).sum())
                if misfit < best:
                    best, gain = misfit, a
        return gain

    def fit(self, measured: Array, used: np.ndarray, growth: tuple[float, ...] | None) -> Fitted | None:
        """Return the best fit over delays, lags, and growths unless given, on the samples used; None without excitation."""
        y, M = measured[used], self.u.shape[1]
        if used.sum() < 30 or float(y @ y) < 1e-9 or not np.abs(self.u).max():
            return None

        def solved(delay: float, lag: float) -> tuple[Array, float]:
            A = self.followed(delay, lag, growth)[used]
            x = np.linalg.lstsq(A, y, rcond=None)[0]
            return x, float(((A @ x - y) ** 2).sum() / (y @ y))

        delay, lag = least(lambda delay, lag: solved(delay, lag)[1], every=3)
        x, unexplained = solved(delay, lag)
        grown = growth or tuple(float(b / a) if abs(a) > 1e-3 else 0.0 for a, b in zip(x[:M], x[M:], strict=True))
        return Fitted(tuple(x[:M].tolist()), grown, delay, lag, unexplained)
