"""Vertices of simple shapes in world NED, from which the scenes are built.

A solid vertex is position (3, m), texture coordinate (2), layer, colour (3, RGB 0 to 1) and shine (0 lit, 1 luminous).
"""

import itertools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gate_racer.sim.view import texture
from gate_racer.vehicle.rotation import Array

Floats = NDArray[np.float32]

SOLID, LINE = 10, 6  # floats per vertex
LIGHT = ((0.75, 0.6), (0.9, 0.65), (1.0, 0.35))  # brightness of a box's faces towards -x, +x; -y, +y; up, down
SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def stack(parts: list[Array], width: int) -> Floats:
    """Concatenate vertices to (n, width) float32; an empty list gives n = 0."""
    return np.concatenate([np.empty((0, width)), *parts]).astype(np.float32)


def triangles(quads: Array) -> Array:
    """Split quads (n, 4, k) into two triangles each, (6 n, k)."""
    return quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, quads.shape[-1])


def surface(p_w: Array, uv: Array, layer: int, rgb: ArrayLike, shine: float = 0.0) -> Array:
    """Return solid vertices (6 n, 10) of quads p_w (n, 4, 3), clockwise as seen, with uv (n, 4, 2) and one colour."""
    constant = np.broadcast_to([layer, *np.asarray(rgb, float), shine], (*p_w.shape[:2], 5))
    return triangles(np.concatenate([p_w, uv, constant], 2))


def both_sides(solid: Array) -> Array:
    """Add the reversed triangles, so that they are visible from behind as well."""
    return np.concatenate([solid, solid.reshape(-1, 3, SOLID)[:, ::-1].reshape(-1, SOLID)])


def _unit_box() -> Array:
    """Return the vertices (36, 8) of the unit box: corner (3), uv (2), the axes that uv run along (2), brightness."""
    faces = []
    for axis, end in itertools.product(range(3), (0, 1)):
        i, j = [k for k in range(3) if k != axis]
        corners = np.zeros((4, 3))
        corners[:, axis], corners[[1, 2], i], corners[[2, 3], j] = end, 1, 1
        uv = corners[:, [i, j]]
        turned = (axis == 1) == (end == 1)  # orientation of the corners as seen from outside
        if axis < 2 and not turned:  # so that writing reads from left to right
            uv[:, 0] = 1 - uv[:, 0]
        face = np.column_stack([corners, uv, np.tile([i, j, LIGHT[axis][end]], (4, 1))])
        faces.append(face if turned else face[[0, 3, 2, 1]])
    return triangles(np.array(faces))


UNIT_BOX = _unit_box()
CORNER, UV, UV_AXES, BRIGHTNESS = UNIT_BOX[:, :3], UNIT_BOX[:, 3:5], UNIT_BOX[:, 5:7].astype(int), UNIT_BOX[:, 7:]


def box(low: ArrayLike, high: ArrayLike, layer: int, grey: float, tile_m: float = 6.0) -> Array:
    """Return solid vertices (36, 10) of an axis-aligned box, lit from above."""
    low, size = np.asarray(low, float), np.subtract(high, low)
    tiles = np.maximum(np.round(size / tile_m), 1)
    solid = np.zeros((len(UNIT_BOX), SOLID))
    solid[:, :3] = low + CORNER * size
    solid[:, 3:5] = UV * tiles[UV_AXES]
    solid[:, 5], solid[:, 6:9] = layer, grey * BRIGHTNESS
    return solid


def patch(corners_w: ArrayLike, rgb: ArrayLike, shine: float = 0.0) -> Array:
    """Return solid vertices (12, 10) of one plain quad (4, 3), visible from both sides."""
    return both_sides(surface(np.asarray(corners_w, float)[None], np.zeros((1, 4, 2)), texture.PLAIN, rgb, shine))


def disc(centre_w: Array, right_w: Array, up_w: Array, rgb: ArrayLike, shine: float = 1.0) -> Array:
    """Return solid vertices of a disc with 16 corners, visible from both sides; right_w, up_w (3,) m: its half-axes."""
    angle = np.linspace(0, 2 * np.pi, 17)
    rim = centre_w + np.cos(angle)[:, None] * right_w + np.sin(angle)[:, None] * up_w
    return np.concatenate(
        [patch([centre_w, a, (a + b) / 2, b], rgb, shine) for a, b in zip(rim, rim[1:], strict=False)]
    )


def lines(ends_w: ArrayLike, rgb: ArrayLike) -> Array:
    """Return line vertices (n, 6) of segments between consecutive pairs of points (n, 3)."""
    p_w = np.asarray(ends_w, float).reshape(-1, 3)
    return np.hstack([p_w, np.broadcast_to(np.asarray(rgb, float), p_w.shape)])


def polyline(points_w: Array, rgb: ArrayLike) -> Array:
    """Return line vertices of the polyline through points (n, 3)."""
    return lines(np.stack([points_w[:-1], points_w[1:]], 1), rgb)
