"""Pose of a square opening from its four corners, without a prior: IPPE.

IPPE: Collins and Bartoli, "Infinitesimal Plane-based Pose Estimation" (2014). The tilt of a small square is ambiguous: two
poses fit it almost equally well. Covariance from 20 perturbed corner sets: Swift (Nature 2023), Methods.
Corners run top-left, top-right, bottom-right, bottom-left in gate axes.
"""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.perception.common.quadrilateral import square_homography
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Mask

PERTURBED = 20  # corner sets for a sampled covariance (Swift, Methods)
# Corners in gate axes, for a half-side of 1.
CORNERS = np.array([[0.0, -1.0, -1.0], [0.0, 1.0, -1.0], [0.0, 1.0, 1.0], [0.0, -1.0, 1.0]])


@dataclass(frozen=True, slots=True)
class GatePose:
    """Pose of a gate in camera axes. `alternatives` are the other solutions for the same corners, without covariance."""

    p_cg: Array  # (3,) m
    R_cg: Array  # (3, 3)
    cov_p: Array  # (3, 3) m^2
    reprojection_px: float  # mean distance of the corners from their reprojection
    alternatives: tuple["GatePose", ...] = ()

    def nearest(self, R_cg: Array) -> "GatePose":
        """Return the solution whose rotation is nearest to R_cg, with the covariance of this one."""
        best = max((self, *self.alternatives), key=lambda pose: float(np.trace(R_cg.T @ pose.R_cg)))
        return replace(best, cov_p=self.cov_p, alternatives=())


def gate_pose(
    corners_px: Array, sigma_px: float, opening_m: float, camera: Camera, rng: np.random.Generator
) -> GatePose | None:
    """Return the better-fitting of the two IPPE poses of a square opening; None if no pose fits the corners.

    Args:
        corners_px: (4, 2) in gate order.
        sigma_px: standard deviation of one corner coordinate, px.
        opening_m: side of the square, m.
    """
    # The perturbations are whitened to have exactly the intended covariance, for which 20 suffice.
    noise = rng.standard_normal((PERTURBED, 8))
    noise = np.linalg.qr(noise - noise.mean(0))[0] * np.sqrt(PERTURBED - 1)
    sets = corners_px + sigma_px * np.vstack([np.zeros((1, 8)), noise]).reshape(-1, 4, 2)
    R_cg, p_cg = ippe(sets, opening_m, camera)
    poses = _likely(R_cg[0], p_cg[0], corners_px, opening_m, camera)
    if not poses:
        return None
    best, *others = poses
    apart = np.where(_ahead(R_cg[1:], p_cg[1:], opening_m), np.linalg.norm(p_cg[1:] - best.p_cg, axis=-1), np.inf)
    p = p_cg[1:][np.arange(PERTURBED), apart.argmin(-1)][np.isfinite(apart.min(-1))]
    if len(p) <= best.p_cg.size:  # too few for three axes
        return None
    # About the estimate, not the mean of the sets: a mean shift by the perturbations is an error as well.
    return replace(best, cov_p=(p - best.p_cg).T @ (p - best.p_cg) / (len(p) - 1), alternatives=tuple(others))


def both_poses(corners_px: Array, opening_m: float, camera: Camera) -> list[GatePose]:
    """Return the IPPE poses of a square opening, better-fitting first, without covariance; arguments as of `gate_pose`."""
    return _likely(*ippe(corners_px, opening_m, camera), corners_px, opening_m, camera)


def _likely(R_cg: Array, p_cg: Array, corners_px: Array, opening_m: float, camera: Camera) -> list[GatePose]:
    """Return those of both solutions (2, 3, 3), (2, 3) that lie in front of the camera, better-fitting first."""
    with np.errstate(all="ignore"):  # by solutions behind the camera
        corners_c = p_cg[:, None] + opening_m / 2 * CORNERS @ np.swapaxes(R_cg, -1, -2)
        error_px = np.linalg.norm(camera.project(corners_c) - corners_px, axis=-1).mean(-1)
    ahead = _ahead(R_cg, p_cg, opening_m)
    poses = [GatePose(p_cg[k], R_cg[k], np.zeros((3, 3)), float(error_px[k])) for k in (0, 1) if ahead[k]]
    return sorted(poses, key=lambda pose: pose.reprojection_px)


