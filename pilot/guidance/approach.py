"""Approach of an unmapped gate: from a stand-off in front, where it is in view, then straight through.

A camera that is tilted up by 20 deg loses a gate's lower edge at 4.5 m. Nearer than that the vehicle flies by dead reckoning,
which is trusted for a second or so. A gate that was not seen lately, or from one position only, is first observed from the
stand-off.
"""

import math

import numpy as np

from gate_racer.estimation.estimator import Landmark
from gate_racer.mpc.geometric import limited
from gate_racer.pilot.guidance.room import OPEN, Room
from gate_racer.pilot.guidance.velocity_controller import Aim
from gate_racer.vehicle.rotation import Array

CRUISE = 5.0  # m/s, towards the stand-off
CROSSING = 4.0  # m/s, through a gate: low, since braking pitches the camera up
FAST = 9.0  # m/s, straight at a far gate: dead reckoning errs with time, and fast flight pitches the camera down
BRAKE = 2.5  # m/s^2, deceleration before a gate: no more than drag at such a speed, so that the nose stays down
STAND_OFF_M, NEAR_M = 7.0, 5.0  # m, greatest and least stand-off in front of a gate
FRESH_S = 1.5  # s since the last view of a gate, up to which dead reckoning is trusted
VIEWS = 2  # consistent views from different positions required before a gate is flown through
BEHIND_M = 1.0  # m behind a gate, from where it has to be approached again
ROUND_M = 1.9  # m to the side of a gate's axis, where the vehicle flies back past it, clear of a frame of 2.7 m
COMMITTED_M = 3.0  # m before a gate, from where it is flown through if the path is clear: braking would take as long
CONE = 0.12  # lateral over longitudinal distance within which a gate is flown at
CLEAR_M = 0.45  # m, added to the cone, and largest offset in the opening: 0.2 m of body stay clear of edges at 0.75 m
CLIMB = 2.5  # m/s
PULL, CENTRE = 1.0, 1.4  # 1/s, distance to velocity, in general and towards the axis of a gate
NEAR_AXIS_M = 0.15  # m, offset from the axis to reach before the gate
NOD_S, NOD = 2.0, -3.0  # s and m/s^2, period and amplitude of the nod, which shows what lies above, then below
AT_M = 2.0  # m from the stand-off, where the vehicle nods
LEVEL = np.array([1.0, 1.0, 0.0])


def offset(p_wb: Array, gate: Landmark) -> tuple[float, Array]:
    """Return the distance beyond a gate's plane (m) of a vehicle at p_wb (3,) m, and its offset from the axis (3,) m."""
    off = p_wb - gate.p_w
    along = float(off @ gate.ahead)
    return along, off - along * gate.ahead


def approach(p_wb: Array, gate: Landmark, t: float, since: float, room: Room = OPEN) -> Aim:
    """Return the aim at t (s), `since` s after the gate was chosen, for a vehicle at p_wb (3,) m on any side of it."""
    along, across = offset(p_wb, gate)
    if along > BEHIND_M or (along > 0 and np.linalg.norm(across) > CLEAR_M):
        return _back(p_wb, across, gate, room)
    ahead, sideways = max(-along, 0.0), math.hypot(across[0], across[1])
    to = gate.p_w - p_wb
    bearing = math.atan2(to[1], to[0]) if ahead > COMMITTED_M else gate.yaw
    known = gate.views >= VIEWS and t - gate.last_t < FRESH_S
    climb_s = max(abs(float(across[2])) - CONE * ahead - CLEAR_M, 0.0) / CLIMB
    lined_up = sideways < CONE * ahead + CLEAR_M and (ahead > STAND_OFF_M or (known and climb_s == 0.0))
    stand_off_m = min(max(min(ahead, STAND_OFF_M), NEAR_M), room.reach(gate.p_w, -gate.ahead, STAND_OFF_M))
    to_stand_off = (to - stand_off_m * gate.ahead) * LEVEL
    if lined_up or (ahead < COMMITTED_M and np.abs(across).max() < CLEAR_M):
        centred_s = math.log(max(float(np.linalg.norm(across)) / NEAR_AXIS_M, 1.01)) / CENTRE
        most = math.sqrt(CROSSING**2 + 2 * BRAKE * max(ahead - STAND_OFF_M, 0.0))
        speed = min(FAST, most, ahead / centred_s if ahead > COMMITTED_M else CROSSING)
        level = speed * gate.ahead + limited(-CENTRE * across * LEVEL, CROSSING / 2)
    else:
        level = pull(to_stand_off, CRUISE)
    if climb_s > 0.0:  # reach the height at the stand-off
        level = limited(level, float(np.linalg.norm(to_stand_off)) / climb_s)
    height = np.array([0.0, 0.0, np.clip(-CENTRE * across[2], -CLIMB, CLIMB)])
    looking = not known and np.linalg.norm(to_stand_off) < AT_M
    return Aim(level + height, bearing, nod(since, bearing) if looking else np.zeros(3))


def _back(p_wb: Array, across: Array, gate: Landmark, room: Room) -> Aim:
    """Return the aim behind a gate that is to be approached again: away from its axis, then back past the frame."""
    right = np.array([-gate.ahead[1], gate.ahead[0], 0.0])
    side = float(across @ right)
    if abs(side) > ROUND_M:
        return Aim.towards(-CROSSING * gate.ahead, gate.yaw)
    way = math.copysign(1.0, side) * right
    blocked = room.reach(p_wb, way, ROUND_M) < ROUND_M - abs(side)
    return Aim.towards(-CLIMB * way if blocked else CLIMB * way, gate.yaw)


def pull(to: Array, limit: float) -> Array:
    """Return the velocity (3,) m/s towards a place at the relative position `to` (3,) m, at most `limit` m/s."""
    return limited(PULL * np.asarray(to, float), limit)


def nod(since: float, heading: float) -> Array:
    """Return the acceleration (3,) m/s^2 along the nose, alternating, `since` s into a look around."""
    return NOD * math.sin(2 * math.pi * since / NOD_S) * np.array([math.cos(heading), math.sin(heading), 0.0])
