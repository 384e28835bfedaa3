"""A gate found elsewhere too late to be flown through is passed beside its frame, and flown again afterwards.

Whether it is too late the controller's own solution says, which knows what the vehicle can do: if that, led to where the gate
stands, pierces its plane nearer to a place clear of the frame than to the opening, the vehicle makes for that place. Braking
would be no third way: at 25 m/s it takes 10 m, in which the line is left for the frame.
"""

import math

import numpy as np

from tracks.gate import Gate
from vehicle.rotation import Array

# Before the plane: earlier the solution may still turn, later no place beside the frame is reached (set by hand).
DECIDED_S = 0.4
# Of the vehicle from frame and edge, beyond its own radius: what place and tracking are off (set by hand).
CLEAR_M = 0.15


def aim_beside(gate: Gate, way_w: Array, radius_m: float) -> Array:
    """(3,) m, world, from a gate's centre to where its plane is to be pierced beside it; 0: through its opening.

    Args:
        gate: where it stands.
        way_w: (M, 3) m, of the vehicle, as it would fly on.
        radius_m: of the vehicle.
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
