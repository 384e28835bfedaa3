"""Random walk of the attitude, estimated in flight by the likelihood of the images.

A gyro that loses samples errs by more than its data sheet says: the filter stays sure of an attitude that turns away, rejects the
gates that contradict it, and is lost. Candidates g_j of the walk's density beyond the vehicle's file are compared by the
likelihood of the residual r of each image's nearest gate (Magill 1965),

    L_j <- exp(-T / tau) L_j + log p(r; S_j),   S_j = S + (g_j^2 - g^2) H G H'

where g is the density in the covariance so far, and G that of position, velocity and attitude which a walk of density 1 has
accumulated in the time T since the last correction. p is a mixture with gross errors, as in `tempered`, and no candidate loses
more than `MOST` by one image, so that a few false detections change nothing. Another density is taken when it is likelier by
`ODDS`; a greater one counts since the last correction, P <- P + (g_j^2 - g^2) G.
"""

import math

import numpy as np

from gate_racer.model.kalman import FilterState
from gate_racer.model.reprojection import Measured
from gate_racer.model.states import EYE3, POSE, THETA, P, V, cross
from gate_racer.vehicle.rotation import Array, matrix

DENSITIES = np.array([0.0, 0.01, 0.03, 0.1])  # rad/s^0.5
CONTRADICTED = 0.03  # rad/s^0.5, least density while images contradict the filter: NanoBench's gyros have 0.02 to 0.05
MEMORY_S = 4.0  # s, tau; with 1 s errors after a second without gates are greater (NanoBench)
MOST, ODDS = 3.0, 10.0  # nats, of an image and of a change: at least four images


class GyroWalk:
    """Density (rad/s^0.5) of the walk of the attitude, beyond that of the vehicle's file."""

    def __init__(self) -> None:
        self.density = 0.0
        self._likelihood = np.zeros(len(DENSITIES))

    def likeliest(self, cov: Array, G: Array, T: float, nearest: Measured, share: float, gross_px: float) -> float:
        """Return the density to take after an image of a gate.

        Args:
            cov: (N, N), predicted covariance.
            G: (9, 9), of the pose by a walk of density 1 over T (s).
            share, gross_px: of gross errors, as in `tempered`.
        """
        H = nearest.H[:, POSE]
        S = nearest.H @ cov @ nearest.H.T + nearest.R
        S_j = S + (DENSITIES**2 - self.density**2)[:, None, None] * (H @ G @ H.T)
        gross = gross_px**2 * np.eye(len(S))
        if not np.isfinite(S_j).all():  # of a filter that has failed, or after hours without gates
            return self.density
        try:
            usual, wide = _log_normal(nearest.r, S_j), _log_normal(nearest.r, S_j + gross)
        except np.linalg.LinAlgError:
            return self.density
        likelihood = np.logaddexp(math.log(1 - share) + usual, math.log(share) + wide)
        self._likelihood *= math.exp(-T / MEMORY_S)
        self._likelihood += np.maximum(likelihood - likelihood.max(), -MOST)
        best, present = np.argmax(self._likelihood), np.argmax(self.density <= DENSITIES)
        surely = self._likelihood[best] - self._likelihood[present] > ODDS
        return float(DENSITIES[best]) if surely else self.density


def accumulated(state: FilterState, T: float) -> Array:
    """Return the covariance (9, 9) of the pose after a time T (s) by a walk of the attitude of density 1.

    The specific force is taken as that at the end: v' = C theta_w with C = -[f_w]x.
    """
    x, R_wb = state.x, matrix(state.x.q_wb)
    C = -cross(R_wb @ x.force(state.reading))
    G = np.zeros((9, 9))
    G[P, P], G[P, V], G[V, V] = T**5 / 20 * C @ C.T, T**4 / 8 * C @ C.T, T**3 / 3 * C @ C.T
    G[P, THETA], G[V, THETA], G[THETA, THETA] = T**3 / 6 * C @ R_wb, T**2 / 2 * C @ R_wb, T * EYE3
    G[V, P], G[THETA, P], G[THETA, V] = G[P, V].T, G[P, THETA].T, G[V, THETA].T
    return G


def _log_normal(r: Array, S: Array) -> Array:
    """Return the log densities (J,) of N(0, S_j) at r (M,), for S (J, M, M), up to a constant."""
    L = np.linalg.cholesky(S)
    white = np.linalg.solve(L, np.broadcast_to(r, S.shape[:-1])[..., None])[..., 0]
    return -0.5 * (white**2).sum(-1) - np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(-1)
