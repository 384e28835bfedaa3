"""Where a square opening stands, from its four corners: by IPPE, or by triangulation where the attitude is known.

IPPE: Collins and Bartoli, "Infinitesimal Plane-based Pose Estimation" (2014). A small square leaves its tilt in doubt: two
poses explain it almost equally well. Covariance from 20 perturbed corner sets: Swift (Nature 2023), methods.
Corners run top-left, top-right, bottom-right, bottom-left in gate axes.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from perception.squares import unit_square
from vehicle.camera import Camera
from vehicle.rotation import Array

PERTURBED = 20  # corner sets behind a sampled covariance
GAUSS_NEWTON = 3  # steps; from the linear start two reach 1e-6 m at any range that is seen
CORNERS = np.array(
    [[0.0, -1.0, -1.0], [0.0, 1.0, -1.0], [0.0, 1.0, 1.0], [0.0, -1.0, 1.0]]
)  # gate axes, of half-side 1


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
    # The perturbations are made to have exactly the covariance that they stand for: then 20 are enough.
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
    if len(p) <= best.p_cg.size:  # too few to span three axes
        return None
    # About the estimate, not about the mean of the sets: what the perturbations shift it by on average is error as well.
    return replace(best, cov_p=(p - best.p_cg).T @ (p - best.p_cg) / (len(p) - 1), alternatives=tuple(others))


def both_poses(corners_px: Array, opening_m: float, camera: Camera) -> list[GatePose]:
    """The IPPE poses of a square opening, the likelier first, without covariance; arguments as of `gate_pose`."""
    return _likely(*ippe(corners_px, opening_m, camera), corners_px, opening_m, camera)


def _likely(R_cg: Array, p_cg: Array, corners_px: Array, opening_m: float, camera: Camera) -> list[GatePose]:
    """Those of both solutions (2, 3, 3), (2, 3) that lie ahead, the likelier first."""
    with np.errstate(all="ignore"):  # of those that do not
        corners_c = p_cg[:, None] + opening_m / 2 * CORNERS @ np.swapaxes(R_cg, -1, -2)
        error_px = np.linalg.norm(camera.project(corners_c) - corners_px, axis=-1).mean(-1)
    ahead = _ahead(R_cg, p_cg, opening_m)
    poses = [GatePose(p_cg[k], R_cg[k], np.zeros((3, 3)), float(error_px[k])) for k in (0, 1) if ahead[k]]
    return sorted(poses, key=lambda pose: pose.reprojection_px)


def _ahead(R_cg: Array, p_cg: Array, opening_m: float) -> np.ndarray:
    """Whether all corners of gates (..., 3, 3), (..., 3) lie ahead, however they are turned; nonsense does not."""
    reach = opening_m / np.sqrt(2)  # of a corner from the centre
    return np.isfinite(p_cg).all(-1) & np.isfinite(R_cg).all((-2, -1)) & (p_cg[..., 2] > reach)


@np.errstate(all="ignore")
def ippe(corners_px: Array, opening_m: float, camera: Camera) -> tuple[Array, Array]:
    """Both poses of squares, from the derivative of each homography at its centre: R_cg (..., 2, 3, 3), p_cg (..., 2, 3).

    Args:
        corners_px: (..., 4, 2) in gate order; nonsense gives nonsense or NaN.
    """
    x = (corners_px - [camera.cx_px, camera.cy_px]) / [camera.fx_px, camera.fy_px]
    p, a, b, gh = unit_square(x)
    w = 1 + gh.sum(-1, keepdims=True) / 2
    centre = (p + (a + b) / 2) / w
    J = np.stack([a - centre * gh[..., :1], b - centre * gh[..., 1:]], -1) / (w * opening_m)[..., None]
    # Turn the camera onto the centre; what is left of J is a shrunk 2 x 2 block of a rotation.
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
    y, z = np.moveaxis(R_v[..., None, :, :] @ block, -1, 0)  # (..., 2, 3): the gate's axes in the picture plane
    R_cg = np.stack([np.cross(y, z), y, z], -1)
    # The centre that fits best in the least squares of u z - x and v z - y.
    arm = opening_m / 2 * CORNERS @ np.swapaxes(R_cg, -1, -2)  # (..., 2, 4, 3)
    u = x[..., None, :, :]
    rows = np.stack([np.stack([np.ones_like(u[..., 0]), np.zeros_like(u[..., 0]), -u[..., 0]], -1),
                     np.stack([np.zeros_like(u[..., 0]), np.ones_like(u[..., 0]), -u[..., 1]], -1)], -2)  # fmt: skip
    right = u * arm[..., 2:] - arm[..., :2]  # (..., 2, 4, 2)
    normal = np.einsum("...nij,...nik->...jk", rows, rows)
    return R_cg, np.linalg.solve(normal + 1e-12 * np.eye(3), np.einsum("...nij,...ni->...j", rows, right)[..., None])[
        ..., 0
    ]


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
    information: Array | None = None,
) -> Position:
    """The camera's position of least weighted reprojection error for a known attitude, by Gauss-Newton from p_wc.

    Args:
        corners_px: (..., 4 S, 2) seen, of S squares one after the other.
        cov_px: (..., 4 S, 2, 2) of each corner, px^2; long along the edge where only an edge was seen.
        corners_w: (..., 4 S, 3) their places in the world, m.
        R_wc: (3, 3) camera to world.
        p_wc: (..., 3) a start from which all corners lie ahead, m.
        sigma_edge_px: (...) standard deviation of an outward shift that all edges of a square share, px: it shifts the range.
        sigma_attitude_rad: of R_wc, about each axis. Its share of the covariance grows with the range.
        information: (..., 3, 3) of the start, 1/m^2. It only decides where the corners are taken for linear: one last step
            without it keeps the start out of the result, as a filter needs that knows the start already.
    """
    weight = np.linalg.inv(cov_px)  # (..., 4 S, 2, 2)

    def weighted(columns: Array) -> Array:
        """W times columns (..., 8 S, n)."""
        return (weight @ columns.reshape(*weight.shape[:-1], columns.shape[-1])).reshape(columns.shape)

    start, prior = p_wc, np.zeros((3, 3)) if information is None else information
    for _ in range(GAUSS_NEWTON):
        error, J_p, J_theta = _residual(corners_px, corners_w, R_wc, p_wc, camera)
        W_J = weighted(J_p)
        normal = np.swapaxes(J_p, -1, -2) @ W_J
        most = np.trace(normal, axis1=-2, axis2=-1)[..., None, None]
        normal = normal + (1e-9 + 1e-12 * most) * np.eye(3)  # where a step ended among corners it would be singular
        pull = np.swapaxes(W_J, -1, -2) @ error[..., None] + prior @ (start - p_wc)[..., None]
        p_wc = p_wc + np.linalg.solve(normal + prior, pull)[..., 0]
    error = _residual(corners_px, corners_w, R_wc, p_wc, camera)[0]
    gain = np.linalg.solve(normal, np.swapaxes(W_J, -1, -2))  # (..., 3, 8 S)
    p_wc = p_wc + (gain @ error[..., None])[..., 0]
    tilt = gain @ J_theta
    cov = np.linalg.inv(normal) + sigma_attitude_rad**2 * tilt @ np.swapaxes(tilt, -1, -2)
    squares = corners_px.reshape(*corners_px.shape[:-2], corners_px.shape[-2] // 4, 4, 2)
    outward = squares - squares.mean(-2, keepdims=True)
    outward = outward / (np.linalg.norm(outward, axis=-1, keepdims=True).mean(-2, keepdims=True) / np.sqrt(2))
    for k in range(squares.shape[-3]):
        alone = (np.arange(squares.shape[-3]) == k)[:, None, None]
        swell = gain @ (alone * outward).reshape(*error.shape, 1) * np.asarray(sigma_edge_px)[..., None, None]
        cov = cov + swell @ np.swapaxes(swell, -1, -2)
    error = error.reshape(corners_px.shape)
    # The part of an error that the covariance excuses is none: a corner's place along a lone edge is a guess.
    known = np.trace(weight, axis1=-2, axis2=-1)
    across = np.sqrt((error[..., None, :] @ weight @ error[..., None])[..., 0, 0] / known)
    seen = np.sqrt(2 / known) < np.sqrt(2) * np.sqrt(2 / known).min(-1, keepdims=True)
    return Position(p_wc, cov, (np.sqrt(2) * across * seen).sum(-1) / seen.sum(-1))


def _residual(
    corners_px: Array, corners_w: Array, R_wc: Array, p_wc: Array, camera: Camera
) -> tuple[Array, Array, Array]:
    """Seen minus projected corners (..., 2 n) px, and the projection's Jacobians (..., 2 n, 3) by p_wc and a turn of the camera.

    The turn is a rotation vector in camera axes: R_wc -> R_wc exp(theta).
    """
    p_c = (corners_w - p_wc[..., None, :]) @ R_wc
    z = np.maximum(p_c[..., 2:], 1e-3)  # m; a step beyond the gate must not divide by zero
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
