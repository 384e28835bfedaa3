"""Position of an opening relative to the vehicle, from its known size by IPPE, with covariance including calibration errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.estimation.drift.odometry import Pose
from gate_racer.perception.detection import Detection
from gate_racer.perception.pose import GatePose, both_poses
from gate_racer.perception.rims import GateAppearance
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array

SIGMA_ATTITUDE = 0.008  # rad, standard deviation of a line of sight: attitude, principal point and distortion
SIGMA_CLOCK = 0.01  # s, standard deviation of exposure times, as in the error-state filter
SIGMA_SCALE = 0.02  # -, relative standard deviation of ranges: focal length and common offset of the edges
FAR_M = 45.0  # m, greatest range of a fix: an opening beyond spans a few pixels
TILTED = 0.1  # rad, excess lean over the more upright pose beyond which a pose is discarded (chosen)


@dataclass(frozen=True, slots=True)
class GateFix:
    """Position of one opening relative to the vehicle, in world NED axes."""

    z_w: Array  # (3,) m, from the vehicle to the opening's centre
    cov: Array  # (3, 3) m^2, of z_w
    axis: Array  # (2,) horizontal unit vector through the opening, of either sign
    weight: float  # 1/m^2, of `axis` in an average


def gate_fix(
    detection: Detection, pose: Pose, camera: Camera, opening_m: float, look: GateAppearance
) -> GateFix | None:
    """Return the fix of an opening of side `opening_m` (m) from the pose at the exposure; None if it is cut or too far away."""
    if not detection.visible.all():
        return None
    hole_m = opening_m - 2 * look.outline_m
    poses = both_poses(detection.corners_px, opening_m if detection.near_face else hole_m, camera)
    if not poses or poses[0].p_cg[2] > FAR_M:
        return None
    arm_w, R_wc = camera.pose(np.zeros(3), pose.q_wb)
    p_cg = poses[0].p_cg
    if detection.near_face:  # half the frame's depth in front of the gate's centre
        through = poses[0].R_cg[:, 0]
        p_cg = p_cg + math.copysign(look.depth_m / 2, float(through @ p_cg)) * through
    z_w, range_m = arm_w + R_wc @ p_cg, float(np.linalg.norm(p_cg))
    # An offset common to all edges shifts the range, by more than independent corner errors do.
    along, turned = R_wc @ p_cg / range_m, SIGMA_CLOCK * float(np.linalg.norm(pose.omega_b))
    stretch = math.hypot(SIGMA_SCALE, 2 * look.edge_offset_px * range_m / (camera.fx_px * hole_m)) * range_m
    across = math.hypot(SIGMA_ATTITUDE, turned, detection.sigma_px / camera.fx_px) * range_m
    cov = stretch**2 * np.outer(along, along) + across**2 * np.eye(3)
    axis, sure = _upright(R_wc, poses)
    return GateFix(z_w, cov, axis, sure / range_m**2)


def _upright(R_wc: Array, poses: Sequence[GatePose]) -> tuple[Array, float]:
    """Return the horizontal direction (2,) through a gate, by the best-fitting of its upright poses, and its confidence, 0..1."""
    axes = [(R_wc @ pose.R_cg[:, 0], pose.reprojection_px) for pose in poses]
    least = min(abs(axis[2]) for axis, _ in axes)
    good = sorted(((axis, miss) for axis, miss in axes if abs(axis[2]) < least + TILTED), key=lambda one: one[1])
    sure = 1 - good[0][1] / max(good[1][1], 1e-9) if len(good) > 1 else 1.0
    axis = good[0][0][:2]
    return axis / max(float(np.linalg.norm(axis)), 1e-9), sure
