"""Position fix of the vehicle from a gate's pose: IPPE, with a covariance from perturbed corners, as in Swift (Methods).

    p_wb = p_wg - R_wb (p_bc + R_bc p_cg),   R = R_wc cov(p_cg) R_wc'

The attitude is the odometry's, far more accurate than that of a small square: the rotation from IPPE is not used.
"""

import math
from dataclasses import replace

import numpy as np

from gate_racer.perception.association import GateSighting
from gate_racer.perception.pose import gate_pose
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array


class PoseFix:
    """Position fixes by gates with four visible corners; others give none, as in the released code."""

    def __init__(self, camera: Camera, rng: np.random.Generator):
        """Draw the perturbations of corners from `rng`."""
        self._camera, self._rng = camera, rng
        self._pinhole = replace(camera, k1=0.0, k2=0.0)

    def __call__(self, sighting: GateSighting, q_wb: Array) -> tuple[Array, Array] | None:
        """Return the position (3,) m of a vehicle with attitude q_wb (4,), and its covariance (3, 3) m^2; None without a pose."""
        if not sighting.visible.all():
            return None
        corners_w, corners_px = sighting.corners_w, self._camera.pinhole(sighting.corners_px)
        side_m = float(np.linalg.norm(corners_w - np.roll(corners_w, 1, axis=0), axis=1).mean())
        variance_px2 = float(np.trace(sighting.cov_px, axis1=1, axis2=2).mean()) / 2  # of one coordinate
        if not 0 < variance_px2 < np.inf:
            return None
        pose = gate_pose(corners_px, math.sqrt(variance_px2), side_m, self._pinhole, self._rng)
        if pose is None:
            return None
        arm_w, R_wc = self._camera.pose(np.zeros(3), q_wb)
        return corners_w.mean(axis=0) - arm_w - R_wc @ pose.p_cg, R_wc @ pose.cov_p @ R_wc.T
