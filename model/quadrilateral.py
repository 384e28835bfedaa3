"""Projections of squares: homographies, concentric squares, sides, lines, the covariance of corners at their intersections, and
the frames of gates about openings.

Quadrilaterals (..., 4, 2) px run clockwise as seen (u right, v down); side k runs from corner k to the next, so the outward
normal of a side (du, dv) is (dv, -du). Compiled, as each image needs some hundred of them in small batches.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from gate_racer.common.compiled import Image, compiled
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Mask

PREVIOUS, NEXT, OPPOSITE = [3, 0, 1, 2], [1, 2, 3, 0], [2, 3, 0, 1]  # indices relative to a corner or side


def square_homography(quads: Array) -> tuple[Array, Array, Array, Array]:
    """Return the homographies (u, v) -> (p + u a + v b) / (1 + g u + h v) from the unit square to quads (..., 4, 2).

    Heckbert, "Fundamentals of texture mapping and image warping" (1989), section 2.2.3.

    Returns:
        p, a, b (..., 2), and g with h (..., 2).
    """
    maps = _homographies(np.reshape(quads, (-1, 4, 2)))
    p, a, b, gh = np.moveaxis(maps.reshape(*np.shape(quads)[:-2], 4, 2), -2, 0)
    return p, a, b, gh


def enlarged(quads: Array, scale: float) -> Array:
    """Return projections (Q, 4, 2) of squares concentric with those of quads (Q, 4, 2), `scale` times as large."""
    return concentric(quads, np.array([scale]))[:, 0]


def outward_normals(start: Array, end: Array) -> Array:
    """Return outward unit normals (..., 2) of sides from start to end (..., 2) of clockwise quadrilaterals."""
    along = end - start
    length = np.maximum(np.sqrt((along * along).sum(-1)), 1e-9)
    return np.asarray(np.stack([along[..., 1], -along[..., 0]], -1) / length[..., None])


def side_lengths(quads: Array) -> Array:
    """Return the lengths (..., 4) of the sides of quads (..., 4, 2)."""
    return np.asarray(np.linalg.norm(quads[..., NEXT, :] - quads, axis=-1))


def area_px2(quads: Array) -> Array:
    """Return the areas (...), px^2, of quads (..., 4, 2), by their diagonals."""
    a, b = quads[..., 2, :] - quads[..., 0, :], quads[..., 3, :] - quads[..., 1, :]
    return np.asarray(np.abs(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]) / 2)


def is_convex(quads: Array) -> Mask:
    """Check which quads (..., 4, 2) are convex and clockwise."""
    along = quads[..., NEXT, :] - quads
    after = along[..., NEXT, :]
    return np.asarray((along[..., 0] * after[..., 1] - along[..., 1] * after[..., 0] > 0).all(-1))


def first_corner(quad: Array) -> int:
    """Return the index of the corner of a quad (4, 2) nearest to the image's top left, the first in order."""
    return int(quad.sum(-1).argmin())


def turned_like(quad: Array, other: Array) -> Array:
    """Return the corners of a quad (4, 2) from the first one on that lies nearest to those of another (4, 2), in order."""
    return min((np.roll(quad, turn, 0) for turn in range(4)), key=lambda turned: float(np.abs(turned - other).sum()))


def overlap(a: Array, b: Array) -> float:
    """Return the intersection over union of two convex quadrilaterals (4, 2)."""
    p, q = a.astype(np.float32), b.astype(np.float32)
    common, _ = cv2.intersectConvexConvex(p, q)
    return float(common / max(cv2.contourArea(p) + cv2.contourArea(q) - common, 1e-9))


def is_inside(px: Array, image: Image, border_px: float | Array) -> Mask:
    """Check which points (..., 2) are at least border_px from the borders of an image (H, W) or (H, W, 3)."""
    limit = np.array([image.shape[1], image.shape[0]]) - 1 - border_px
    return np.asarray(((px >= border_px) & (px <= limit)).all(-1))


@compiled("f8[:,:,:](f8[:,:,:])")
def _homographies(quads: Array) -> Array:
    maps = np.empty((len(quads), 4, 2))
    for q in range(len(quads)):
        p0, p1, p2, p3 = quads[q]
        d1, d2, s = p1 - p2, p3 - p2, p0 - p1 + p2 - p3
        det = d1[0] * d2[1] - d2[0] * d1[1]
        if abs(det) < 1e-12:
            det = 1e-12
        g, h = (s[0] * d2[1] - d2[0] * s[1]) / det, (d1[0] * s[1] - s[0] * d1[1]) / det
        maps[q, 0] = p0
        maps[q, 1] = p1 - p0 + g * p1
        maps[q, 2] = p3 - p0 + h * p3
        maps[q, 3, 0], maps[q, 3, 1] = g, h
    return maps


@compiled("f8[:,:,:,:](f8[:,:,:], f8[:])")
def concentric(quads: Array, scales: Array) -> Array:
    """Return projections (Q, S, 4, 2) of squares concentric with those of quads (Q, 4, 2), `scales` (S,) times as large."""
    px, maps = np.empty((len(quads), len(scales), 4, 2)), _homographies(quads)
    for q in range(len(quads)):
        p, a, b, gh = maps[q]
        for s in range(len(scales)):
            for k in range(4):
                u = 0.5 + (0.5 if k == 1 or k == 2 else -0.5) * scales[s]
                v = 0.5 + (0.5 if k > 1 else -0.5) * scales[s]
                w = 1 + gh[0] * u + gh[1] * v
                if abs(w) < 1e-6:
                    w = 1e-6
                px[q, s, k] = (p + u * a + v * b) / w
    return px


