"""Geometry of the certificate: distances of a path to solids, and its passages through gates.

It shares nothing with the problem's constraints: a frame is a square ring with a depth, an opening is an outline with signed
distances to its sides, and gate axes come from the track file's angles.
"""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.tracks.gate import Gate
from gate_racer.tracks.solids import SAME_LEVEL
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array


@dataclass(frozen=True)
class Near:
    """Least distance from a path to a solid."""

    distance_m: float
    solid: str
    at: int  # index of the nearest point of the path
    frame: bool  # whether the solid is a gate's frame


@dataclass(frozen=True)
class Passage:
    """Passage of a gate."""

    t: float  # s
    margin_m: float  # m, from the vehicle's centre to the nearest side of the opening
    at: int  # index of the path's point before the crossing
    fault: str = ""  # violation; empty if there is none
    edges_m: tuple[float, ...] = ()  # m, from the vehicle's centre to each side of the opening, at the crossing


def local(gate: Gate, p_w: Array) -> Array:
    """Transform world points (M, 3) into gate axes: x through the gate, y right, z down."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    turn = Rotation.from_euler("ZYX", [gate.yaw_deg, gate.pitch_deg, 0.0], degrees=True)
    return (p_w - np.array(gate.centre_m)) @ turn.as_matrix()


def frame_distance(gate: Gate, p_g: Array) -> Array:
    """Return distances (M,), m, from points (M, 3) in gate axes to the four bars of the frame; 0 inside them."""
    x, y, z = np.abs(p_g).T
    inner, outer = gate.opening_m / 2, gate.outer_m / 2
    across = np.where(
        np.maximum(y, z) < inner,
        inner - np.maximum(y, z),
        np.hypot(np.maximum(y - outer, 0.0), np.maximum(z - outer, 0.0)),
    )
    return np.hypot(across, np.maximum(x - gate.depth_m / 2, 0.0))


def inside(gate: Gate, p_g: Array) -> Array:
    """Return distances (M,), m, from points (M, 3) to the nearest side of the opening, in its plane; negative outside."""
    return np.asarray(from_sides(gate, p_g).min(axis=1))


def from_sides(gate: Gate, p_g: Array) -> Array:
    """Return distances (M, E), m, from points (M, 3) to each side of the opening, in its plane; negative outside."""
    h = gate.opening_m / 2
    corners = np.array(gate.polygon_m or ((-h, -h), (h, -h), (h, h), (-h, h)))
    after = np.roll(corners, -1, axis=0)
    area = float((corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]).sum())
    found = []
    for a, b in zip(corners, after, strict=True):
        side = (b - a) / np.linalg.norm(b - a)
        found.append(np.sign(area) * (side[0] * (p_g[:, 2] - a[1]) - side[1] * (p_g[:, 1] - a[0])))
    return np.column_stack(found)


def clearances(track: Track, p_w: Array) -> list[Near]:
    """Return the least distance from a path (M, 3) to each solid of a track."""
    found = []
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if gate.is_ball or gate.polygon_m is not None or gate.outer_m <= gate.opening_m:
            continue
        close = _close(gate, p_w)
        near = _near(frame_distance(gate, local(gate, p_w[close])), f"the frame of gates[{i}]", True)
        found.append(replace(near, at=int(close[near.at])))
        if gate.stand_m > 0 and (post := _stand_distance(track, gate, p_w)) is not None:
            found.append(_near(post, f"the stand of gates[{i}]", False))
    for i, obstacle in enumerate(track.obstacles):
        centre, half = (np.add(obstacle.low_m, obstacle.high_m)) / 2, np.subtract(obstacle.high_m, obstacle.low_m) / 2
        distance = np.sqrt((np.maximum(np.abs(p_w - centre) - half, 0.0) ** 2).sum(axis=1))
        found.append(_near(distance, f"obstacles[{i}]", False))
    return found


def _close(gate: Gate, p_w: Array) -> np.ndarray:
    """Return indices of points that may be the nearest to a frame: at most its size farther from its centre than the nearest."""
    off = np.linalg.norm(p_w - np.array(gate.centre_m), axis=1)
    size = float(np.linalg.norm([gate.outer_m, gate.outer_m, gate.depth_m]))
    return np.flatnonzero(off <= off.min() + size)


def _near(distance: Array, name: str, frame: bool) -> Near:
    at = int(distance.argmin())
    return Near(float(distance[at]), name, at, frame)


def _stand_distance(track: Track, gate: Gate, p_w: Array) -> Array | None:
    """Return distances (M,), m, to the post below a frame; None if another frame or the floor carries it."""
    floor, top = track.bounds.high_m[2], gate.centre_m[2] + gate.outer_m / 2 * np.cos(np.radians(gate.pitch_deg))
    lower = [g for g in track.gates if g.outer_m > 0 and g.centre_m[2] - gate.centre_m[2] > SAME_LEVEL * gate.outer_m]
    if top >= floor or any(np.hypot(*np.subtract(g.centre_m, gate.centre_m)[:2]) < gate.outer_m / 2 for g in lower):
        return None
    off = p_w - np.array(gate.centre_m)
    cos, sin = np.cos(np.radians(gate.yaw_deg)), np.sin(np.radians(gate.yaw_deg))
    along, across = np.abs(cos * off[:, 0] + sin * off[:, 1]), np.abs(cos * off[:, 1] - sin * off[:, 0])
    beside = np.maximum(along - gate.depth_m / 2, 0.0), np.maximum(across - gate.stand_m / 2, 0.0)
    return np.sqrt(
        beside[0] ** 2 + beside[1] ** 2 + np.maximum(np.maximum(top - p_w[:, 2], p_w[:, 2] - floor), 0.0) ** 2
    )


def passage(gate: Gate, t: Array, p_w: Array, after: float, when: float, length_m: float, body_m: float) -> Passage:
    """Check the passage of a path (M, 3) through a planar gate near the time `when`, s.

    The path must run from `length_m` before the plane to `length_m` behind it, at least `body_m` inside the opening's
    prism. A path that begins within that distance is checked from its beginning.

    Args:
        after: s, crossings up to this time are ignored.
    """
    p_g = local(gate, p_w)
    x, room = p_g[:, 0], inside(gate, p_g)
    forward = np.flatnonzero((x[:-1] < 0) & (x[1:] >= 0) & (t[1:] > after))
    if not len(forward):
        return Passage(when, -np.inf, int(np.searchsorted(t, when)), "is not passed")
    k = int(forward[np.abs(t[forward] - when).argmin()])
    s = -x[k] / (x[k + 1] - x[k])
    first, last = k, k + 1
    while first > 0 and -length_m < x[first] < 0 and room[first] >= body_m:
        first -= 1
    while last < len(x) - 1 and 0 <= x[last] < length_m and room[last] >= body_m:
        last += 1
    within = np.abs(x[first : last + 1]) <= gate.tunnel_m / 2
    margin = float(min((1 - s) * room[k] + s * room[k + 1], room[first : last + 1][within].min(initial=np.inf)))
    fault = ""
    if margin < 0:
        fault = "is not passed"
    elif room[first] < body_m or room[last] < body_m:
        side, off = ("before", x[first]) if room[first] < body_m else ("behind", x[last])
        fault = f"is not passed straight: the body leaves the prism of the opening {abs(off):.2f} m {side} its plane"
    elif x[first] >= 0 or x[last] < length_m:
        fault = "is not passed straight: the path does not lead from its near side to its far side"
    edges = (1 - s) * from_sides(gate, p_g[k : k + 1])[0] + s * from_sides(gate, p_g[k + 1 : k + 2])[0]
    return Passage(float(t[k] + s * (t[k + 1] - t[k])), margin, k, fault, tuple(edges.tolist()))


def touched(ball: Gate, t: Array, p_w: Array, low: int, high: int) -> Passage:
    """Return the passage of a path (M, 3) at a ball, between its points `low` and `high`."""
    distance = np.linalg.norm(p_w[low : high + 1] - np.array(ball.centre_m), axis=1)
    at = low + int(distance.argmin())
    return Passage(float(t[at]), ball.half - float(distance.min()), at)


def out_of_turn(track: Track, t: Array, p_w: Array, passages: list[tuple[int, float]]) -> list[str]:
    """Return sentences on openings that are passed out of order, or backwards.

    Args:
        passages: (landmark, s) of each passage of the course.
    """
    faults = []
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if gate.is_ball or gate.polygon_m is not None:
            continue
        before = local(gate, p_w)[:, 0] < 0
        through = np.flatnonzero(before[:-1] != before[1:])
        for k in through[inside(gate, local(gate, p_w[through])) > 0]:
            meant = any(mark == i and t[k] - 1e-3 <= when <= t[k + 1] + 1e-3 for mark, when in passages)
            if not meant:
                faults.append(f"gates[{i}] is passed out of order at {t[k]:.2f} s")
    return faults
