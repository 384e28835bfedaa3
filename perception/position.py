"""Position of a camera of known attitude from corners with known world positions.

With errors of 0.4 px at the corners and 0.6 deg of attitude it is more accurate than IPPE by up to a fifth at 12 m and a third
at 30 m, and unambiguous. Linear triangulation (`ray_fit`) initialises Gauss-Newton on the weighted reprojection error.
"""

from typing import NamedTuple

import numpy as np

from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array

GAUSS_NEWTON = 3  # iterations; from the linear start two reach 1e-6 m at any visible range
LEAST_DEPTH_M = 1e-3  # m, least depth, against division by zero after a step beyond the gate


class PositionFix(NamedTuple):
    """Positions of cameras, world NED, by corners with known world positions."""

    p_wc: Array  # (..., 3) m
    cov: Array  # (..., 3, 3) m^2
    by_turn: Array  # (..., 3, 3) m/rad, derivative with respect to a rotation of the camera, about its own axes
    reprojection_px: Array  # (...) mean distance of the corners from their reprojection


def rays(px: Array, camera: Camera) -> Array:
    """Return unit directions (..., 3), camera RDF, of pixels (..., 2)."""
    x = (px[..., 0] - camera.cx_px) / camera.fx_px
    y = (px[..., 1] - camera.cy_px) / camera.fy_px
    ray = np.stack([x, y, np.ones_like(x)], -1)
    return np.asarray(ray / np.linalg.norm(ray, axis=-1, keepdims=True))


def ray_fit(rays_w: Array, corners_w: Array, weight: Array) -> tuple[Array, Array]:
    """Return the point from which rays (..., 4, 3) pass closest to corners (..., 4, 3), and the rms distance; world NED, m.

    `weight` (..., 4) is 1 for a ray to use and 0 for one to ignore. With fewer than two rays, or with a corner behind the
    point, the distance is infinite.
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


def locate_camera(
    corners_px: Array,
    cov_px: Array,
    corners_w: Array,
    R_wc: Array,
    p_wc: Array,
    sigma_edge_offset_px: Array,
    sigma_attitude_rad: float,
    camera: Camera,
    information: Array | None = None,
) -> PositionFix:
    """Return the camera position of least weighted reprojection error for a known attitude, by Gauss-Newton from p_wc.

    Args:
        corners_px: (..., 4 S, 2) measured, of S squares one after the other.
        cov_px: (..., 4 S, 2, 2) of each corner, px^2; elongated along the edge where only one edge was measured.
        corners_w: (..., 4 S, 3) their positions, world NED, m.
        R_wc: (3, 3) camera to world.
        p_wc: (..., 3) initial position from which all corners lie ahead, m.
        sigma_edge_offset_px: (...) standard deviation of an outward shift common to all edges of a square, px; shifts the range.
        sigma_attitude_rad: standard deviation of R_wc about each axis. Its part of the covariance grows with the range.
        information: (..., 3, 3) of the initial position, 1/m^2. It regularises the iterations only: a last step without it
            keeps the initial position out of the result, for a filter that holds it as its prior.
    """
    weight = np.linalg.inv(cov_px)  # (..., 4 S, 2, 2)

    def weighted(columns: Array) -> Array:
        """Multiply columns (..., 8 S, n) by W."""
        return (weight @ columns.reshape(*weight.shape[:-1], columns.shape[-1])).reshape(columns.shape)

    start, prior = p_wc, np.zeros((3, 3)) if information is None else information
    for _ in range(GAUSS_NEWTON):
        error, J_p, J_theta = residual(corners_px, corners_w, R_wc, p_wc, camera)
        W_J = weighted(J_p)
        normal = np.swapaxes(J_p, -1, -2) @ W_J
        most = np.trace(normal, axis1=-2, axis2=-1)[..., None, None]
        normal = normal + (1e-9 + 1e-12 * most) * np.eye(3)  # singular where a step ends among the corners
        pull = np.swapaxes(W_J, -1, -2) @ error[..., None] + prior @ (start - p_wc)[..., None]
        p_wc = p_wc + np.linalg.solve(normal + prior, pull)[..., 0]
    error = residual(corners_px, corners_w, R_wc, p_wc, camera)[0]
    gain = np.linalg.solve(normal, np.swapaxes(W_J, -1, -2))  # (..., 3, 8 S)
    p_wc = p_wc + (gain @ error[..., None])[..., 0]
    by_turn = gain @ J_theta
    cov = np.linalg.inv(normal) + sigma_attitude_rad**2 * by_turn @ np.swapaxes(by_turn, -1, -2)
    squares = corners_px.reshape(*corners_px.shape[:-2], corners_px.shape[-2] // 4, 4, 2)
    outward = squares - squares.mean(-2, keepdims=True)
    outward = outward / (np.linalg.norm(outward, axis=-1, keepdims=True).mean(-2, keepdims=True) / np.sqrt(2))
    for k in range(squares.shape[-3]):
        alone = (np.arange(squares.shape[-3]) == k)[:, None, None]
        offset = gain @ (alone * outward).reshape(*error.shape, 1) * np.asarray(sigma_edge_offset_px)[..., None, None]
        cov = cov + offset @ np.swapaxes(offset, -1, -2)
    error = error.reshape(corners_px.shape)
    # Weighted by the covariance: a corner's position along a single edge is a guess, and no error.
    known = np.trace(weight, axis1=-2, axis2=-1)
    across = np.sqrt((error[..., None, :] @ weight @ error[..., None])[..., 0, 0] / known)
    seen = np.sqrt(2 / known) < np.sqrt(2) * np.sqrt(2 / known).min(-1, keepdims=True)
    return PositionFix(p_wc, cov, by_turn, (np.sqrt(2) * across * seen).sum(-1) / seen.sum(-1))


def residual(
    corners_px: Array, corners_w: Array, R_wc: Array, p_wc: Array, camera: Camera
) -> tuple[Array, Array, Array]:
    """Return the reprojection residual (..., 2 n) px, measured minus projected, and Jacobians (..., 2 n, 3) by p_wc and rotation.

    The rotation theta is a vector in camera axes: R_wc -> R_wc exp(theta).
    """
    p_c = (corners_w - p_wc[..., None, :]) @ R_wc
    z = np.maximum(p_c[..., 2:], LEAST_DEPTH_M)
    focal, xy = np.array([[camera.fx_px], [camera.fy_px]]), p_c[..., :2] / z
    x, y, product = xy[..., 0], xy[..., 1], xy[..., 0] * xy[..., 1]
    error = corners_px - (focal[:, 0] * xy + [camera.cx_px, camera.cy_px])
    by_p_c = np.zeros((*xy.shape, 3))  # z d(x, y)/dp_c = (1, 0, -x), (0, 1, -y)
    by_p_c[..., 0, 0] = by_p_c[..., 1, 1] = 1.0
    by_p_c[..., 2] = -xy
    by_theta = np.empty_like(by_p_c)  # their cross products with (x, y, 1)
    by_theta[..., 0, 0], by_theta[..., 0, 1], by_theta[..., 0, 2] = product, -1 - x * x, y
    by_theta[..., 1, 0], by_theta[..., 1, 1], by_theta[..., 1, 2] = 1 + y * y, -product, -x
    flat = (*p_wc.shape[:-1], 2 * corners_px.shape[-2])
    by_p = (-focal / z[..., None] * by_p_c) @ R_wc.T
    return error.reshape(flat), by_p.reshape(*flat, 3), (focal * by_theta).reshape(*flat, 3)
