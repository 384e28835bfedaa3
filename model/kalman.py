"""Error-state Kalman filter: propagation of the covariance of the strap-down error, and its updates.

    P <- F P F' + Q,   S = H P H' + R,   K = P H' S^-1
    P <- (I - K H) P (I - K H)' + K R K' = A + (K R - A H') K',   A = P - K H P   (Joseph's form, N^2 M flops instead of N^3)

The update is iterated (Bell and Cathey 1993): the measurement is relinearised at the last corrected state, dx <- K (r + H dx),
which the first gate after a blind interval needs. Afterwards the attitude error is expressed about the new attitude,
G = I - [theta]x / 2 (Sola 2017, eq. 287).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gate_racer.model.imu import ImuReading
from gate_racer.model.states import EYE3, THETA, N, Nominal, column, cross
from gate_racer.model.strapdown import propagated, transition
from gate_racer.vehicle.rotation import Array

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
