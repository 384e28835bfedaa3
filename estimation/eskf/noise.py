"""Initial covariance P0 and process noise Q of the error-state filter, both from the table of its states."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numba import njit

from gate_racer.estimation.eskf.states import (
    ARM,
    B_A,
    B_G,
    CENTRE,
    DELAY,
    EDGE_PX,
    EYE3,
    FOCAL,
    KNOWN,
    RADIAL,
    READOUT,
    ROLL,
    STATES,
    THETA,
    TILT,
    YAW,
    StateBlock,
    column,
    varied,
)
from gate_racer.estimation.imu import ImuReading
from gate_racer.perception.rims import GateAppearance
from gate_racer.vehicle.camera import CameraDoubt
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import ImuParameters

PAD_SIGMA_TILT, PAD_SIGMA_YAW = KNOWN.pad_lean, KNOWN.pad_yaw  # rad


@dataclass(frozen=True)
class Noise:
    """Standard deviations: of the IMU's readings from the vehicle's file, of the states from their table."""

    imu: ImuParameters
    states: Mapping[str, StateBlock] = field(default_factory=lambda: STATES)
    # See `vehicle.doubt` for quantity and unit of these.
    between: float = KNOWN.between
    misaligned: float = KNOWN.misaligned
    map_m: float = KNOWN.map_m
    map_turn: float = KNOWN.map_turn
    coast_accel: float = 1.5  # m/s^1.5, of the model that bridges a telemetry gap (chosen)
    coast_gyro: float = 0.15  # rad/s^0.5, likewise

    @cached_property
    def walks(self) -> Array:
        """Growth of the variances per second, (N,)."""
        return column("walk", self.states) ** 2

    def growth(self, a: ImuReading, b: ImuReading) -> Array:
        """Return the diagonal (N,) of Q from reading a to b. Velocity noise reaches the position with the next step.

        A part dt of an interval h between two samples contributes its share dt / h of the whole variance.
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


def of_camera(doubt: CameraDoubt | None) -> dict[str, StateBlock]:
    """Return the table of states with the priors of a camera's calibration; `STATES` if `doubt` is None."""
    if doubt is None:
        return STATES
    yaw, tilt, roll = np.radians([doubt.yaw_deg, doubt.tilt_deg, doubt.roll_deg]).tolist()
    priors = {"yaw": yaw, "tilt": tilt, "roll": roll, "arm": doubt.position_m, "focal": doubt.focal}
    priors |= {"centre": doubt.centre_px, "radial": (doubt.k1, doubt.k2)}
    priors |= {"delay": doubt.delay_s, "readout": doubt.readout_s}
    return varied(**{name: {"prior": sigma} for name, sigma in priors.items()})


def doubt_in(cov: Array) -> CameraDoubt:
    """Return the camera's standard deviations by a covariance (N, N); of several axes the greatest."""
    sigma = np.sqrt(cov.diagonal())
    yaw, tilt, roll = np.degrees(sigma[[YAW, TILT, ROLL]]).tolist()
    position, centre, (k1, k2) = float(sigma[ARM].max()), float(sigma[CENTRE].max()), sigma[RADIAL].tolist()
    delay, readout = sigma[[DELAY, READOUT]].tolist()
    return CameraDoubt(yaw, tilt, roll, position, float(sigma[FOCAL]), centre, k1, k2, delay, readout)


def prior(noise: Noise, look: GateAppearance, q_wb: Array) -> Array:
    """Return P0 (N, N) on the pad at attitude q_wb (4,). Gates and their edges get theirs when first seen."""
    imu, sigma = noise.imu, column("prior", noise.states)
    sigma[B_A] = np.hypot(imu.accel_bias_m_s2, sigma[B_A])
    sigma[B_G] = np.hypot(imu.gyro_bias_rad_s, sigma[B_G])
    sigma[EDGE_PX] = look.edge_offset_px
    cov = np.diag(sigma**2)
    cov[THETA, THETA] = pad_attitude(noise, q_wb)
    return cov


def pad_attitude(noise: Noise, q_wb: Array) -> Array:
    """Return the covariance (3, 3) rad^2 of the IMU's attitude on the pad, about its own axes."""
    R_wb = matrix(q_wb)
    doubt = R_wb.T @ np.diag([PAD_SIGMA_TILT, PAD_SIGMA_TILT, PAD_SIGMA_YAW]) ** 2 @ R_wb
    return np.asarray(doubt + noise.misaligned**2 * EYE3)


@njit(
    "float64[::1](" + 7 * "float64, " + "float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])",
    cache=True,
)
def _growth(dt, h, between, accel, gyro, coast_accel, coast_gyro, walks, accel_a, gyro_a, accel_b, gyro_b):
    """Return the diagonal (N,) of Q from variances; velocity begins at 3, attitude at 6."""
    q, df, dw = dt * walks, accel_b - accel_a, gyro_b - gyro_a
    for k in range(3):
        q[3 + k] += dt * (h * (accel + between * (df @ df) / 3) + coast_accel)
        q[6 + k] += dt * (h * (gyro + between * dw[k] ** 2) + coast_gyro)
    return q
