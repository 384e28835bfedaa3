"""The error-state Kalman filter: the covariance of the strap-down error and its corrections.

    P <- F P F' + Q,   S = H P H' + R,   K = P H' S^-1
    P <- (I - K H) P (I - K H)' + K R K' = A + (K R - A H') K',   A = P - K H P   (Joseph's form, N^2 M flops instead of N^3)

The update is iterated (Bell and Cathey 1993): the measurement is linearised anew where the last correction leads,
dx <- K (r + H dx), which a first gate after a blind stretch needs. After it the attitude error is counted
from the new attitude, G = I - [theta]x / 2 (Sola 2017, eq. 287).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from estimation.states import (
    ARM,
    CENTRE,
    DELAY,
    EYE3,
    FOCAL,
    GATES,
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
    cross,
)
from estimation.strapdown import carried, transition
from vehicle.rotation import Array

ITERATIONS = 3
SETTLED = 0.02  # standard deviations: a correction that changes less is final
# ... and so is one that moves no corner a metre away by more than what linearisation gets right to 0.1 px: f (dx / z)^2.
SMALL = np.full(N, np.inf)
SMALL[P], SMALL[GATES], SMALL[ARM], SMALL[DELAY], SMALL[SCALE], SMALL[FOCAL] = 0.02, 0.02, 0.02, 5e-4, 5e-4, 0.002
SMALL[RADIAL], SMALL[READOUT] = 0.002, 2e-3
SMALL[THETA], SMALL[[TILT, YAW, ROLL]], SMALL[CENTRE] = 0.004, 0.004, 1.0

Residual = Callable[[Nominal], tuple[Array, Array]]  # residual (M,) and H (M, N) at a state


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
