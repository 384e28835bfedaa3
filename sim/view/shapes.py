"""Vertices of simple bodies in world NED, float: what the worlds are built from.

A solid vertex is position (3, m), texture coordinate (2), layer, colour (3, RGB 0 to 1) and shine (0 lit, 1 luminous).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.view import texture
from vehicle.rotation import Array

Floats = NDArray[np.float32]

SOLID, LINE = 10, 6  # floats per vertex
LIGHT = ((0.75, 0.6), (0.9, 0.65), (1.0, 0.35))  # on the faces of a box towards -x, +x; -y, +y; up, down
SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def stack(parts: list[Array], width: int) -> Floats:
    """All vertices (n, width) in one array; none is fine."""
    return np.concatenate([np.empty((0, width)), *parts]).astype(np.float32)


def triangles(quads: Array) -> Array:
    """Two triangles for each quad: (n, 4, k) to (6 n, k)."""
    return quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, quads.shape[-1])


def surface(p_w: Array, uv: Array, layer: int, rgb: ArrayLike, shine: float = 0.0) -> Array:
    """Solid vertices (6 n, 10) of quads p_w (n, 4, 3), clockwise as seen, with uv (n, 4, 2) and one colour."""
    constant = np.broadcast_to([layer, *np.asarray(rgb, float), shine], (*p_w.shape[:2], 5))
    return triangles(np.concatenate([p_w, uv, constant], 2))


def both_sides(solid: Array) -> Array:
    """The same triangles seen from behind as well."""
    return np.concatenate([solid, solid.reshape(-1, 3, SOLID)[:, ::-1].reshape(-1, SOLID)])


def box(low: ArrayLike, high: ArrayLike, layer: int, grey: float, tile_m: float = 6.0) -> Array:
    """Solid vertices (36, 10) of an axis-aligned box, lit from above."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    size = high - low
    faces = []
    for axis in range(3):
        i, j = [k for k in range(3) if k != axis]
        for end in (0, 1):
            corners = np.tile(low, (4, 1))
            corners[:, axis] += end * size[axis]
            corners[[1, 2], i] += size[i]
            corners[[2, 3], j] += size[j]
            uv = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * np.maximum(np.round(size[[i, j]] / tile_m), 1)
            turned = (axis == 1) == (end == 1)  # which way round the corners run as seen from outside
            if axis < 2 and not turned:  # so that writing reads from left to right
                uv[:, 0] = uv[:, 0].max() - uv[:, 0]
            order = [0, 1, 2, 3] if turned else [0, 3, 2, 1]
            faces.append(surface(corners[None, order], uv[None, order], layer, np.full(3, grey * LIGHT[axis][end])))
    return np.concatenate(faces)


def patch(corners_w: ArrayLike, rgb: ArrayLike, shine: float = 0.0) -> Array:
    """Solid vertices (12, 10) of one plain quad (4, 3), seen from both sides."""
    return both_sides(surface(np.asarray(corners_w, float)[None], np.zeros((1, 4, 2)), texture.PLAIN, rgb, shine))


def disc(centre_w: Array, right_w: Array, up_w: Array, rgb: ArrayLike, shine: float = 1.0) -> Array:
    """Solid vertices of a disc of 16 corners, seen from both sides; right_w and up_w (3,) are its half-axes, m."""
    angle = np.linspace(0, 2 * np.pi, 17)
    rim = centre_w + np.cos(angle)[:, None] * right_w + np.sin(angle)[:, None] * up_w
    return np.concatenate(
        [patch([centre_w, a, (a + b) / 2, b], rgb, shine) for a, b in zip(rim, rim[1:], strict=False)]
    )


def lines(ends_w: ArrayLike, rgb: ArrayLike) -> Array:
    """Line vertices (n, 6) through points (n, 3), pair by pair."""
    p_w = np.asarray(ends_w, float).reshape(-1, 3)
    return np.hstack([p_w, np.broadcast_to(np.asarray(rgb, float), p_w.shape)])


def polyline(points_w: Array, rgb: ArrayLike) -> Array:
    """Line vertices through points (n, 3) one after the other."""
    return lines(np.stack([points_w[:-1], points_w[1:]], 1), rgb)
