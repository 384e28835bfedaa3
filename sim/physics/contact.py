"""Rays against the solids of a track, for rangefinders and LiDARs, and collisions of the vehicle's box with them.

Rays by the slab method (Kay and Kajiya, "Ray tracing complex scenes", 1986): in the axes of a box a ray is inside between the
last entry into a slab and the first exit from one. Collisions by Newton's law of restitution along the normal and Coulomb's law
across it, at one point of contact (Mirtich and Canny, "Impulse-based simulation of rigid bodies", 1995).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gate_racer.common.strenum import StrEnum
from gate_racer.sim.physics.jit import njit
from gate_racer.tracks.track import Track, gate_solids, of_obstacle
from gate_racer.vehicle.rotation import Array, conjugate, matrix, rotate
from gate_racer.vehicle.vehicle import Vehicle

WALL_M = 5.0  # m, thickness of the walls of the bounds
REST_M_S = 0.2  # m/s, approach speed below which the restitution is zero
TOLERANCE_M = 2e-3  # m, gap between the closest points below which two boxes are in contact
SIGNS = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)])  # of the corners of a box


class ColliderKind(StrEnum):
    BOUNDS = "bounds"
    GATE = "gate"
    OBSTACLE = "obstacle"
    RIVAL = "rival"


@dataclass(frozen=True, slots=True)
class Contact:
    """Contact of the body with one object within one tick."""

    t: float  # s, end of the tick
    kind: ColliderKind
    index: int  # gate or obstacle of the track, axis of the bounds, or rival in the race
    impulse: float  # kg m/s, sum over the tick; m/s (per mass) for a vehicle of unknown mass


class Solids(NamedTuple):
    """Oriented boxes; the walls of the bounds come first."""

    centre: Array  # (n, 3) m, world
    axes: Array  # (n, 3, 3) box to world
    half: Array  # (n, 3) m
    thing: Array  # (n,) index of the object that a box belongs to


NOTHING = Solids(np.zeros((0, 3)), np.zeros((0, 3, 3)), np.zeros((0, 3)), np.zeros(0, np.int64))


class Body(NamedTuple):
    """The colliding box of the vehicle."""

    half: tuple[float, float, float]  # m
    radius: float  # m, to a corner
    mass: float  # kg, or 1 when unknown
    inertia: tuple[float, float, float]  # kg m^2, or m^2 per unit mass
    restitution: float
    friction: float


class Colliders:
    """Solids of a track. Balls and gates without a frame do not collide."""

    def __init__(self, track: Track):
        self.things: list[tuple[ColliderKind, int]] = []
        boxes: list[tuple[Array, Array, Array, int]] = []
        self._low, self._high = low, high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        for axis in range(3):
            self.things.append((ColliderKind.BOUNDS, axis))
            for face, sign in ((low, -1), (high, 1)):
                centre, half = (low + high) / 2, (high - low) / 2 + 2 * WALL_M
                centre[axis], half[axis] = face[axis] + sign * WALL_M / 2, WALL_M / 2
                boxes.append((centre, np.eye(3), half, axis))
        self.walls = len(boxes)
        solids = [(ColliderKind.GATE, i, gate_solids(track, i)) for i in sorted(set(track.landmarks))]
        solids += [(ColliderKind.OBSTACLE, i, [of_obstacle(box)]) for i, box in enumerate(track.obstacles)]
        for kind, i, parts in solids:
            if parts:
                boxes += [(*part, len(self.things)) for part in parts]
                self.things.append((kind, i))
        self.solids = Solids(*(np.array(column) for column in zip(*boxes, strict=True)))

    def inside(self, body: Body, p_wb: Array, q_wb: Array, margin_m: float) -> bool:
        """Check whether a body at this pose lies inside the bounds by at least `margin_m`."""
        points = p_wb + (SIGNS * np.array(body.half)) @ matrix(q_wb).T
        return bool(((points > self._low + margin_m) & (points < self._high - margin_m)).all())

    def contacts(self, t: float, impulses: Array) -> tuple[Contact, ...]:
        """Return the contacts at time t from the impulses (len(things),), kg m/s."""
        return tuple(Contact(t, *self.things[i], float(impulses[i])) for i in np.flatnonzero(impulses))

    def touched(self, body: Body, p_wb: Array, q_wb: Array) -> list[tuple[ColliderKind, int]]:
        x, solids = np.concatenate([p_wb, q_wb]), self.solids
        hit = [i for i in range(len(solids.half)) if contact_with(x, solids, i, body)[0] > 0]
        return sorted({self.things[solids.thing[i]] for i in hit})


def body_of(vehicle: Vehicle) -> Body:
    """Return the colliding box of a vehicle; without a `rotors` section it has unit mass and a uniform box's inertia."""
    a, b, c = vehicle.body_m
    mass, inertia = 1.0, ((b * b + c * c) / 12, (a * a + c * c) / 12, (a * a + b * b) / 12)
    if vehicle.rotors is not None:
        mass, inertia = vehicle.rotors.mass_kg, vehicle.rotors.inertia_kg_m2
    contact = vehicle.contact
    return Body((a / 2, b / 2, c / 2), vehicle.half_diagonal, mass, inertia, contact.restitution, contact.friction)


