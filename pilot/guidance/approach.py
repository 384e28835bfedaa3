"""How a gate that no map tells of is flown at: from a place before it where it is in view, then straight through.

A camera that is tilted up by 20 deg loses a gate's lower edge 4.5 m before it. Nearer than that, dead reckoning leads; it is
trusted for a second or so. A gate that was not seen lately, or from one place alone, is looked at from afar first.
"""

import math

import numpy as np

from estimation.estimator import Landmark
from mpc.geometric import limited
from pilot.guidance.velocity_controller import Aim
from vehicle.rotation import Array

CRUISE = 5.0  # m/s, towards a place
CROSSING = 4.0  # m/s, through a gate; to brake is to look up, so there is little of it
FAST = 9.0  # m/s, straight at a far gate: dead reckoning errs with the time, and whoever flies fast looks down
BRAKE = 2.5  # m/s^2, before it: no more than drag does at such a speed, so that the nose stays down
STAND_OFF_M = 7.0  # before a gate: from where it is looked at, and flown at straight
FRESH_S = 1.5  # since a gate was seen, after which dead reckoning is no longer trusted to lead through it
VIEWS = 2  # of a gate, from places apart, that have to agree before it is flown through
COMMITTED_M = 1.5  # before a gate, from where the way through is the shortest, if it is clear
CONE = 0.12  # sideways over ahead, within which a gate is flown at
CLEAR_M = 0.45  # more of it, and off the axis in the opening: a body of 0.2 m stays clear of edges at 0.75 m
CLIMB = 2.5  # m/s
PULL, CENTRE = 1.0, 1.4  # 1/s, distance to velocity, in general and towards the axis of a gate
NEAR_AXIS_M = 0.15  # off the axis: whoever is farther off gets as near before the gate is reached
NOD_S, NOD = 2.0, -3.0  # s and m/s^2, period and amplitude of the nod, which shows what lies above, at first, and below
AT_M = 2.0  # from the place before a gate, where it is nodded at
LEVEL = np.array([1.0, 1.0, 0.0])


def offset(p_wb: Array, gate: Landmark) -> tuple[float, Array]:
    """How far beyond a gate's plane (m) the vehicle at p_wb (3,) m is, and where off its axis (3,) m, world."""
    off = p_wb - gate.p_w
    along = float(off @ gate.ahead)
    return along, off - along * gate.ahead


def approach(p_wb: Array, gate: Landmark, t: float, since: float) -> Aim:
    """The aim at t (s), `since` s after the gate was chosen, of a vehicle at p_wb (3,) m before it, or beside it."""
    along, across = offset(p_wb, gate)
    ahead, sideways = max(-along, 0.0), math.hypot(across[0], across[1])
    to = gate.p_w - p_wb
    bearing = math.atan2(to[1], to[0]) if ahead > COMMITTED_M else gate.yaw
    known = gate.views >= VIEWS and t - gate.last_t < FRESH_S
    climb_s = max(abs(float(across[2])) - CONE * ahead - CLEAR_M, 0.0) / CLIMB
    lined_up = sideways < CONE * ahead + CLEAR_M and (ahead > STAND_OFF_M or (known and climb_s == 0.0))
    to_stand_off = (to - STAND_OFF_M * gate.ahead) * LEVEL
    if lined_up or (ahead < COMMITTED_M and np.abs(across).max() < CLEAR_M):
        centred_s = math.log(max(float(np.linalg.norm(across)) / NEAR_AXIS_M, 1.01)) / CENTRE
        most = math.sqrt(CROSSING**2 + 2 * BRAKE * max(ahead - STAND_OFF_M, 0.0))
        speed = min(FAST, most, max(ahead, COMMITTED_M) / centred_s)
        level = speed * gate.ahead + limited(-CENTRE * across * LEVEL, CROSSING / 2)
    else:
        level = pull(to_stand_off, CRUISE)
    if climb_s > 0.0:  # the height is reached where the gate is looked at
        level = limited(level, float(np.linalg.norm(to_stand_off)) / climb_s)
    height = np.array([0.0, 0.0, np.clip(-CENTRE * across[2], -CLIMB, CLIMB)])
    looking = not known and np.linalg.norm(to_stand_off) < AT_M
    return Aim(level + height, bearing, nod(since, bearing) if looking else np.zeros(3))


def pull(to: Array, limit: float) -> Array:
    """Velocity (3,) m/s towards a place that lies at `to` (3,) m from here, at most `limit`."""
    return limited(PULL * np.asarray(to, float), limit)


def nod(since: float, heading: float) -> Array:
    """Acceleration (3,) m/s^2 to and fro along the nose, `since` s into a look around."""
    return NOD * math.sin(2 * math.pi * since / NOD_S) * np.array([math.cos(heading), math.sin(heading), 0.0])
