"""What the error-state filter knows at the start, and what its errors grow by: the numbers behind P0 and Q, in one place."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from estimation.estimator import PAD_SIGMA_P, PAD_SIGMA_V
from estimation.states import (
    ARM,
    B_A,
    B_G,
    CENTRE,
    DELAY,
    EDGE,
    EYE3,
    FOCAL,
    LAG,
    LEAN,
    RADIAL,
    READOUT,
    ROLL,
    S_A,
    S_G,
    SCALE,
    THETA,
    TILT,
    YAW,
    N,
    P,
    Reading,
    V,
)
from perception.association import Look
from vehicle.rotation import Array, matrix
from vehicle.vehicle import Imu

# Gravity tells the tilt: the qualifier's pad is pitched by 17.8 deg, of which no file tells.
PAD_SIGMA_TILT = np.radians(20.0)
PAD_SIGMA_YAW = np.radians(1.0)  # a vehicle put down by hand


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
    # Of a told attitude, each axis: two sigma of what autopilots' own filters lean in turns.
    lean: float = np.radians(1.0)
    # Of the lens, what a wrong focal length leaves: 3 px in the picture's corners.
    radial: tuple[float, float] = (0.01, 0.002)
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


def prior(noise: Noise, look: Look, q_wb: Array) -> Array:
    """P0 (N, N) on the pad, for an attitude (4,). Gates and their edges get theirs with their places."""
    imu, sigma = noise.imu, np.zeros(N)
    sigma[P], sigma[V] = PAD_SIGMA_P, PAD_SIGMA_V
    sigma[B_A] = np.hypot(imu.accel_bias_m_s2, noise.accel_bias)
    sigma[B_G] = np.hypot(imu.gyro_bias_rad_s, noise.gyro_bias)
    sigma[S_A], sigma[S_G], sigma[LAG] = noise.accel_scale, noise.gyro_scale, noise.lag
    sigma[YAW], sigma[TILT], sigma[ROLL], sigma[ARM] = noise.yaw, noise.tilt, noise.roll, noise.arm
    sigma[FOCAL], sigma[CENTRE], sigma[RADIAL] = noise.focal, noise.centre, noise.radial
    sigma[DELAY], sigma[READOUT] = noise.delay, noise.readout
    sigma[EDGE], sigma[SCALE], sigma[LEAN] = look.edge_px, noise.map_scale, noise.lean
    cov = np.diag(sigma**2)
    cov[THETA, THETA] = pad_attitude(noise, q_wb)
    return cov


def pad_attitude(noise: Noise, q_wb: Array) -> Array:
    """Covariance (3, 3) of the IMU's attitude on the pad, about its axes."""
    R_wb = matrix(q_wb)
    doubt = R_wb.T @ np.diag([PAD_SIGMA_TILT, PAD_SIGMA_TILT, PAD_SIGMA_YAW]) ** 2 @ R_wb
    return np.asarray(doubt + noise.misaligned**2 * EYE3)


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
