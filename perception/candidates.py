"""Where openings may be: quadrilaterals around the dark holes of a bright mask, and within its bright blobs.

A hole gives the opening itself; what covers a part of it, a gate behind or the corridor of light, spoils the hole but seldom
the frame's silhouette around it, which a square of known proportion stands in. A hole cut by the edge of the picture gives
the sides that are left. Quadrilaterals run clockwise as seen (u right, v down).
"""

from math import dist

import cv2
import numpy as np

from perception.squares import AFTER, meet, scaled
from vehicle.rotation import Array

# Silhouette over hole, over the frame's side over the opening's: the outline makes a hole of 1.50 m one of 1.48 m, and the depth
# of the frame does a little more.
DRAWN = 1.037
OUTER = 2.72 / 1.5 * DRAWN  # of the AI Grand Prix's gates
# Trial by trial, lines up to so wide across an opening or its frame (the corridor's borders) are wiped out.
LINES_PX = (0, 4)
SIDE_MIN_PX = 8.0  # shortest side of an opening that is worth measuring
CUT_MIN_PX = 20.0  # ... of one that is cut
MOST_OF_PICTURE = 0.95  # a hole that fills more of it is what surrounds all gates
CANDIDATES = 64  # at most so many, the largest first, are looked at: what has more is no picture of a course
HULL_FILLED = 0.7  # least share of a quadrilateral that its hole or blob fills
ASPECT_MAX = 15.0  # longest over shortest side
BEND = 0.03  # of the circumference: what a polygon may stray from a hole's hull
SAME_PX = 1.0  # candidates whose centres and radii differ by less lead to the same edges
ON_BORDER_PX = 2.5  # a side of a hole as near to the picture's edge is that edge


def openings(mask: np.ndarray, outer: float, lines_shine: bool = True) -> Array:
    """Quadrilaterals (Q, 4, 2) that may be openings, of a mask (H, W) of 0 and 255, the largest first.

    A frame is `outer` times as large as its opening. Lines in the way are in the mask if they shine in what it was made of,
    else they cut it.
    """
    quads, wipe = [], cv2.MORPH_OPEN if lines_shine else cv2.MORPH_CLOSE
    for width in LINES_PX:
        wiped = cv2.morphologyEx(mask, wipe, np.ones((width, width), np.uint8)) if width else mask
        # A bright rim closes the holes that the picture's edge cuts.
        rimmed = cv2.copyMakeBorder(wiped, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=255)
        quads += _of_holes(rimmed, cut=True)
        if not width:
            quads += _of_blobs(mask, outer)
    return _distinct(_largest(quads, CANDIDATES))


def whole_holes(mask: np.ndarray, most: int) -> Array:
    """The largest quadrilaterals (Q <= most, 4, 2) that are holes of a mask (H, W), none cut by its edge."""
    return _largest(_of_holes(cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0), cut=False), most)


def _largest(quads: list[Array], most: int) -> Array:
    """The sound ones of quads (4, 2), the largest first: (Q <= most, 4, 2)."""
    found = np.array(quads).reshape(-1, 4, 2)
    found = found[sound(found)]
    size = np.linalg.norm(found[:, :2] - found[:, 2:], axis=-1).sum(-1)
    return found[np.argsort(-size, kind="stable")][:most]


def sound(quads: Array) -> np.ndarray:
    """Which of quads (Q, 4, 2) are convex, clockwise, large enough and not absurdly long."""
    along = quads[..., AFTER, :] - quads
    after = along[..., AFTER, :]
    convex = (along[..., 0] * after[..., 1] - along[..., 1] * after[..., 0] > 0).all(-1)
    side = np.hypot(along[..., 0], along[..., 1])
    return convex & (side.min(-1) >= SIDE_MIN_PX) & (side.max(-1) <= ASPECT_MAX * side.min(-1))


def _of_holes(rimmed: np.ndarray, cut: bool) -> list[Array]:
    contours, tree = cv2.findContours(rimmed, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE, offset=(-1, -1))
    height, width = rimmed.shape[0] - 2, rimmed.shape[1] - 2
    quads = []
    for contour, (_, _, _, parent) in zip(contours, tree[0] if contours else (), strict=True):
        if parent < 0 or len(contour) < 4:
            continue
        u, v, w, h = cv2.boundingRect(contour)
        if min(w, h) < SIDE_MIN_PX:
            continue
        if u >= 0 and v >= 0 and u + w <= width and v + h <= height:
            quad = _quadrilateral(contour)
        else:
            quad = _cut_quadrilateral(contour, width, height) if cut and max(w, h) > CUT_MIN_PX else None
        if quad is not None:
            quads.append(quad)
    return quads


