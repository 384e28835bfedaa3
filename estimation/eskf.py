"""The error-state Kalman filter: the covariance of the strap-down error and its corrections.

    P <- F P F' + Q,   S = H P H' + R,   K = P H' S^-1
    P <- (I - K H) P (I - K H)' + K R K' = A + (K R - A H') K',   A = P - K H P   (Joseph's form, N^2 M flops instead of N^3)

The update is iterated (Bell and Cathey 1993): the measurement is linearised anew where the last correction leads,
dx <- K (r + H dx), which a first gate after a blind stretch needs. After it the attitude error is counted
from the new attitude, G = I - [theta]x / 2 (Sola 2017, eq. 287).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from estimation.states import (
    ARM,
    B_A,
    B_G,
    CENTRE,
    DELAY,
    EDGE,
    EYE3,
    FOCAL,
    GATES,
    LEAN,
    RADIAL,
    READOUT,
    ROLL,
    SCALE,
    THETA,
    TILT,
    YAW,
    N,
    Nominal,
    P,
    Reading,
    V,
    cross,
)
from estimation.strapdown import carried, transition
from vehicle.rotation import Array
from vehicle.vehicle import Imu

ITERATIONS = 3
SETTLED = 0.02  # standard deviations: a correction that changes less is final
# ... and so is one that moves no corner a metre away by more than what linearisation gets right to 0.1 px: f (dx / z)^2.
SMALL = np.full(N, np.inf)
SMALL[P], SMALL[GATES], SMALL[ARM], SMALL[DELAY], SMALL[SCALE], SMALL[FOCAL] = 0.02, 0.02, 0.02, 5e-4, 5e-4, 0.002
SMALL[RADIAL], SMALL[READOUT] = 0.002, 2e-3
SMALL[THETA], SMALL[[TILT, YAW, ROLL]], SMALL[CENTRE] = 0.004, 0.004, 1.0

Residual = Callable[[Nominal], tuple[Array, Array]]  # residual (M,) and H (M, N) at a state


@dataclass(frozen=True)
class Noise:
    """What the error grows by, and what is known at the start. Standard deviations; the IMU's own stand in the vehicle's file."""

    imu: Imu
    # Of an axis' change from sample to sample: how well the mean between two is known. Measured on flights as the real builds
    # send them, at 76 fresh samples a second: 0.053 to 0.076 for rates, 0.045 to 0.086 for forces.
    between: float = 0.065
    accel_walk: float = 0.01  # m/s^1.5: 1 mg per root Hz, vibration included
    gyro_walk: float = 0.0002  # rad/s^0.5
    accel_bias_walk: float = 0.001  # m/s^2.5
    gyro_bias_walk: float = 0.0001  # rad/s^1.5
    accel_bias: float = 0.05  # m/s^2, each axis, beyond what the vehicle's file says: a consumer part, as the following
    gyro_bias: float = 0.005  # rad/s
    accel_scale: float = 0.005  # relative, each axis
    gyro_scale: float = 0.005
    misaligned: float = np.radians(0.3)  # of the IMU's axes from the body's, about each: a board in its frame
    lag: float = 0.005  # s: simulators' forces are half a step to a step old
    tilt: float = np.radians(1.0)
    yaw: float = np.radians(0.5)  # of a camera mounted by hand, as the roll
    roll: float = np.radians(0.5)
    focal: float = 0.01  # relative: a calibration without a board
    centre: float = 2.5  # px, each axis: the usual offset of a sensor under its lens
    arm: float = 0.02  # m, each axis: the specification has the camera at the origin of bodies of 0.28 m
    lean: float = np.radians(
        1.0
    )  # of a told attitude, each axis: two sigma of what autopilots' own filters lean in turns
    radial: tuple[float, float] = (
        0.01,
        0.002,
    )  # what a wrong focal length leaves of a lens: 3 px in the picture's corners
    delay: float = 0.01  # s
    readout: float = 0.006  # s: none in a simulator, 5 to 20 ms in the cameras of drones
    map_m: float = 0.15  # by which each gate stands off the map by itself, each axis; unsurveyed, 0.4 m in all
    map_scale: float = 0.008  # of the whole course: that map was 0.77 % too large
    tilt_walk: float = 1e-4  # rad per root of a second, of yaw and roll too; the following likewise
    lean_walk: float = 2e-3  # rad: such filters follow the turns of a lap
    delay_walk: float = 2e-4
    edge_walk: float = 0.02
    coast_accel: float = 1.5  # m/s^1.5, of a model that flies through a gap of the telemetry
    coast_gyro: float = 0.15  # rad/s^0.5, likewise

    @cached_property
    def walks(self) -> Array:
        """(N,) growth of variances per second."""
        q = np.zeros(N)
        q[V], q[THETA], q[B_A] = self.accel_walk**2, self.gyro_walk**2, self.accel_bias_walk**2
        q[B_G], q[[TILT, YAW, ROLL]], q[LEAN] = self.gyro_bias_walk**2, self.tilt_walk**2, self.lean_walk**2
        q[DELAY], q[EDGE] = self.delay_walk**2, self.edge_walk**2
        return q

    def growth(self, a: Reading, b: Reading) -> Array:
        """Diagonal (N,) of Q from one reading to the next. Position follows from the velocity with the next step.

        A part of a step between two samples, of length h, has its share of the whole one's variance.
        """
        dt = b.t - a.t
        h = max(b.step, dt)
        between = (self.between * h / dt) ** 2
        q: Array = _growth(
            dt, h, between, self.imu.accel_noise_m_s2**2, self.imu.gyro_noise_rad_s**2,
            self.coast_accel**2 if b.predicted else 0.0, self.coast_gyro**2 if b.predicted else 0.0,
            self.walks, a.accel, a.gyro, b.accel, b.gyro,
        )  # fmt: skip
        return q


@njit(
    "float64[::1](" + 7 * "float64, " + "float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])",
    cache=True,
)
def _growth(dt, h, between, accel, gyro, coast_accel, coast_gyro, walks, accel_a, gyro_a, accel_b, gyro_b):
    """Diagonal (N,) of Q from variances; velocity and attitude stand at 3 and 6."""
    q, df, dw = dt * walks, accel_b - accel_a, gyro_b - gyro_a
    for k in range(3):
        q[3 + k] += dt * (h * (accel + between * (df @ df) / 3) + coast_accel)
        q[6 + k] += dt * (h * (gyro + between * dw[k] ** 2) + coast_gyro)
    return q


@dataclass(frozen=True, slots=True)
class Belief:
    """A state and the covariance (N, N) of its error, at one reading's time."""

    x: Nominal
    cov: Array
    reading: Reading


