"""Propagation of the error covariance through strap-down integration along a motion: P <- F P F' + Q.

    dp' = dv,   dv' = -R [f]x theta - R (b_a + diag(f) s_a) + R (df/dt) delay + n_a
    theta' = -[omega]x theta - b_g - diag(omega) s_g + n_g

Sola, "Quaternion kinematics for the error-state Kalman filter" (2017), eq. 238; readings are true value + bias + scale error
times the value. F = I + A dt + (A dt)^2 / 2.
"""

import numpy as np

from gate_racer.planner.doubt.motion import Motion
from gate_racer.planner.doubt.states import (
    ACCEL_DELAY,
    B_A,
    B_G,
    MOVING,
    S_A,
    S_G,
    THETA,
    N,
    P,
    V,
    cross,
)
from gate_racer.vehicle.doubt import Doubt
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import ImuParameters


def transitions(motion: Motion) -> Array:
    """Return F (M - 1, 9, n): derivatives of p, v, theta at the next sample with respect to the n errors in `MOVING`."""
    dt, R = np.diff(motion.t)[:, None, None], motion.R_wb[:-1]
    f, omega = motion.force_b, motion.omega_b[:-1]
    A = np.zeros((len(dt), MOVING.stop, MOVING.stop))
    A[:, P, V] = np.eye(3)
    A[:, V, THETA], A[:, V, B_A], A[:, V, S_A] = -R @ cross(f[:-1]), -R, -R * f[:-1, None]
    A[:, V, ACCEL_DELAY] = R @ (np.diff(f, axis=0)[:, :, None] / dt)
    A[:, THETA, THETA], A[:, THETA, B_G] = -cross(omega), -np.eye(3)
    A[:, THETA, S_G] = -np.eye(3) * omega[:, None]
    step = A * dt
    F = np.eye(MOVING.stop) + step + 0.5 * step @ step
    return np.asarray(F[:, : THETA.stop])


def growth(motion: Motion, imu: ImuParameters, doubt: Doubt) -> Array:
    """Return the diagonals (M - 1, N) of Q: noise of the readings, and their unknown course between two samples.

    The latter is the fraction `between` of the change of specific force or rates from sample to sample.
    """
    dt, q = np.diff(motion.t), np.zeros((len(motion.t) - 1, N))
    df2 = (np.diff(motion.force_b, axis=0) ** 2).sum(axis=1, keepdims=True) / 3
    dw2 = np.diff(motion.omega_b, axis=0) ** 2
    h = dt[:, None]
    q[:, V] = h**2 * (imu.accel_noise_m_s2**2 + doubt.between**2 * df2) + h * doubt.accel_walk**2
    q[:, THETA] = h**2 * (imu.gyro_noise_rad_s**2 + doubt.between**2 * dw2) + h * doubt.gyro_walk**2
    return q


def carried(cov: Array, F: Array, q: Array) -> Array:
    """Return F P F' + Q (N, N), for the rows F (9, n) that differ from the identity and the diagonal q (N,) of Q."""
    rows, columns = F.shape
    grown, moved = cov.copy(), F @ cov[:columns]
    grown[:rows], grown[:, :rows] = moved, moved.T
    grown[:rows, :rows] = moved[:, :columns] @ F.T
    grown[np.diag_indices(N)] += q
    return grown
