"""Pictures of squares: the map onto a quadrilateral, larger and smaller squares about its centre, the depth of a gate.

Quadrilaterals run clockwise as seen (u right, v down); side k runs from corner k to the next. Compiled: a picture asks for
some hundred of them in small batches.
"""

import numpy as np
from numba import njit

from vehicle.camera import Camera
from vehicle.rotation import Array

BEFORE, AFTER = [3, 0, 1, 2], [1, 2, 3, 0]  # neighbours of a corner or side
OPPOSITE = [2, 3, 0, 1]
DEPTH = 0.16 / 1.5  # of the AI Grand Prix's gates as drawn, over their opening


def unit_square(quads: Array) -> tuple[Array, Array, Array, Array]:
    """The maps (u, v) -> (p + u a + v b) / (1 + g u + h v) of the unit square onto quads (..., 4, 2).

    Heckbert, "Fundamentals of texture mapping and image warping" (1989), section 2.2.3.

    Returns:
        p, a, b (..., 2), and g with h (..., 2).
    """
    found = _unit_squares(np.reshape(quads, (-1, 4, 2)))
    p, a, b, gh = np.moveaxis(found.reshape(*np.shape(quads)[:-2], 4, 2), -2, 0)
    return p, a, b, gh


@njit("f8[:,:,:](f8[:,:,:])", cache=True)
def _unit_squares(quads: Array) -> Array:
    found = np.empty((len(quads), 4, 2))
    for q in range(len(quads)):
        p0, p1, p2, p3 = quads[q]
        d1, d2, s = p1 - p2, p3 - p2, p0 - p1 + p2 - p3
        det = d1[0] * d2[1] - d2[0] * d1[1]
        if abs(det) < 1e-12:
            det = 1e-12
        g, h = (s[0] * d2[1] - d2[0] * s[1]) / det, (d1[0] * s[1] - s[0] * d1[1]) / det
        found[q, 0] = p0
        found[q, 1] = p1 - p0 + g * p1
        found[q, 2] = p3 - p0 + h * p3
        found[q, 3, 0], found[q, 3, 1] = g, h
    return found


def scaled(quads: Array, scale: float | Array) -> Array:
    """The quads (Q, 4, 2) as pictures of a square, and those of concentric squares `scale` times as large.

    Returns:
        (Q, 4, 2) for one scale, (Q, S, 4, 2) for S of them.
    """
    px = _scaled(np.asarray(quads, float), np.atleast_1d(np.asarray(scale, float)))
    return px if np.ndim(scale) else px[:, 0]


@njit("f8[:,:,:,:](f8[:,:,:], f8[:])", cache=True)
def _scaled(quads: Array, scale: Array) -> Array:
    px, maps = np.empty((len(quads), len(scale), 4, 2)), _unit_squares(quads)
    for q in range(len(quads)):
        p, a, b, gh = maps[q]
        for s in range(len(scale)):
            for k in range(4):
                u = 0.5 + (0.5 if k == 1 or k == 2 else -0.5) * scale[s]
                v = 0.5 + (0.5 if k > 1 else -0.5) * scale[s]
                w = 1 + gh[0] * u + gh[1] * v
                if abs(w) < 1e-6:
                    w = 1e-6
                px[q, s, k] = (p + u * a + v * b) / w
    return px


def leans(quads: Array, camera: Camera, origin_px: Array) -> Array:
    """How far (Q, 4) px a gate's depth reaches across each side of openings (Q, 4, 2) seen at a slant.

    A square with the axes r1, r2 and the normal n, at z along the ray (x, 1), has the sides A = (f/z) [I | -x] [r1 r2], and a
    rod as long, upright on it, is m = (f/z) [I | -x] n. Since r1, r2 and n are orthonormal, m m' = (f/z)^2 (I + x x') - A A',
    where (f/z)^2 makes the determinant zero.

    Args:
        origin_px: (2,) where in the camera's picture that begins in which the quads are.
    """
    centre = camera.cx_px - origin_px[0], camera.cy_px - origin_px[1]
    return DEPTH * _rods(quads, camera.fx_px, camera.fy_px, *centre)


@njit("f8[:,:](f8[:,:,:], f8, f8, f8, f8)", cache=True)
def _rods(quads: Array, fx: float, fy: float, cx: float, cy: float) -> Array:
    reach, maps = np.empty((len(quads), 4)), _unit_squares((quads - np.array([cx, cy])) / np.array([fx, fy]))
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
            reach[q, k] = np.sqrt(max(rod, 0.0))
    return reach


def silhouettes(quads: Array, outer: float, lean_px: Array) -> Array:
    """What frames `outer` times as large as their openings (Q, 4, 2), deep as lean_px (Q, 4) says, cover: (Q, 4, 2).

    An opening is seen between the near and the far face, so that its sides stand in by half of that, and the silhouette's out.
    """
    square = scaled(quads, outer)
    end = square[:, AFTER]
    return meet(square + (1 + outer) / 2 * lean_px[..., None] * normals(square, end), end - square)


def normals(a: Array, b: Array) -> Array:
    """Unit normals (..., 2) of sides from a to b (..., 2), outward of what runs clockwise."""
    along = b - a
    length = np.maximum(np.sqrt((along * along).sum(-1)), 1e-9)
    return np.stack([along[..., 1], -along[..., 0]], -1) / length[..., None]


@njit("f8[:,:,:](f8[:,:,:], f8[:,:,:])", cache=True)
def meet(point: Array, direction: Array) -> Array:
    """Where line k - 1 meets line k: points (Q, 4, 2) on and directions of the four lines."""
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
