"""Shortest path around solids, the initial guess where the straight line of a leg is blocked.

A visibility graph (Lozano-Perez and Wesley, 1979) over points on the edges of the boxes found in the way, inflated by the
clearance. The optimiser finds the best path on one side of a solid, but hardly ever changes the side.
"""

from collections.abc import Sequence
from itertools import pairwise
from itertools import product as every

import numpy as np

from gate_racer.tracks.solids import SolidBox
from gate_racer.vehicle.rotation import Array

ASIDE = 1.02  # -, distance of the graph's points over the clearance, so that lines along a face are free
EVEN = np.linspace(0.0, 1.0, 5)  # positions of the graph's points along an edge, besides those nearest to both ends


def route(begin: Array, end: Array, solids: Sequence[SolidBox], keep: float, low: Array, high: Array) -> Array | None:
    """Return the vertices (K, 3), m, of the shortest path found from begin to end, both included; None if there is none.

    Args:
        keep: m, clearance to the solids; a solid nearer than this to an end is ignored.
        low, high: (3,) m, bounds of the path.
    """
    path, known = np.stack([begin, end]), list[SolidBox]()
    left, centres = list(range(len(solids))), np.array([solid.centre for solid in solids]).reshape(-1, 3)
    radii = np.linalg.norm(np.array([solid.half for solid in solids]).reshape(-1, 3) + keep, axis=1)
    while True:
        near = np.any([_off(centres, a, b) < radii for a, b in pairwise(path)], axis=0)
        grown = {k: SolidBox(solids[k].centre, solids[k].axes, solids[k].half + keep) for k in left if near[k]}
        met = [
            k
            for k, box in grown.items()
            if solids[k].distance(path[[0, -1]]).min() > keep and any(_meets(a, b, box) for a, b in pairwise(path))
        ]
        if not met:
            return path
        known += [grown[k] for k in met]
        left = [k for k in left if k not in met]
        corners = [_edge_points(box, (ASIDE - 1) * keep, begin, end) for box in known]
        points = np.concatenate([path[[0, -1]], *corners])
        inside = ((points >= low) & (points <= high)).all(axis=1)
        points = points[inside | (np.arange(len(points)) < 2)]
        found = _shortest(points, known)
        if found is None:
            return None
        path = found


def along(path: Array, shares: Array) -> tuple[Array, Array]:
    """Return positions (3, N), m, at fractions (N,) of a path's length, and the unit directions (3, N) there."""
    steps = np.diff(path, axis=0)
    reached = np.concatenate([[0.0], np.cumsum(np.linalg.norm(steps, axis=1))])
    s = shares * reached[-1]
    places = np.array([np.interp(s, reached, column) for column in path.T])
    k = np.clip(np.searchsorted(reached, s) - 1, 0, len(steps) - 1)
    return places, (steps[k] / np.linalg.norm(steps[k], axis=1, keepdims=True)).T


def _off(points: Array, a: Array, b: Array) -> Array:
    """Return distances (K,), m, from points (K, 3) to the segment from a to b."""
    step = b - a
    share = np.clip((points - a) @ step / max(float(step @ step), 1e-12), 0.0, 1.0)
    return np.linalg.norm(points - a - share[:, None] * step, axis=1)


def _meets(a: Array, b: Array, box: SolidBox) -> np.ndarray:
    """Return (...) whether segments from a to b (..., 3) intersect the interior of a box, by the slab method."""
    a, b = (a - box.centre) @ box.axes, (b - box.centre) @ box.axes
    d = b - a
    d = np.where(np.abs(d) < 1e-12, 1e-12, d)
    first, second = (-box.half - a) / d, (box.half - a) / d
    enters = np.minimum(first, second).max(axis=-1)
    leaves = np.maximum(first, second).min(axis=-1)
    return np.maximum(enters, 0.0) < np.minimum(leaves, 1.0)


def _edge_points(box: SolidBox, off: float, begin: Array, end: Array) -> Array:
    """Return points (N, 3) on the twelve edges of a box inflated by `off`, m."""
    half, points = box.half + off, []
    ends = (np.stack([begin, end]) - box.centre) @ box.axes
    for axis in range(3):
        nearest = (ends[:, axis] / half[axis] + 1) / 2
        shares = np.concatenate([EVEN, np.clip([*nearest, nearest.mean()], 0.0, 1.0)])
        for corner in every((-1.0, 1.0), repeat=2):
            edge = np.empty((len(shares), 3))
            edge[:, axis] = (2 * shares - 1) * half[axis]
            for other, side in zip([i for i in range(3) if i != axis], corner, strict=True):
                edge[:, other] = side * half[other]
            points.append(edge)
    return box.centre + np.concatenate(points) @ box.axes.T


def _shortest(points: Array, boxes: list[SolidBox]) -> Array | None:
    """Return the shortest polyline (K, 3) from the first point to the second that intersects no box, or None."""
    from scipy.sparse.csgraph import dijkstra  # slow to load, and not needed for most courses

    a, b = points[:, None], points[None]
    length = np.linalg.norm(b - a, axis=-1)
    for box in boxes:
        length[_meets(a, b, box)] = 0.0  # no edge of the graph
    distance, before = dijkstra(length, indices=0, return_predecessors=True)
    if not np.isfinite(distance[1]):
        return None
    path = [1]
    while path[-1] != 0:
        path.append(int(before[path[-1]]))
    return points[path[::-1]]
