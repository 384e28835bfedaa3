"""Error-state Kalman filter: propagation of the covariance of the strap-down error, its updates, and measurements.

    P <- F P F' + Q,   S = H P H' + R,   K = P H' S^-1
    P <- (I - K H) P (I - K H)' + K R K' = A + (K R - A H') K',   A = P - K H P   (Joseph's form, N^2 M flops instead of N^3)

The update is iterated (Bell and Cathey 1993): the measurement is relinearised at the last corrected state, dx <- K (r + H dx),
which the first gate after a blind interval needs. Afterwards the attitude error is expressed about the new attitude,
G = I - [theta]x / 2 (Sola 2017, eq. 287). Measurements other than corners (rest on the pad, attitude, position) are
a residual function and a covariance each.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gate_racer.model.imu import ImuReading
from gate_racer.model.states import B_A, B_G, EYE3, LEAN, NORTH, S_A, THETA, N, Nominal, column, cross
from gate_racer.model.strapdown import propagated, transition
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, conjugate, log, matrix, product
from gate_racer.vehicle.rotation import exp as turned
from gate_racer.vehicle.vehicle import ImuParameters

ITERATIONS = 3  # greatest number of iterations of an update
SETTLED = 0.02  # standard deviations, change below which the iteration ends; so does one within `StateBlock.linear`
LINEAR = column("linear")

MeasurementModel = Callable[[Nominal], tuple[Array, Array]]  # state -> residual (M,) and H (M, N)


@dataclass(frozen=True, slots=True)
class FilterState:
    """Nominal state and the covariance (N, N) of its error, at the time of `reading`."""

    x: Nominal
    cov: Array  # (N, N), in the order of `states.STATES`
    reading: ImuReading  # at the time of x


def propagate(state: FilterState, x: Nominal, reading: ImuReading, growth: Array) -> FilterState:
    """Propagate to a later reading, at which integration gives x; `growth` (N,) is the diagonal of Q."""
    F = transition(state.x, state.reading, reading)
    return FilterState(x, propagated(F, state.cov, growth), reading)


def update(state: FilterState, measure: MeasurementModel, R: Array) -> FilterState:
    """Update by a measurement with covariance R (M, M).

    Raises:
        numpy.linalg.LinAlgError: S is singular, or the correction is not finite.
    """
    x, error, fine = state.x, np.zeros(N), np.maximum(LINEAR, SETTLED * np.sqrt(state.cov.diagonal()))
    for _ in range(ITERATIONS):
        r, H = measure(x)
        K = np.linalg.solve(H @ state.cov @ H.T + R, H @ state.cov).T
        step = K @ (r + H @ error) - error
        error = error + step
        if not np.isfinite(error).all():
            raise np.linalg.LinAlgError("the correction is not finite")
        x = state.x.plus(error)
        if (np.abs(step) <= fine).all():
            break
    A = state.cov - K @ (H @ state.cov)
    cov = A + (K @ R - A @ H.T) @ K.T
    G = EYE3 - 0.5 * cross(error[THETA])
    cov[THETA] = G @ cov[THETA]
    cov[:, THETA] = cov[:, THETA] @ G.T
    return FilterState(x, 0.5 * (cov + cov.T), state.reading)


def joseph(cov: Array, H: Array, R: Array) -> tuple[Array, Array]:
    """Return the gain K (n, M) and the covariance (n, n) after a linear measurement H (M, n) with covariance R, in Joseph's form.

    Raises:
        numpy.linalg.LinAlgError: S is singular.
    """
    K = np.asarray(np.linalg.solve(H @ cov @ H.T + R, H @ cov).T, float)
    keep = np.eye(len(cov)) - K @ H
    return K, keep @ cov @ keep.T + K @ R @ K.T


def inflate_covariance(state: FilterState, block: slice, sigma: float) -> FilterState:
    """Add the variance sigma^2 to each of the three errors in `block`, uncorrelated."""
    cov = state.cov.copy()
    cov[block, block] += sigma**2 * EYE3
    return FilterState(state.x, cov, state.reading)


# Standard deviations of the position and velocity that a simulator sends, whose stamps are good to 1 ms (chosen).
POSITION_SIGMA_M, VELOCITY_SIGMA_M_S = 0.02, 0.05
ATTITUDE_SIGMA = 0.002  # rad, about each axis: telemetry is noise-free, but rounded and integrated in steps
STAMP_SIGMA_S = 0.003  # s, of an attitude relative to the gyro, which may be half a step older
VARIANCE_FLOOR = 1e-10  # (m/s^2)^2 and (rad/s)^2, least variance, for an IMU without noise


def at_rest(accel: Array, gyro: Array, samples: int, imu: ImuParameters) -> tuple[MeasurementModel, Array]:
    """Return the measurement of the biases by mean readings (3,) at rest, m/s^2 and rad/s, body FRD.

    The accelerometer's mean observes its bias and the attitude error in common.
    """

    def measure(x: Nominal) -> tuple[Array, Array]:
        up_b, gain = -matrix(x.q_wb).T @ [0.0, 0.0, GRAVITY], 1 / (1 - x[S_A])
        H = np.zeros((6, N))
        H[:3, THETA], H[:3, S_A] = gain[:, None] * cross(up_b), np.diag(gain**2 * up_b)
        H[:3, B_A], H[3:, B_G] = EYE3, EYE3
        return np.concatenate([accel - gain * up_b - x[B_A], gyro - x[B_G]]), H

    noise = np.repeat([imu.accel_noise_m_s2, imu.gyro_noise_rad_s], 3) ** 2 / samples
    return measure, np.diag(noise + VARIANCE_FLOOR)


def attitude(q_measured: Array, later_s: float, omega: Array) -> tuple[MeasurementModel, Array]:
    """Return the measurement by an attitude (4,) from `later_s` before the state, propagated by omega (3,) rad/s.

    Its systematic errors are states: q_measured = exp(north e_z) * q * exp(lean).
    """
    q_measured = np.array(product(q_measured, turned(omega * later_s)))

    def measure(x: Nominal) -> tuple[Array, Array]:
        lean, across = turned(x[LEAN]), cross(x[LEAN])
        H = np.zeros((3, N))
        # The Jacobian of exp on the right, to second order; that of the logarithm is 1, as residuals are small.
        H[:, THETA], H[:, LEAN] = matrix(lean).T, EYE3 - 0.5 * across + across @ across / 6
        leaning = product(x.q_wb, lean)
        H[:, NORTH] = matrix(leaning)[2]
        return log(product(conjugate(product(turned([0.0, 0.0, x[NORTH]]), leaning)), q_measured)), H

    return measure, (ATTITUDE_SIGMA**2 + STAMP_SIGMA_S**2 * float(omega @ omega)) * EYE3


def position(p_wb: Array, v_w: Array, later_s: float, a_w: Array) -> tuple[MeasurementModel, Array]:
    """Return the measurement by a position (3,) m and a velocity (3,) m/s, world NED, from `later_s` before the state.

    Its stamp is as uncertain as an attitude's: by velocity and acceleration a_w (3,) m/s^2 that is an error of both.
    """
    measured, H = np.concatenate([p_wb + later_s * v_w, v_w + later_s * a_w]), np.eye(6, N)
    R = np.diag(np.repeat([POSITION_SIGMA_M, VELOCITY_SIGMA_M_S], 3) ** 2)
    by_stamp = STAMP_SIGMA_S * np.concatenate([v_w, a_w])
    R += np.outer(by_stamp, by_stamp)
    return lambda x: (measured - np.concatenate([x.p_wb, x.v_w]), H), R
