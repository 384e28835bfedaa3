"""Ray casting against the solids of a track, for rangefinders and LiDARs.

The slab method (Kay and Kajiya, "Ray tracing complex scenes", 1986): in the axes of a box the ray is inside between the last
entry into a slab and the first exit from one.
"""

import math

import numpy as np

from gate_racer.sim.physics.contact import Solids
from gate_racer.sim.physics.jit import njit
from gate_racer.vehicle.rotation import Array

NOTHING = -1  # index of a ray without a hit


@njit
def _entry(p, d, solids, i):
    """Return the distance from p along the unit vector d to box i, m; infinite without a hit, or from inside."""
    enter, leave = -math.inf, math.inf
    for k in range(3):
        offset, slope = 0.0, 0.0
        for j in range(3):
            offset += (p[j] - solids.centre[i, j]) * solids.axes[i, j, k]
            slope += d[j] * solids.axes[i, j, k]
        if abs(slope) < 1e-12:
            if abs(offset) > solids.half[i, k]:
                return math.inf
            continue
        a, b = (-solids.half[i, k] - offset) / slope, (solids.half[i, k] - offset) / slope
        enter, leave = max(enter, min(a, b)), min(leave, max(a, b))
    return enter if 0.0 <= enter <= leave else math.inf


@njit
def _cast(p, directions, solids, near, offset, radius, distance, box, range_m):
    """Fill distance (N,) and box (N,) of the nearest hits; rays that miss a box's circumscribed ball skip the box."""
    for n in range(len(directions)):
        distance[n], box[n] = math.inf, NOTHING
        d = directions[n]
        for k in range(len(near)):
            along = offset[k, 0] * d[0] + offset[k, 1] * d[1] + offset[k, 2] * d[2]
            square = offset[k, 0] ** 2 + offset[k, 1] ** 2 + offset[k, 2] ** 2
            if along < -radius[k] or square - along * along > radius[k] ** 2:
                continue
            i = near[k]
            s = _entry(p, directions[n], solids, i)
            if s <= range_m and s < distance[n]:
                distance[n], box[n] = s, i


def cast(solids: Solids, p_w: Array, directions_w: Array, range_m: float) -> tuple[Array, np.ndarray]:
    """Cast rays from p_w (3,) m along unit vectors (N, 3), world, and return the nearest hits within the range.

    Returns:
        distance: (N,) m, infinite without a hit.
        box: (N,) index into the solids, or -1 without a hit.
    """
    distance, box = np.empty(len(directions_w)), np.empty(len(directions_w), np.int64)
    offset, radius = solids.centre - p_w, np.linalg.norm(solids.half, axis=1) * (1 + 1e-9)
    near = np.flatnonzero(np.linalg.norm(offset, axis=1) - radius <= range_m)
    about = near, offset[near], radius[near]
    _cast(np.asarray(p_w, float), np.ascontiguousarray(directions_w, float), solids, *about, distance, box, range_m)
    return distance, box
