"""Passing beside a displaced gate that was found too late to be flown through; a later attempt flies through it.

The controller's last solution, which includes the vehicle's limits, decides: if, led to the displaced gate, it pierces the gate's
plane nearer to a place clear of the frame than to the opening, the course is led to that place. Braking is no alternative: at
25 m/s it takes 10 m, and meanwhile the vehicle leaves its line towards the frame.
"""

import math

import numpy as np

from tracks.gate import Gate
from vehicle.rotation import Array

DECIDED_S = 0.4  # s before the plane; earlier the solution may still turn towards the opening (set by hand)
CLEAR_M = 0.15  # m between the vehicle and the frame, for errors of position and tracking (set by hand)


def aim_beside(gate: Gate, way_w: Array, radius_m: float) -> Array:
    """Return the step (3,) m, world NED, from a gate's centre to where its plane is to be pierced; 0: through its opening.

    Args:
        gate: the gate at its displaced position.
        way_w: (M, 3) m, world NED, predicted positions of the vehicle.
        radius_m: contact radius of the vehicle.
    """
    way_g = gate.local(way_w)
    before = np.flatnonzero((way_g[:-1, 0] < 0) & (way_g[1:, 0] >= 0))
    if not (len(before) and gate.has_frame):
        return np.zeros(3)
    a_g, b_g = way_g[before[0]], way_g[before[0] + 1]
    y, z = (a_g + a_g[0] / (a_g[0] - b_g[0]) * (b_g - a_g))[1:].tolist()
    room_m = max(gate.half - radius_m, 0.0)
    clear_m = gate.outer_m / 2 + radius_m + CLEAR_M
    to_opening_m = math.hypot(max(abs(y) - room_m, 0.0), max(abs(z) - room_m, 0.0))
    beside = [(max(y, clear_m), z), (min(y, -clear_m), z), (y, min(z, -clear_m))]  # below is the floor, or a post
    to_side_m, side = min((math.dist(place, (y, z)), place) for place in beside)
    return np.asarray(gate.R_wg @ [0.0, *side]) if to_side_m < to_opening_m else np.zeros(3)
