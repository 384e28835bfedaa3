"""Where a square opening stands, from its four corners: by IPPE, or by triangulation where the attitude is known.

IPPE: Collins and Bartoli, "Infinitesimal Plane-based Pose Estimation" (2014). A small square leaves its tilt in doubt: two
poses explain it almost equally well. Covariance from 20 perturbed corner sets: Swift (Nature 2023), methods.
Corners run top-left, top-right, bottom-right, bottom-left in gate axes.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import cv2
import numpy as np

from vehicle.camera import Camera
from vehicle.rotation import Array

PERTURBED = 20  # corner sets behind a sampled covariance
GAUSS_NEWTON = 3  # steps; from the linear start two reach 1e-6 m at any range that is seen
# OpenCV's square has its own axes o: x right, y up, z towards the viewer. R_GO turns them into gate axes.
CORNERS_O = np.array([[-1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])  # of half-side 1
R_GO = np.array([[0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])


@dataclass(frozen=True, slots=True)
class GatePose:
    """A gate in camera axes. `alternatives` are the other solutions of the same corners, without covariance of their own."""

    p_cg: Array  # (3,) m
    R_cg: Array  # (3, 3)
    cov_p: Array  # (3, 3) m^2
    reprojection_px: float  # mean distance of the corners from their reprojection
    alternatives: tuple["GatePose", ...] = ()

    def nearest(self, R_cg: Array) -> "GatePose":
        """This pose or the alternative whose rotation is nearest to R_cg, with the covariance of this one."""
        best = max((self, *self.alternatives), key=lambda pose: float(np.trace(R_cg.T @ pose.R_cg)))
        return replace(best, cov_p=self.cov_p, alternatives=())


class Position(NamedTuple):
    """Cameras in world axes, located by corners whose world positions are known."""

    p_wc: Array  # (..., 3) m
    cov: Array  # (..., 3, 3) m^2
    reprojection_px: Array  # (...) mean distance of the corners from their reprojection


def gate_pose(
    corners_px: Array, sigma_px: float, opening_m: float, camera: Camera, rng: np.random.Generator
) -> GatePose | None:
    """The better of the two IPPE poses of a square opening, or None if the corners allow none.

    Args:
        corners_px: (4, 2) in gate order.
        sigma_px: standard deviation of one corner coordinate, px.
        opening_m: side of the square, m.
    """
    poses = both_poses(corners_px, opening_m, camera)
    if not poses:
        return None
    best = poses[0]
    noise_px = sigma_px * rng.standard_normal((PERTURBED, 4, 2))
    sampled = [[p for _, p in _ippe(corners_px + e, opening_m, camera)] for e in noise_px]
    p = np.array([min(s, key=lambda p: float(np.sum((p - best.p_cg) ** 2))) for s in sampled if s])
    if len(p) <= best.p_cg.size:  # too few to span three axes
        return None
    return replace(best, cov_p=np.cov(p.T), alternatives=tuple(poses[1:]))


def both_poses(corners_px: Array, opening_m: float, camera: Camera) -> list[GatePose]:
    """The IPPE poses of a square opening, the likelier first, without covariance; arguments as of `gate_pose`."""
    poses = [_pose(*solution, corners_px, opening_m, camera) for solution in _ippe(corners_px, opening_m, camera)]
    return sorted(poses, key=lambda pose: pose.reprojection_px)


def _ippe(corners_px: Array, opening_m: float, camera: Camera) -> list[tuple[Array, Array]]:
    """Rotation vector (3,) of OpenCV's square and centre p_cg (3,) of both solutions that lie ahead."""
    square_o = opening_m / 2 * CORNERS_O
    try:
        _, turns, centres, _ = cv2.solvePnPGeneric(square_o, corners_px, camera.K, None, flags=cv2.SOLVEPNP_IPPE_SQUARE)
    except cv2.error:
        return []
    solutions = [(turn.ravel(), centre.ravel()) for turn, centre in zip(turns, centres, strict=True)]
    reach = opening_m / np.sqrt(2)  # of a corner from the centre: beyond it all are ahead, however the gate is turned
    return [(turn, p_cg) for turn, p_cg in solutions if np.isfinite(turn).all() and p_cg[2] > reach]


def _pose(turn: Array, p_cg: Array, corners_px: Array, opening_m: float, camera: Camera) -> GatePose:
    """The pose of one solution, with its reprojection error and an empty covariance."""
    R_co = cv2.Rodrigues(turn)[0]
    corners_c = p_cg + opening_m / 2 * CORNERS_O @ R_co.T
    error_px = np.linalg.norm(camera.project(corners_c) - corners_px, axis=-1).mean()
    return GatePose(p_cg, R_co @ R_GO.T, np.zeros((3, 3)), float(error_px))


def rays(px: Array, camera: Camera) -> Array:
    """Unit directions (..., 3) in camera axes of pixels (..., 2)."""
    x = (px[..., 0] - camera.cx_px) / camera.fx_px
    y = (px[..., 1] - camera.cy_px) / camera.fy_px
    ray = np.stack([x, y, np.ones_like(x)], -1)
    return ray / np.linalg.norm(ray, axis=-1, keepdims=True)