def _of_blobs(mask: np.ndarray, outer: float) -> list[Array]:
    outlines = []
    for contour in cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        if len(contour) >= 4 and min(cv2.boundingRect(contour)[2:]) >= outer * SIDE_MIN_PX:
            outline = _quadrilateral(contour)
            if outline is not None:
                outlines.append(outline)
    return list(scaled(np.array(outlines), 1 / outer)) if outlines else []


def _quadrilateral(contour: np.ndarray) -> Array | None:
    """The tight quadrilateral (4, 2) around a contour, clockwise, or None if the contour has another shape.

    Sides are extended until four are left, so that a corner hidden behind something is restored (Low and Ilie, 2003).
    """
    hull = cv2.convexHull(contour)
    if len(hull) < 4:
        return None
    quad = cv2.approxPolyN(hull, 4, ensure_convex=True).reshape(-1, 2).astype(float)
    if len(quad) != 4 or cv2.contourArea(hull) < HULL_FILLED * cv2.contourArea(quad.astype(np.float32)):
        return None
    return quad if cv2.contourArea(quad.astype(np.float32), oriented=True) > 0 else quad[::-1]


def _cut_quadrilateral(contour: np.ndarray, width: int, height: int) -> Array | None:
    """A quadrilateral (4, 2) on the sides that the picture's edge has left of a hole, or None if fewer than two are left.

    What is missing is guessed as if the opening were a square seen from before it.
    """
    hull = cv2.convexHull(contour, clockwise=True)
    hull_px = cv2.contourArea(hull)
    if len(hull) < 4 or hull_px > MOST_OF_PICTURE * width * height or cv2.contourArea(contour) < HULL_FILLED * hull_px:
        return None
    polygon = cv2.approxPolyDP(hull, BEND * cv2.arcLength(hull, True), True).reshape(-1, 2).astype(float)
    if cv2.contourArea(polygon.astype(np.float32), oriented=True) < 0:
        polygon = polygon[::-1]
    after = np.arange(1, len(polygon) + 1) % len(polygon)
    near = np.abs(np.hstack([polygon, polygon - [width - 1, height - 1]])) < ON_BORDER_PX  # (P, 4 edges of the picture)
    free = np.flatnonzero(~(near & near[after]).any(-1))
    if not 2 <= len(free) <= 4:
        return None
    end = polygon[after]
    # Begin after the widest gap.
    follows = np.append(free[1:], free[0] + len(polygon)) - free
    free = free[(follows.argmax() + 1 + np.arange(len(free))) % len(free)]
    a, b = polygon[free], end[free]
    if len(free) == 4:
        return np.asarray(meet(a[None], (b - a)[None])[0])
    if len(free) == 3:
        left, right = (b[0] + a[1]) / 2, (b[1] + a[2]) / 2
        side = dist(left, right)
        return np.array([_reach(left, a[0], side), left, right, _reach(right, b[2], side)])
    length = np.hypot(*(b - a).T)
    if (b[0] == a[1]).all():
        one, other = (_reach(a[1], end, float(length.max())) for end in (a[0], b[1]))
        return np.array([one, a[1], other, one + other - a[1]])
    middle = (a + b) / 2
    half = np.maximum(length, dist(*middle)) / 2
    along = (b - a) / length[:, None] * half[:, None]
    return np.array([middle[0] - along[0], middle[0] + along[0], middle[1] - along[1], middle[1] + along[1]])


def _reach(p: Array, toward: Array, length: float) -> Array:
    """From p (2,) through `toward` (2,), at least as far as that."""
    return p + (toward - p) * max(1.0, length / max(dist(p, toward), 1.0))


def _distinct(quads: Array) -> Array:
    """The quads (Q, 4, 2) without those that repeat an earlier one."""
    if not len(quads):
        return quads
    centre, size = quads.mean(1), np.linalg.norm(quads - quads.mean(1, keepdims=True), axis=-1).mean(-1)
    apart = np.linalg.norm(centre[:, None] - centre, axis=-1) + np.abs(size[:, None] - size)
    repeats = np.tril(apart < SAME_PX, -1).any(1)
    return quads[~repeats]
