"""Openings cut by the image border: their remaining sides, and the others guessed as those of a square."""

from math import dist

import cv2
import numpy as np

from gate_racer.perception.classical.config import ProposalConfig
from gate_racer.perception.common.quadrilateral import intersect_lines
from gate_racer.perception.common.types import Image
from gate_racer.vehicle.rotation import Array, Indices


def cut_quadrilateral(contour: Image, width: int, height: int, config: ProposalConfig) -> Array | None:
    """Return a quadrilateral (4, 2) on the sides of a hole that are not cut by the border; None if fewer than two remain.

    Missing sides are guessed as for a square seen frontally.
    """
    polygon = _polygon(contour, width, height, config)
    if polygon is None:
        return None
    after = np.arange(1, len(polygon) + 1) % len(polygon)
    near = np.abs(np.hstack([polygon, polygon - [width - 1, height - 1]])) < config.border_px  # (P, 4 borders)
    free = np.flatnonzero(~(near & near[after]).any(-1))
    if not 2 <= len(free) <= 4:
        return None
    free = _from_widest_gap(free, len(polygon))
    a, b = polygon[free], polygon[after][free]
    if len(free) == 4:
        return np.asarray(intersect_lines(a[None], (b - a)[None])[0])
    if len(free) == 3:
        return _on_three_sides(a, b)
    return _on_two_sides(a, b)


def _polygon(contour: Image, width: int, height: int, config: ProposalConfig) -> Array | None:
    """Return the clockwise polygon (P, 2) around a hole; None if it fills the image or the hole is too ragged."""
    hull = cv2.convexHull(contour, clockwise=True)
    hull_px = cv2.contourArea(hull)
    if len(hull) < 4 or hull_px > config.image_share_max * width * height:
        return None
    if cv2.contourArea(contour) < config.filled_min * hull_px:
        return None
    bend_px = config.bend * cv2.arcLength(hull, True)
    polygon: Array = cv2.approxPolyDP(hull, bend_px, True).reshape(-1, 2).astype(float)
    return polygon[::-1] if cv2.contourArea(polygon.astype(np.float32), oriented=True) < 0 else polygon


def _from_widest_gap(free: Indices, sides: int) -> Indices:
    """Return the indices of a polygon's free sides in order, beginning after the widest gap."""
    follows = np.append(free[1:], free[0] + sides) - free
    return np.asarray(free[(follows.argmax() + 1 + np.arange(len(free))) % len(free)])


def _on_three_sides(a: Array, b: Array) -> Array:
    """Return a quad (4, 2) on three consecutive sides from a to b (3, 2)."""
    left, right = (b[0] + a[1]) / 2, (b[1] + a[2]) / 2
    side = dist(left, right)
    return np.array([_reach(left, a[0], side), left, right, _reach(right, b[2], side)])


def _on_two_sides(a: Array, b: Array) -> Array:
    """Return a quad (4, 2) on two sides from a to b (2, 2): a parallelogram if they meet, else the quad between them."""
    length = np.hypot(*(b - a).T)
    if (b[0] == a[1]).all():
        one, other = (_reach(a[1], end, float(length.max())) for end in (a[0], b[1]))
        return np.array([one, a[1], other, one + other - a[1]])
    middle = (a + b) / 2
    half = np.maximum(length, dist(*middle)) / 2
    along = (b - a) / length[:, None] * half[:, None]
    return np.array([middle[0] - along[0], middle[0] + along[0], middle[1] - along[1], middle[1] + along[1]])


def _reach(p: Array, toward: Array, length: float) -> Array:
    """Return the point at distance `length` from p (2,) through `toward` (2,), not nearer than that."""
    return p + (toward - p) * max(1.0, length / max(dist(p, toward), 1.0))