def predicted(belief: Belief, x: Nominal, reading: Reading, growth: Array) -> Belief:
    """The belief at a later reading, where integration leads to x, and variances grow by the diagonal (N,) of Q."""
    F = transition(belief.x, belief.reading, reading)
    return Belief(x, carried(F, belief.cov, growth), reading)


def distance2(S: Array, r: Array) -> float:
    """Squared Mahalanobis distance of a residual: chi-square with len(r) degrees of freedom if all is as modelled.

    Raises:
        numpy.linalg.LinAlgError: S is no covariance.
    """
    whitened = np.linalg.solve(np.linalg.cholesky(S), r)
    return float(whitened @ whitened)


def updated(belief: Belief, measure: Residual, R: Array) -> Belief:
    """The belief after a measurement with covariance R (M, M).

    Raises:
        numpy.linalg.LinAlgError: singular S, or a correction that is no number.
    """
    x, error, fine = belief.x, np.zeros(N), np.maximum(SMALL, SETTLED * np.sqrt(belief.cov.diagonal()))
    for _ in range(ITERATIONS):
        r, H = measure(x)
        K = np.linalg.solve(H @ belief.cov @ H.T + R, H @ belief.cov).T
        step = K @ (r + H @ error) - error
        error = error + step
        if not np.isfinite(error).all():
            raise np.linalg.LinAlgError("the correction is no number")
        x = belief.x.plus(error)
        if (np.abs(step) <= fine).all():
            break
    A = belief.cov - K @ (H @ belief.cov)
    cov = A + (K @ R - A @ H.T) @ K.T
    G = EYE3 - 0.5 * cross(error[THETA])
    cov[THETA] = G @ cov[THETA]
    cov[:, THETA] = cov[:, THETA] @ G.T
    return Belief(x, 0.5 * (cov + cov.T), belief.reading)


def doubted(belief: Belief, what: slice, sigma: float) -> Belief:
    """The belief with more doubt in one block of the state."""
    cov = belief.cov.copy()
    cov[what, what] += sigma**2 * EYE3
    return Belief(belief.x, cov, belief.reading)
