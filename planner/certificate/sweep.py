"""The geometry of the certificate, by itself: what a path comes near to, and how it passes its gates.

It shares nothing with the problem's constraints: a frame is a square ring with a depth, an opening is an outline with signed
distances from its sides, and gate axes come from the file's angles.
"""

from dataclasses import dataclass, replace

import numpy as np

from tracks.gate import Gate
from tracks.solids import SAME_LEVEL
from tracks.track import Track
from vehicle.rotation import Array


@dataclass(frozen=True)
class Near:
    """The least distance from a path to a solid."""

    distance_m: float
    solid: str
    at: int  # point of the path
    frame: bool


@dataclass(frozen=True)
class Passage:
    """How a gate is passed. `fault` says what is wrong, and is empty where nothing is."""

    t: float
    margin_m: float
    at: int  # point of the path before the crossing
    fault: str = ""


def local(gate: Gate, p_w: Array) -> Array:
    """World points (M, 3) in gate axes: x through it, y right, z down."""
    from scipy.spatial.transform import Rotation  # slow to load, and who flies a plan certifies none

    turn = Rotation.from_euler("ZYX", [gate.yaw_deg, gate.pitch_deg, 0.0], degrees=True)
    return (p_w - np.array(gate.centre_m)) @ turn.as_matrix()


def frame_distance(gate: Gate, p_g: Array) -> Array:
    """(M,) m from points (M, 3) in gate axes to the four bars; 0 inside."""
    x, y, z = np.abs(p_g).T
    inner, outer = gate.opening_m / 2, gate.outer_m / 2
    across = np.where(
        np.maximum(y, z) < inner,
        inner - np.maximum(y, z),
        np.hypot(np.maximum(y - outer, 0.0), np.maximum(z - outer, 0.0)),
    )
    return np.hypot(across, np.maximum(x - gate.depth_m / 2, 0.0))


def inside(gate: Gate, p_g: Array) -> Array:
    """(M,) m from points to the nearest side of the opening, seen along the gate's axis; negative outside."""
    h = gate.opening_m / 2
    corners = np.array(gate.polygon_m or ((-h, -h), (h, -h), (h, h), (-h, h)))
    after = np.roll(corners, -1, axis=0)
    area = float((corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]).sum())
    found = []
    for a, b in zip(corners, after, strict=True):
        side = (b - a) / np.linalg.norm(b - a)
        found.append(np.sign(area) * (side[0] * (p_g[:, 2] - a[1]) - side[1] * (p_g[:, 1] - a[0])))
    return np.min(found, axis=0)


def clearances(track: Track, p_w: Array) -> list[Near]:
    """The least distances from a path (M, 3) to each solid of a track."""
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
    """The points among which the nearest to a frame is: from its centre at most its own size farther than the nearest."""
    off = np.linalg.norm(p_w - np.array(gate.centre_m), axis=1)
    size = float(np.linalg.norm([gate.outer_m, gate.outer_m, gate.depth_m]))
    return np.flatnonzero(off <= off.min() + size)


def _near(distance: Array, name: str, frame: bool) -> Near:
    at = int(distance.argmin())
    return Near(float(distance[at]), name, at, frame)


def _stand_distance(track: Track, gate: Gate, p_w: Array) -> Array | None:
    """(M,) m to the post between a frame and the floor; None where another frame or the floor itself carries it."""
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
    """How a path (M, 3) passes a gate with a plane near the time `when`.

    The vehicle comes from `length_m` before the plane and flies on to `length_m` behind it, at least `body_m` inside the
    opening's prism all the way. A path that begins on that way is judged from there.

    Args:
        after: s, before which nothing counts.
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
        fault = f"is not flown through: {abs(off):.2f} m {side} its plane the body leaves the opening's prism"
    elif x[first] >= 0 or x[last] < length_m:
        fault = "is not flown through: the vehicle does not come from the near side and leave on the far one"
    return Passage(float(t[k] + s * (t[k + 1] - t[k])), margin, k, fault)


def touched(ball: Gate, t: Array, p_w: Array, low: int, high: int) -> Passage:
    """How near a path comes to a ball between two of its points."""
    distance = np.linalg.norm(p_w[low : high + 1] - np.array(ball.centre_m), axis=1)
    at = low + int(distance.argmin())
    return Passage(float(t[at]), ball.half - float(distance.min()), at)


def out_of_turn(track: Track, t: Array, p_w: Array, passages: list[tuple[int, float]]) -> list[str]:
    """Sentences on openings that are flown through when it is not their turn, or backwards.

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
                faults.append(f"gates[{i}] is flown through out of turn at {t[k]:.2f} s")
    return faults