@compiled("f8[:,:](f8[:,:,:], f8, f8, f8, f8)")
def rod_extent_px(quads: Array, fx: float, fy: float, cx: float, cy: float) -> Array:
    """Return the extent (Q, 4) px, across each side of quads (Q, 4, 2), of a rod normal to the square and as long as its side.

    A square with the axes r1, r2 and the normal n, at z along the ray (x, 1), has the sides A = (f/z) [I | -x] [r1 r2], and
    its rod is m = (f/z) [I | -x] n. Since r1, r2 and n are orthonormal, m m' = (f/z)^2 (I + x x') - A A', where (f/z)^2
    makes the determinant zero. The focal lengths f and the centre c are in px.
    """
    extent, maps = np.empty((len(quads), 4)), _homographies((quads - np.array([cx, cy])) / np.array([fx, fy]))
    for q in range(len(quads)):
        p, a, b, gh = maps[q]
        w = 1 + (gh[0] + gh[1]) / 2
        x = (p + (a + b) / 2) / w
        a, b = (a - gh[0] * x) / w, (b - gh[1] * x) / w
        a00, a01, a11 = a[0] ** 2 + b[0] ** 2, a[0] * a[1] + b[0] * b[1], a[1] ** 2 + b[1] ** 2
        g00, g01, g11 = 1 + x[0] ** 2, x[0] * x[1], 1 + x[1] ** 2
        det = g00 * g11 - g01**2
        half = (a00 * g11 + a11 * g00 - 2 * a01 * g01) / det / 2
        square = half + np.sqrt(max(half**2 - (a00 * a11 - a01**2) / det, 0.0))  # (f/z)^2, in units of the focal length
        for k in range(4):
            along = quads[q, (k + 1) % 4] - quads[q, k]
            length = max(np.hypot(along[0], along[1]), 1e-9)
            u, v = along[1] / length * fx, -along[0] / length * fy
            rod = u * u * (square * g00 - a00) + 2 * u * v * (square * g01 - a01) + v * v * (square * g11 - a11)
            extent[q, k] = np.sqrt(max(rod, 0.0))
    return extent


@compiled("f8[:,:,:](f8[:,:,:], f8[:,:,:])")
def intersect_lines(point: Array, direction: Array) -> Array:
    """Return the corners (Q, 4, 2) where line k - 1 meets line k, from points (Q, 4, 2) on the lines and their directions."""
    px = np.empty_like(point)
    for q in range(len(point)):
        for k in range(4):
            p, u, d = point[q, k - 1], direction[q, k - 1], direction[q, k]
            cross = u[0] * d[1] - u[1] * d[0]
            if abs(cross) < 1e-9:
                px[q, k] = point[q, k]
            else:
                gap = point[q, k] - p
                px[q, k] = p + (gap[0] * d[1] - gap[1] * d[0]) / cross * u
    return px


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


# Proportions of the gates drawn by the real simulator, over the side of the opening: boxes fitted to about 50 gates in public
# frames of AI Grand Prix builds 3364 to 3391.
DEPTH_RATIO = 0.16 / 1.5  # between the faces; the telemetry's 0.26 m fits clearly worse
OUTLINE_WIDTH_RATIO = 0.02 / 1.5  # of the orange line that straddles the nominal edges of both faces
HOLE_RATIO = 1 - OUTLINE_WIDTH_RATIO  # inner flank of a face's outline over its nominal opening
# Silhouette over hole, relative to the nominal frame over opening: the outline, 2 cm wide, straddles the nominal edges and
# leaves 1.48 m of 1.50 m; the depth of the frame adds a little.
OUTLINE_RATIO = 1.037
SILHOUETTE_RATIO = 2.72 / 1.5 * OUTLINE_RATIO  # silhouette over hole of the frames that telemetry gives


@dataclass(frozen=True, slots=True)
class GateModel:
    """Model of gates of one proportion in the part of a camera's image that begins at origin_px (2,)."""

    camera: Camera
    origin_px: Array  # (2,) position of the part's first pixel in the camera's image
    ratio: float  # silhouette over hole

    def depth_extent_px(self, openings: Array) -> Array:
        """Return the extent (Q, 4) px of the gates' depth across each side of obliquely seen openings (Q, 4, 2)."""
        cx_px, cy_px = self.camera.cx_px - self.origin_px[0], self.camera.cy_px - self.origin_px[1]
        return DEPTH_RATIO * rod_extent_px(openings, self.camera.fx_px, self.camera.fy_px, cx_px, cy_px)

    def silhouettes(self, openings: Array, depth_extent_px: Array) -> Array:
        """Return silhouettes (Q, 4, 2) of the frames about openings (Q, 4, 2).

        An opening is bounded by the near and the far face, so its sides lie inward by half of the depth's extent (Q, 4), and the
        silhouette's outward.
        """
        square = enlarged(openings, self.ratio)
        end = square[:, NEXT]
        out_px = (1 + self.ratio) / 2 * depth_extent_px
        return intersect_lines(square + out_px[..., None] * outward_normals(square, end), end - square)

    def frame_width_px(self, openings: Array) -> Array:
        """Return the greatest apparent widths (Q, 1) px of the frames about openings (Q, 4, 2)."""
        return np.asarray((self.ratio - 1) / 2 * side_lengths(openings).max(-1, keepdims=True))
