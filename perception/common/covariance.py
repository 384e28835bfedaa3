"""Covariance of corners at the intersection of two measured lines."""

import numpy as np

from gate_racer.perception.common.quadrilateral import NEXT, PREVIOUS
from gate_racer.vehicle.rotation import Array, Mask

UNSEEN_PX = 30.0  # px, least standard deviation of an unmeasured side (guess: far above any measured one)
PARALLEL_PX = 10 * UNSEEN_PX  # px, standard deviation along a line of a corner without a second line


def corner_covariance_px2(corners_px: Array, measured: Mask, sigma_px: Array) -> Array:
    """Return covariances (..., 4, 2, 2) px^2 of corners (..., 4, 2) at the intersections of the sides' lines.

    Each line constrains a corner across itself; the information of both adds up.

    Args:
        measured: (..., 4); the standard deviation of an unmeasured side is about its length.
        sigma_px: (..., 4, 2) standard deviations across the measured lines, at their starts and ends.
    """
    along = corners_px[..., NEXT, :] - corners_px
    side_px = np.linalg.norm(along, axis=-1)
    outward = np.stack([along[..., 1], -along[..., 0]], -1) / np.maximum(side_px, 1.0)[..., None]
    sigma = np.where(measured[..., None], sigma_px, np.maximum(side_px, UNSEEN_PX)[..., None])
    n = np.stack([outward[..., PREVIOUS, :], outward], -2)  # (..., 4, 2 lines, 2)
    weight = 1 / np.stack([sigma[..., PREVIOUS, 1], sigma[..., 0]], -1) ** 2
    information = np.swapaxes(n * weight[..., None], -1, -2) @ n
    information += np.eye(2) / PARALLEL_PX**2
    return np.asarray(np.linalg.inv(information))