def _ahead(R_cg: Array, p_cg: Array, opening_m: float) -> Mask:
    """Check whether gates (..., 3, 3), (..., 3) lie in front of the camera at any rotation; False if not finite."""
    reach = opening_m / np.sqrt(2)  # m, distance of a corner from the centre
    return np.asarray(np.isfinite(p_cg).all(-1) & np.isfinite(R_cg).all((-2, -1)) & (p_cg[..., 2] > reach))


@np.errstate(all="ignore")
def ippe(corners_px: Array, opening_m: float, camera: Camera) -> tuple[Array, Array]:
    """Return both poses of squares, from the derivative of each homography at its centre: R_cg (..., 2, 3, 3), p_cg (..., 2, 3).

    Args:
        corners_px: (..., 4, 2) in gate order; degenerate corners give arbitrary poses or NaN.
    """
    x = (corners_px - [camera.cx_px, camera.cy_px]) / [camera.fx_px, camera.fy_px]
    p, a, b, gh = square_homography(x)
    w = 1 + gh.sum(-1, keepdims=True) / 2
    centre = (p + (a + b) / 2) / w
    J = np.stack([a - centre * gh[..., :1], b - centre * gh[..., 1:]], -1) / (w * opening_m)[..., None]
    # Rotate the camera onto the centre; J is then a scaled 2 x 2 block of a rotation matrix.
    d = np.concatenate([centre, np.ones_like(w)], -1)
    d = d / np.linalg.norm(d, axis=-1, keepdims=True)
    e = d[..., :2]
    R_v = np.zeros((*d.shape, 3))
    R_v[..., :2, :2] = np.eye(2) - e[..., :, None] * e[..., None, :] / (1 + d[..., 2])[..., None, None]
    R_v[..., 2, :2], R_v[..., :, 2] = -e, d
    onto = np.concatenate([np.broadcast_to(np.eye(2), J.shape), -centre[..., None]], -1) @ R_v[..., :2]
    adjugate = np.stack(
        [np.stack([onto[..., 1, 1], -onto[..., 0, 1]], -1), np.stack([-onto[..., 1, 0], onto[..., 0, 0]], -1)], -2
    )
    A = adjugate @ J
    trace, det = (A * A).sum((-2, -1)), A[..., 0, 0] * A[..., 1, 1] - A[..., 0, 1] * A[..., 1, 0]
    gamma = np.sqrt((trace + np.sqrt(np.maximum(trace**2 - 4 * det**2, 0.0))) / 2)
    A = A / gamma[..., None, None]
    rest = np.eye(2) - np.swapaxes(A, -1, -2) @ A
    tilt = np.sqrt(np.maximum(np.stack([rest[..., 0, 0], rest[..., 1, 1]], -1), 0.0))
    tilt[..., 1] *= np.where(rest[..., 0, 1] < 0, -1.0, 1.0)
    block = np.stack([np.concatenate([A, sign * tilt[..., None, :]], -2) for sign in (1.0, -1.0)], -3)
    y, z = np.moveaxis(R_v[..., None, :, :] @ block, -1, 0)  # (..., 2, 3): the gate's axes in the image plane
    R_cg = np.stack([np.cross(y, z), y, z], -1)
    # The centre by linear least squares of u z - x and v z - y.
    arm = opening_m / 2 * CORNERS @ np.swapaxes(R_cg, -1, -2)  # (..., 2, 4, 3)
    u = x[..., None, :, :]
    rows = np.stack([np.stack([np.ones_like(u[..., 0]), np.zeros_like(u[..., 0]), -u[..., 0]], -1),
                     np.stack([np.zeros_like(u[..., 0]), np.ones_like(u[..., 0]), -u[..., 1]], -1)], -2)  # fmt: skip
    right = u * arm[..., 2:] - arm[..., :2]  # (..., 2, 4, 2)
    normal = np.einsum("...nij,...nik->...jk", rows, rows)
    pull = np.einsum("...nij,...ni->...j", rows, right)
    return R_cg, np.linalg.solve(normal + 1e-12 * np.eye(3), pull[..., None])[..., 0]
