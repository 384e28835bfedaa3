"""A gate found elsewhere too late to be flown through is passed beside its frame, and flown again afterwards.

Flown on as before, the vehicle pierces the gate's plane at c (right and down of its centre), t from now; an acceleration a aside,
once the vehicle has turned into it for s, leads to any place within a (t - s)^2 / 2 of it. If that reaches the opening, or the
opening is nearer than a place clear of the frame, it is flown through. Braking would be no third way: at 25 m/s it takes 10 m,
in which the line is left for the frame.
"""

import math

import numpy as np

from mpc.controller import Controller
from mpc.problem.stage import REFERENCE
from tracks.gate import Gate
from vehicle.rotation import Array

LATERAL_M_S2 = 25.0  # acceleration aside that a race leaves (set by hand)
TURN_S = 0.1  # until it acts: command delay, rates, thrust
CLEAR_M = (
    0.15  # of the vehicle from frame and edge, beyond its own radius: what place and tracking are off (set by hand)
)
AHEAD_S, STEP_S = 1.0, 0.02  # how far the way is looked at, s: whoever has longer flies through any gate 2 m aside
PACE = 0.4  # of the plan, beside a gate that is to be flown again: its next one must not be passed before
P, V = REFERENCE["p"].at, REFERENCE["v"].at


def way_on(controller: Controller, p_w: Array, v_w: Array) -> tuple[Array, Array]:
    """(M,) s from now and (M, 3) m: where a vehicle at p_w (3,) m with v_w (3,) m/s flies, parallel to the controller's line."""
    t, progress = np.arange(0.0, AHEAD_S, STEP_S), controller.progress
    rows = controller.reference.sample(progress.theta + progress.pace * t)
    drift = v_w - progress.pace * rows[0, V]
    return t, rows[:, P] + (p_w - rows[0, P]) + t[:, None] * drift


def aim_at(gate: Gate, t: Array, way_w: Array, radius_m: float) -> Array:
    """(3,) m, world, from a gate's centre to where its plane is to be pierced: 0 is through its opening.

    Args:
        gate: where it stands.
        t, way_w: as of `way_on`.
        radius_m: of the vehicle.
    """
    way_g = gate.local(way_w)
    before = np.flatnonzero((way_g[:-1, 0] < 0) & (way_g[1:, 0] >= 0))
    if not (len(before) and gate.has_frame):
        return np.zeros(3)
    k = int(before[0])
    s = way_g[k, 0] / (way_g[k, 0] - way_g[k + 1, 0])
    y, z = (way_g[k] + s * (way_g[k + 1] - way_g[k]))[1:].tolist()
    reach_m = LATERAL_M_S2 / 2 * max(t[k] + s * (t[k + 1] - t[k]) - TURN_S, 0.0) ** 2
    room_m = max(gate.half - radius_m - CLEAR_M, 0.0)
    to_opening_m = math.hypot(max(abs(y) - room_m, 0.0), max(abs(z) - room_m, 0.0))
    clear_m = gate.outer_m / 2 + radius_m + CLEAR_M
    beside = [(max(y, clear_m), z), (min(y, -clear_m), z), (y, min(z, -clear_m))]  # below is the floor, or a post
    to_side_m, side = min((math.dist(place, (y, z)), place) for place in beside)
    if to_opening_m <= max(reach_m, to_side_m):
        return np.zeros(3)
    return np.asarray(gate.R_wg @ [0.0, *side])