def ray_fit(rays_w: Array, corners_w: Array, weight: Array) -> tuple[Array, Array]:
    """The point from which rays (..., 4, 3) pass closest to corners (..., 4, 3), and the rms distance; world axes, m.

    `weight` (..., 4) is 1 of a ray that counts and 0 of one that does not; without two that count there is no such point.
    Where a corner would lie behind the point the distance is infinite.
    """
    across = np.eye(3) - rays_w[..., :, None] * rays_w[..., None, :]  # (..., 4, 3, 3)
    across = across * weight[..., None, None]
    few = weight.sum(-1) < 2
    normal = across.sum(-3) + few[..., None, None] * np.eye(3)
    p_wc = np.linalg.solve(normal, (across @ corners_w[..., None]).sum(-3))[..., 0]
    sight = corners_w - p_wc[..., None, :]
    miss = np.sqrt(((across @ sight[..., None]) ** 2).sum((-1, -2, -3)) / np.maximum(weight.sum(-1), 1))
    ahead = (((sight * rays_w).sum(-1) > 0) | (weight == 0)).all(-1)
    return p_wc, np.where(ahead & ~few, miss, np.inf)


def locate(
    corners_px: Array,
    cov_px: Array,
    corners_w: Array,
    R_wc: Array,
    p_wc: Array,
    sigma_edge_px: Array,
    sigma_attitude_rad: float,
    camera: Camera,
) -> Position:
    """The camera's position of least weighted reprojection error for a known attitude, by Gauss-Newton from p_wc.

    Args:
        corners_px: (..., 4, 2) seen.
        cov_px: (..., 4, 2, 2) of each corner, px^2; long along the edge where only an edge was seen.
        corners_w: (..., 4, 3) their places in the world, m.
        R_wc: (3, 3) camera to world.
        p_wc: (..., 3) a start from which all corners lie ahead, m.
        sigma_edge_px: (...) standard deviation of an outward shift that all edges share, px: it shifts the range.
        sigma_attitude_rad: of R_wc, about each axis. Its share of the covariance grows with the range.
    """
    weight = np.linalg.inv(cov_px)  # (..., 4, 2, 2)

    def weighted(columns: Array) -> Array:
        """W times columns (..., 8, n)."""
        return (weight @ columns.reshape(*weight.shape[:-1], columns.shape[-1])).reshape(columns.shape)

    for _ in range(GAUSS_NEWTON):
        error, J_p, J_theta = _residual(corners_px, corners_w, R_wc, p_wc, camera)
        W_J = weighted(J_p)
        normal = np.swapaxes(J_p, -1, -2) @ W_J + 1e-9 * np.eye(3)
        gain = np.linalg.solve(normal, np.swapaxes(W_J, -1, -2))  # (..., 3, 8)
        p_wc = p_wc + (gain @ error[..., None])[..., 0]
    error = _residual(corners_px, corners_w, R_wc, p_wc, camera)[0]
    tilt = gain @ J_theta
    cov = np.linalg.inv(normal) + sigma_attitude_rad**2 * tilt @ np.swapaxes(tilt, -1, -2)
    outward = corners_px - corners_px.mean(-2, keepdims=True)
    outward = outward / (np.linalg.norm(outward, axis=-1, keepdims=True).mean(-2, keepdims=True) / np.sqrt(2))
    swell = gain @ outward.reshape(*error.shape, 1) * np.asarray(sigma_edge_px)[..., None, None]
    cov = cov + swell @ np.swapaxes(swell, -1, -2)
    error = error.reshape(*error.shape[:-1], 4, 2)
    # The part of an error that the covariance excuses is none: a corner's place along a lone edge is a guess.
    known = np.trace(weight, axis1=-2, axis2=-1)
    across = np.sqrt((error[..., None, :] @ weight @ error[..., None])[..., 0, 0] / known)
    seen = np.sqrt(2 / known) < np.sqrt(2) * np.sqrt(2 / known).min(-1, keepdims=True)
    return Position(p_wc, cov, (np.sqrt(2) * across * seen).sum(-1) / seen.sum(-1))


def _residual(
    corners_px: Array, corners_w: Array, R_wc: Array, p_wc: Array, camera: Camera
) -> tuple[Array, Array, Array]:
    """Seen minus projected corners (..., 8) px, and the projection's Jacobians (..., 8, 3) by p_wc and by a turn of the camera.

    The turn is a rotation vector in camera axes: R_wc -> R_wc exp(theta).
    """
    p_c = (corners_w - p_wc[..., None, :]) @ R_wc
    z = np.maximum(p_c[..., 2], 1e-3)  # m; a step beyond the gate must not divide by zero
    x, y, zero = p_c[..., 0] / z, p_c[..., 1] / z, np.zeros_like(z)
    fx, fy = camera.fx_px, camera.fy_px
    error = corners_px - np.stack([fx * x + camera.cx_px, fy * y + camera.cy_px], -1)
    by_p_c = np.stack([np.stack([fx / z, zero, -fx * x / z], -1), np.stack([zero, fy / z, -fy * y / z], -1)], -2)
    by_theta = np.stack(
        [np.stack([fx * x * y, -fx * (1 + x * x), fx * y], -1), np.stack([fy * (1 + y * y), -fy * x * y, -fy * x], -1)],
        -2,
    )
    flat = (*p_wc.shape[:-1], 8)
    return error.reshape(flat), (-by_p_c @ R_wc.T).reshape(*flat, 3), by_theta.reshape(*flat, 3)