@njit
def far(x, solids, i, radius):
    """Check that a ball of `radius` around x[:3] cannot touch box i."""
    a, b, c = x[0] - solids.centre[i, 0], x[1] - solids.centre[i, 1], x[2] - solids.centre[i, 2]
    for k in range(3):
        offset = a * solids.axes[i, 0, k] + b * solids.axes[i, 1, k] + c * solids.axes[i, 2, k]
        if abs(offset) > solids.half[i, k] + radius:
            return True
    return False


@njit
def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@njit
def cross(a, b):
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


@njit
def along(a, s, b):
    """Return a + s b."""
    return (a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2])


@njit
def clamp(p, half):
    """Return the point nearest to p of an axis-aligned box at the origin."""
    return (min(max(p[0], -half[0]), half[0]), min(max(p[1], -half[1]), half[1]), min(max(p[2], -half[2]), half[2]))


@njit
def column(A, k):
    return (A[0, k], A[1, k], A[2, k])


@njit
def corners_inside(c, e, half, body, axis, side):
    """Return the mean of the body's corners inside the box, weighted by depth below its face, and their number; box axes.

    c: the body's centre. e: its three axes.
    """
    point, weight, number = (0.0, 0.0, 0.0), 0.0, 0
    for k in range(8):
        corner = along(c, body.half[0] if k & 1 else -body.half[0], e[0])
        corner = along(corner, body.half[1] if k & 2 else -body.half[1], e[1])
        corner = along(corner, body.half[2] if k & 4 else -body.half[2], e[2])
        if abs(corner[0]) <= half[0] and abs(corner[1]) <= half[1] and abs(corner[2]) <= half[2]:
            depth = half[axis] - side * corner[axis] + 1e-9
            point = along(point, depth, corner)
            weight += depth
            number += 1
    return (along((0.0, 0.0, 0.0), 1 / weight, point) if number else point), number


@njit
def common_point(c, e, half, body):
    """Return a common point of both boxes by alternating projections (von Neumann), box axes, and the remaining gap, m."""
    p, gap = c, 0.0
    for _ in range(12):
        on_box = clamp(p, half)
        d = along(on_box, -1.0, c)
        on_body = clamp((dot(d, e[0]), dot(d, e[1]), dot(d, e[2])), body.half)
        p = along(along(along(c, on_body[0], e[0]), on_body[1], e[1]), on_body[2], e[2])
        d = along(p, -1.0, on_box)
        gap = math.sqrt(dot(d, d))
    return p, gap


@njit
def contact_with(x, solids, i, body):
    """Return depth (m, 0 without contact), outward normal and point of the contact with box i, world axes."""
    zero = (0.0, 0.0, 0.0)
    a, b, f = column(solids.axes[i], 0), column(solids.axes[i], 1), column(solids.axes[i], 2)
    half, centre = solids.half[i], solids.centre[i]
    d = (x[0] - centre[0], x[1] - centre[1], x[2] - centre[2])
    c = (dot(a, d), dot(b, d), dot(f, d))
    axis = 0
    for k in (1, 2):
        if abs(c[k]) - half[k] > abs(c[axis]) - half[axis]:
            axis = k
    out = abs(c[axis]) - half[axis]
    q = (x[3], x[4], x[5], x[6])
    u, v, w = rotate(q, (1.0, 0.0, 0.0)), rotate(q, (0.0, 1.0, 0.0)), rotate(q, (0.0, 0.0, 1.0))
    e = (  # the body's axes in box axes
        (dot(a, u), dot(b, u), dot(f, u)),
        (dot(a, v), dot(b, v), dot(f, v)),
        (dot(a, w), dot(b, w), dot(f, w)),
    )
    reach = abs(e[0][axis]) * body.half[0] + abs(e[1][axis]) * body.half[1] + abs(e[2][axis]) * body.half[2]
    depth = reach - out
    if depth <= 0:
        return 0.0, zero, zero
    side = 1.0 if c[axis] >= 0 else -1.0
    point, number = corners_inside(c, e, half, body, axis, side)
    if number == 0:
        point, gap = common_point(c, e, half, body)
        if gap > TOLERANCE_M:
            return 0.0, zero, zero
    normal = along(zero, side, column(solids.axes[i], axis))
    p = along(along(along((centre[0], centre[1], centre[2]), point[0], a), point[1], b), point[2], f)
    return depth, normal, p


@njit
def mobility(r, n, inertia):
    """Return n . (J^-1 (r x n)) x r, the rotational part of the inverse effective mass at r along n; body axes."""
    a = cross(r, n)
    return a[0] * a[0] / inertia[0] + a[1] * a[1] / inertia[1] + a[2] * a[2] / inertia[2]


@njit
def strike(x, normal, point, body):
    """Apply the contact impulse to x[7:13] and return its magnitude, kg m/s; 0 when the bodies are separating.

    j_n = -(1 + e) v_n / (1/m + n . (J^-1 (r x n)) x r), |j_t| <= mu j_n. All in body axes.
    """
    q = (x[3], x[4], x[5], x[6])
    back = conjugate(q)
    r = rotate(back, (point[0] - x[0], point[1] - x[1], point[2] - x[2]))
    n = rotate(back, (normal[0], normal[1], normal[2]))
    velocity = along(rotate(back, (x[7], x[8], x[9])), 1.0, cross((x[10], x[11], x[12]), r))
    approach = -dot(velocity, n)
    if approach <= 0:
        return 0.0
    bounce = body.restitution if approach > REST_M_S else 0.0
    j = (1 + bounce) * approach / (1 / body.mass + mobility(r, n, body.inertia))
    impulse = along((0.0, 0.0, 0.0), j, n)
    slip = along(velocity, approach, n)
    speed = math.sqrt(dot(slip, slip))
    if speed > 1e-9:
        across = along((0.0, 0.0, 0.0), 1 / speed, slip)
        stop = speed / (1 / body.mass + mobility(r, across, body.inertia))
        impulse = along(impulse, -min(body.friction * j, stop), across)
    push, turn = rotate(q, impulse), cross(r, impulse)
    for k in range(3):
        x[7 + k] += push[k] / body.mass
        x[10 + k] += turn[k] / body.inertia[k]
    return math.sqrt(dot(impulse, impulse))


@njit
def collide(x, solids, first, body, impulses):
    """Resolve the contacts with all boxes from `first` on, in place: corrects x and adds to impulses (things,), kg m/s."""
    for i in range(first, len(solids.half)):
        if far(x, solids, i, body.radius):
            continue
        depth, normal, point = contact_with(x, solids, i, body)
        if depth > 0:
            impulses[solids.thing[i]] += strike(x, normal, point, body)
            for k in range(3):
                x[k] += depth * normal[k]


NO_RAY = -1  # index of a ray without a hit


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
        distance[n], box[n] = math.inf, NO_RAY
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
    """Cast rays from p_w (3,) m along unit vectors (N, 3), world, and return distances (N,), m, of the nearest hits within the
    range, infinite without one, and indices (N,) of the boxes hit, or NO_RAY."""
    distance, box = np.empty(len(directions_w)), np.empty(len(directions_w), np.int64)
    offset, radius = solids.centre - p_w, np.linalg.norm(solids.half, axis=1) * (1 + 1e-9)
    near = np.flatnonzero(np.linalg.norm(offset, axis=1) - radius <= range_m)
    about = near, offset[near], radius[near]
    _cast(np.asarray(p_w, float), np.ascontiguousarray(directions_w, float), solids, *about, distance, box, range_m)
    return distance, box
