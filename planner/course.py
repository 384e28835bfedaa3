"""The course as input of the optimiser: legs, solids, routes around them, and the free space in between.

A planar gate has three legs: to the plane at which its prism is entered, through the prism to the gate's plane, and on to the
plane at which the prism is left. Within the prism, which is convex, the path stays clear of walls and edges. Between gates
the outline of every frame is solid, its opening included: a gate is neither touched, nor passed out of turn, nor entered from
behind.

Where a leg is blocked, the initial guess is the shortest path around the solids, in a visibility graph (Lozano-Perez and
Wesley, 1979). The optimiser finds the best path on one side of a solid, but hardly ever changes the side.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from itertools import product as every
from typing import NamedTuple

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.planner.models import P
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import SolidBox, of_obstacle, stand
from gate_racer.vehicle.rotation import Array

# Clearance between body and bounds in units of the margin. Gates are measured by the camera, bounds are not. With 1.0, 4 of the 7
# flights lost in 80 unknown worlds hit the floor at the bottom of a dive.
FROM_BOUND = 2.5
TO_GATE = 0.5  # -, largest clearance to a bound as a fraction of its distance to the nearest gate's centre
ROUND_M = 0.02  # m, smoothing length of |x| and max(x, 0) in the constraints


class Solid(NamedTuple):
    """Box that the path keeps clear of; for a frame its outline, opening included."""

    box: SolidBox
    frame: int  # index of the frame's gate in the track; -1 for other solids
    name: str
    keep_m: float  # m, clearance of the vehicle's centre


@dataclass(frozen=True, eq=False)
class FreeSpace:
    """Free space of the vehicle's centre: a box of the world, low to high (3,) m, NED, without the inflated solids."""

    low: Array
    high: Array
    solids: tuple[Solid, ...]
    keep_m: float  # m, default clearance to a solid

    @staticmethod
    def of(task: Task) -> "FreeSpace":
        return FreeSpace(*_box(task), tuple(_solids(task)), task.keep_m)

    @cached_property
    def spheres(self) -> tuple[Array, Array]:
        """Centres (K, 3) and radii (K,), m, of spheres around the inflated solids."""
        radii = np.array([np.linalg.norm(solid.box.half) + solid.keep_m for solid in self.solids])
        return np.reshape([solid.box.centre for solid in self.solids], (-1, 3)), radii


def _solids(task: Task) -> list[Solid]:
    track = task.track
    found = [(of_obstacle(one), -1, f"obstacles[{i}]") for i, one in enumerate(track.obstacles)]
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if gate.is_ball:
            continue
        found.append((_outline(gate, task.margin_m), i, f"the frame of gates[{i}]"))
        if (post := stand(track, i)) is not None:
            found.append((post, -1, f"the stand of gates[{i}]"))
    return [Solid(box, frame, name, task.clear_m(name)) for box, frame, name in found]


def _outline(gate: Gate, margin_m: float) -> SolidBox:
    """Return the box around a planar gate's frame, opening included, or around a polygon's opening."""
    grown = max(gate.outer_m - gate.opening_m, 0.0) / 2
    low, high = gate.outline_m.min(axis=0) - grown, gate.outline_m.max(axis=0) + grown
    half = np.array([edge_half_m(gate, margin_m), *(high - low) / 2])
    return SolidBox(gate.p_wg + gate.R_wg[:, 1:] @ (low + high) / 2, gate.R_wg, half)


def edge_half_m(gate: Gate, margin_m: float) -> float:
    """Return the half length, m, of an opening's edges: a frame's half depth beyond the margin; a tunnel's whole half length."""
    return max(gate.depth_m / 2 - margin_m, gate.tunnel_m / 2, 0.0)


def _box(task: Task) -> tuple[Array, Array]:
    """Return lower and upper bounds (3,), m, of the vehicle's centre; see `FROM_BOUND`."""
    low, high = np.array(task.track.bounds.low_m), np.array(task.track.bounds.high_m)
    if not task.options.bounds_clear:
        return low, high
    gates = np.array([gate.p_wg for gate in task.track.gates])
    radius, most = task.vehicle.radius_m, FROM_BOUND * task.margin_m

    def kept(to_gates: Array) -> Array:
        return radius + np.clip(TO_GATE * (to_gates.min(axis=0) - radius), 0.0, most)

    return low + kept(gates - low), high - kept(high - gates)


@dataclass(frozen=True, eq=False)
class Leg:
    """Leg to a gate, or to rest at `end` (3,), m, world NED."""

    gate: Gate | None
    end: Array | None = None
    plane_m: float = 0.0  # m along the gate's axis, plane on which the leg ends
    inside: bool = False  # whether the leg stays within the gate's prism
    # m behind the gate up to which a straight extension stays within the prism, if the plan ends in the gate.
    coast_m: float = 0.0
    frame: int = -1  # index in the track of the gate whose frame surrounds the leg; -1 outside of frames
    edge_half_m: float = 0.0  # m, half length of the opening's edges along the gate's axis
    # (E,) m, distance from the vehicle's centre to each edge of the opening, or to the ball's surface.
    keep_m: Array = field(default_factory=lambda: np.zeros(0))
    wall_m: float = 0.0  # m, distance from the vehicle's centre to the walls of the opening's prism
    slot_m: float | None = None  # m, distance from the body's box to the walls of a slot; None where its sphere passes
    see: float = 0.0  # -, share of the section that ends with this leg over which its gate is in view
    lean: float = 0.0  # sign of the component of the body's z axis across a slot; 0 for either

    @property
    def passes(self) -> bool:
        """Whether the leg ends with the passage of a gate or a stop."""
        return self.plane_m == 0

    @property
    def in_slot(self) -> bool:
        return self.inside and self.slot_m is not None

    @property
    def slot_axes(self) -> Array:
        """Axes (3, 3) of a slot as rows, world: across its width, along its length, and the gate's."""
        assert self.gate is not None
        n_y, n_z, _ = min(self.gate.edges, key=lambda edge: edge[2])
        return np.array([[0, n_y, n_z], [0, -n_z, n_y], [1, 0, 0]]) @ self.gate.R_wg.T

    @cached_property
    def target(self) -> Array:
        """Target point (3,), m, world NED."""
        if self.gate is not None:
            return self.gate.p_wg + self.plane_m * self.gate.R_wg[:, 0]
        assert self.end is not None
        return self.end


def legs(task: Task, space: FreeSpace) -> list[Leg]:
    """Return the legs of the whole flight. Raises UserError if the vehicle cannot pass a gate, or leave its start."""
    result: list[Leg] = []
    for i in range(len(task.gates)):
        last = i + 1 == len(task.gates)
        parts = _passage(task, i, last and task.end_m is None and task.begin is not None)
        _require_room(f"gates[{task.number(i)}]", parts, task, space)
        result += parts
        if last and task.begin is None and parts[-1].inside:
            result = [result.pop(), *result]  # a lap that ends in a gate begins by leaving it
    if task.end_m is not None:
        result.append(Leg(None, np.array(task.end_m)))
        _require_room("the end position", result[-1:], task, space)
    return result if task.begin is None else _from_start(result, np.array(task.begin.position_m), task, space)


def _portal_m(task: Task, edge_m: float) -> float:
    """Return the distance in m from a gate's plane to the planes at which its prism is entered and left, clear of its frame."""
    return max(task.passage_m, edge_m + task.keep_m) + ROUND_M


def _passage(task: Task, i: int, coasts: bool) -> list[Leg]:
    """Return the legs to and through the i-th gate of the flight; without the leg out of it if the plan ends there."""
    gate, keep = task.gates[i], task.keeps_m(i)
    if gate.is_ball:
        return [Leg(gate, keep_m=keep, see=task.see(i))]
    slot, wall, ball = None, task.body_m, task.vehicle.radius_m
    if task.is_slot(gate):
        slot, wall, ball = task.slot_margin_m(gate), float(keep.min()), task.thinnest_m
    edge = edge_half_m(gate, float(keep.min()) - ball)
    portal, frame = _portal_m(task, edge), task.landmarks[i]
    to = Leg(gate, plane_m=-portal, edge_half_m=edge, keep_m=keep, wall_m=wall, slot_m=slot)
    through = replace(to, plane_m=0.0, inside=True, coast_m=portal if coasts else 0.0, frame=frame, see=task.see(i))
    return [to, through] if coasts else [to, through, replace(through, plane_m=portal, see=0.0)]


def _from_start(parts: list[Leg], p0: Array, task: Task, space: FreeSpace) -> list[Leg]:
    """Return the legs of a flight that begins at p0 (3,): inside a gate's prism it first leaves that gate, or passes it."""
    track, ahead = task.track, parts[0].gate
    if ahead is not None and not ahead.is_ball and _within(ahead, p0, task.body_m, parts[0].plane_m, 0.0):
        return parts[1:]
    for i, gate in enumerate(track.gates):
        edge = edge_half_m(gate, task.margin_m)
        portal = 0.0 if gate.is_ball else _portal_m(task, edge)
        if portal and _within(gate, p0, task.body_m, -portal, portal):
            keep = np.full(len(gate.edges), task.keep_m)
            to = Leg(gate, plane_m=portal, edge_half_m=edge, keep_m=keep, wall_m=task.body_m)
            return [replace(to, inside=True, frame=track.landmarks[i]), *parts]
    for solid in space.solids:
        off = float(solid.box.distance(p0))
        if off < solid.keep_m:
            place = f"the start lies {off:.2f} m from {solid.name}"
            raise UserError(f"{track.name}: {place}, at least {solid.keep_m:.2f} m are needed")
    return parts


def _within(gate: Gate, p_w: Array, body: float, low: float, high: float) -> bool:
    return low < gate.local(p_w)[0] < high and gate.margin(p_w) > body


def _require_room(where: str, parts: list[Leg], task: Task, space: FreeSpace) -> None:
    """Check that the vehicle fits at the end of each leg to a goal named `where`. Raises UserError if not."""
    gate, name, keep, where = parts[0].gate, task.vehicle.name, task.keep_m, f"{task.track.name}: {where}"
    if gate is not None and not gate.is_ball:
        least = float(min(parts[0].keep_m))
        fits = task.thinnest_m if task.is_tight(gate) else least
        if gate.half <= fits:
            size = f"the opening of {2 * gate.half:g} m is too small"
            raise UserError(f"{where}: {size}, {name} needs more than {2 * fits:.2f} m")
        keep = keep if parts[0].slot_m is not None else least
    centres, radii = space.spheres
    for leg in parts:
        ends, others = _ends(leg), list[str]()
        clear = ((ends >= space.low) & (ends <= space.high)).all(axis=1)
        reach = np.linalg.norm(ends - leg.target, axis=1).max()
        for i in np.flatnonzero(np.linalg.norm(centres - leg.target, axis=1) < radii + reach):
            solid = space.solids[i]
            if solid.frame < 0 or gate is None or not gate.same_frame(task.track.gates[solid.frame]):
                clear &= solid.box.distance(ends) >= solid.keep_m
                others += [solid.name] if solid.box.distance(leg.target) < keep else []
        if not clear.any():
            at = f"{abs(leg.plane_m):.2f} m {'before' if leg.plane_m < 0 else 'behind'} it" if leg.plane_m else "there"
            what = " and ".join(others) or "its edges, the bounds, the obstacles and other gates"
            raise UserError(f"{where}: no position {at} is {keep:.2f} m clear of {what}")


def _ends(leg: Leg) -> Array:
    """Return a grid of points (M, 3), m, at which the leg may end, apart from solids and bounds."""
    side, gate = np.linspace(-1, 1, 9), leg.gate
    if gate is None:
        return leg.target[None]
    if gate.is_ball:
        radius = gate.half - leg.keep_m[0]
        points = leg.target + radius * np.array([(x, y, z) for x in side for y in side for z in side])
        return points[np.linalg.norm(points - leg.target, axis=1) <= radius]
    reach, keep = gate.edges[:, 2].max(), leg.keep_m if leg.passes else leg.wall_m
    points = reach * np.array([(0, y, z) for y in side for z in side])
    room = gate.edges[:, 2] - points[:, 1:] @ gate.edges[:, :2].T
    return np.vstack([leg.target, leg.target + points[(room >= keep).all(axis=1)] @ gate.R_wg.T])


class Side(NamedTuple):
    """Choice for a leg between two targets: it passes a solid beyond the face of its box at `sign` on `axis`."""

    leg: int
    solid: int  # index in the free space
    through: int  # axis of the box along which the leg leads past it
    axis: int
    sign: int

    def open_only(self, box: SolidBox) -> SolidBox:
        """Return the box, extended so far that there is no way past it on the other sides."""
        low, high = -box.half, box.half.copy()
        other = 3 - self.through - self.axis
        low[other], high[other] = -FAR_M, FAR_M
        closed = low if self.sign > 0 else high
        closed[self.axis] = -self.sign * FAR_M
        return SolidBox(box.centre + box.axes @ (low + high) / 2, box.axes, (high - low) / 2)


def crossings(course: "Course") -> list[list[Side]]:
    """Return the sides of each solid on the straight line of a leg, for all legs in order."""
    found, before = [], course.legs[-1].target if course.x0 is None else course.x0[P]
    for i, leg in enumerate(course.legs):
        a, b, before = before, leg.target, leg.target
        for k, solid in enumerate(() if leg.inside else course.space.solids):
            grown = solid.box._replace(half=solid.box.half + solid.keep_m)
            if grown.meets(a, b) and solid.box.distance(np.stack([a, b])).min() > solid.keep_m:
                ends = [(end - solid.box.centre) @ solid.box.axes for end in (a, b)]
                past = (np.minimum(*ends) < -grown.half) & (np.maximum(*ends) > grown.half)
                for through in np.flatnonzero(past)[:1].tolist():
                    across = [axis for axis in range(3) if axis != through]
                    found.append([Side(i, k, through, axis, sign) for axis in across for sign in (-1, 1)])
    return found


SOLIDS_MOST = 8  # solids whose sides are tried (chosen)


class NoWayError(UserError):
    """Solids and bounds leave no way to a gate."""


def try_sides(course: "Course", first_s: float, solve: Callable[[tuple[Side, ...]], float]) -> None:
    """Try all sides of one solid after another, each with those that were best for the others; `first_s`: time without a choice.

    `solve` returns the flight time, s, with these sides, inf without a solution, and may raise NoWayError.
    """
    chosen, best_s = tuple[Side, ...](), first_s
    for sides in crossings(course)[:SOLIDS_MOST]:
        best: tuple[Side, ...] = ()
        for side in sides:
            with contextlib.suppress(NoWayError):
                if (time_s := solve((*chosen, side))) < best_s:
                    best, best_s = (side,), time_s
        chosen += best


def way_to(course: "Course", i: int, begin: Array, sides: Sequence[Side]) -> Array:
    """Return the vertices (K, 3), m, of leg i's shortest free way from `begin`, on these sides. Raises NoWayError without one."""
    leg, space = course.legs[i], course.space
    if leg.inside:
        return np.stack([begin, leg.target])
    around = [solid.box for solid in space.solids]
    for side in sides:
        if side.leg == i:
            around[side.solid] = side.open_only(around[side.solid])
    way = route(begin, leg.target, around, space.keep_m, space.low, space.high)
    if way is None:
        why = f"no path inside the bounds is {space.keep_m:.2f} m clear of obstacles and gates"
        raise NoWayError(f"{course.task.track.name}: {course.destination(i)}: cannot be reached: {why}")
    return way


FAR_M = 1e4  # m, beyond all bounds
ASIDE = 1.02  # -, distance of the graph's points over the clearance, so that lines along a face are free
EVEN = np.linspace(0.0, 1.0, 5)  # positions of the graph's points along an edge, besides those nearest to both ends


def route(begin: Array, end: Array, solids: Sequence[SolidBox], keep: float, low: Array, high: Array) -> Array | None:
    """Return the vertices (K, 3), m, of the shortest path found from begin to end within the bounds (3,), or None.

    Solids nearer than `keep`, m, to an end are ignored.
    """
    path, known = np.stack([begin, end]), dict[int, SolidBox]()
    centres = np.array([solid.centre for solid in solids]).reshape(-1, 3)
    radii = np.linalg.norm(np.array([solid.half for solid in solids]).reshape(-1, 3) + keep, axis=1)
    while True:
        near = np.any([_off(centres, a, b) < radii for a, b in pairwise(path)], axis=0)
        new = {}
        for k in sorted(set(np.flatnonzero(near).tolist()) - set(known)):
            grown = solids[k]._replace(half=solids[k].half + keep)
            if solids[k].distance(path[[0, -1]]).min() > keep and grown.meets(path[:-1], path[1:]).any():
                new[k] = grown
        if not new:
            return path
        known |= new
        corners = [_edge_points(box, (ASIDE - 1) * keep, begin, end) for box in known.values()]
        points = np.concatenate([path[[0, -1]], *corners])
        inside = ((points >= low) & (points <= high)).all(axis=1)
        found = _shortest(points[inside | (np.arange(len(points)) < 2)], list(known.values()))
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
    step = b - a
    share = np.clip((points - a) @ step / max(float(step @ step), 1e-12), 0.0, 1.0)
    return np.linalg.norm(points - a - share[:, None] * step, axis=1)


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
        length[box.meets(a, b)] = 0.0  # no edge of the graph
    distance, before = dijkstra(length, indices=0, return_predecessors=True)
    if not np.isfinite(distance[1]):
        return None
    path = [1]
    while path[-1] != 0:
        path.append(int(before[path[-1]]))
    return points[path[::-1]]


LEG_MOST_M = 1500.0  # m, longest leg (chosen): a leg that takes minutes would need thousands of nodes
BLIND = 0.15  # -, last fraction of the way to a gate on which it may leave the image (chosen)


@dataclass(frozen=True, eq=False)
class Course:
    """Legs of a task with the initial state. A "section" is the sequence of legs from one gate passage to the next."""

    task: Task
    space: FreeSpace
    legs: tuple[Leg, ...]
    x0: Array | None  # (NX,) initial state; None for a flying lap
    from_pad: bool  # whether the flight begins at rest on the pad
    flown_share: float = 0.0  # -, fraction of the first section, in time, already flown

    @cached_property
    def sections(self) -> list[list[int]]:
        """Indices of the legs from one passage to the next; the last leg of each list ends in a passage."""
        result: list[list[int]] = [[]]
        for i, leg in enumerate(self.legs):
            result[-1].append(i)
            if leg.passes and i + 1 < len(self.legs):
                result.append([])
        return result

    @property
    def has_slots(self) -> bool:
        return any(leg.in_slot for leg in self.legs)

    @cached_property
    def lengths_m(self) -> Array:
        """Distances (L,), m, from the end of each leg before, or the start, to that of the leg."""
        ends = np.array([leg.target for leg in self.legs])
        begin = ends[-1] if self.x0 is None else self.x0[P]
        return np.linalg.norm(np.diff(ends, axis=0, prepend=begin[None]), axis=1)

    @property
    def blind(self) -> "Course":
        """The course without gates that have to be in view."""
        task = replace(self.task, options=replace(self.task.options, see=0.0, see_by_gate=None, sight_s=0.0))
        return replace(self, legs=tuple(replace(leg, see=0.0) for leg in self.legs), task=task)

    @property
    def longest_section_m(self) -> float:
        """Length of the longest section, m, in straight lines between the ends of its legs."""
        return max(float(self.lengths_m[parts].sum()) for parts in self.sections)

    def looks(self, parts: list[int]) -> bool:
        """Whether the gate at a section's end has to be in view on the way to it."""
        leg = self.legs[parts[-1]]
        return leg.gate is not None and leg.gate.visible and (leg.see > 0 or self.task.options.sight_s > 0)

    def view_window(self, parts: list[int], near: float, passed: float) -> tuple[float, float]:
        """Return the times, s, between which the gate of a section, within range from `near` until passed, stays in the image."""
        see, left = self.legs[parts[-1]].see, passed - near
        end = near + (1 - BLIND) * left
        return min(near + (1 - BLIND - see) * left, end - self.task.options.sight_s), end

    def in_range(self, parts: list[int], t: Array, path: Array) -> float:
        """Return the time, s, from which the gate at a section's end is within detection range of positions (M, 3) at t (M,)."""
        gate = self.legs[parts[-1]].gate
        if gate is None:
            return float(t[0])
        beyond = np.linalg.norm(path - gate.p_wg, axis=1) - self.task.view_range_m(gate)
        last = int(np.flatnonzero(beyond > 0).max(initial=-1))
        if last < 0 or last + 1 == len(t):
            return float(t[last if last >= 0 else 0])
        return float(np.interp(0.0, -beyond[last : last + 2], t[last : last + 2]))

    def stretch(self, legs: slice, x0: Array | None) -> "Course":
        """Return the course of these legs alone, with initial state x0."""
        return replace(self, legs=self.legs[legs], x0=x0, from_pad=self.from_pad and legs.start == 0)

    def destination(self, i: int) -> str:
        if self.legs[i].gate is None:
            return "the end position"
        return f"gates[{self.task.number(sum(leg.passes for leg in self.legs[:i]))}]"


def resolve(task: Task) -> Course:
    """Resolve the course of a task. Raises UserError: a gate is too small, blocked or too far, or the start is blocked."""
    x0, space = task.x0, FreeSpace.of(task)
    from_pad = task.begin is not None and task.options.start is None
    course = Course(task, space, tuple(legs(task, space)), x0, from_pad)
    for i in np.flatnonzero(course.lengths_m > LEG_MOST_M)[:1]:
        lies = f"lies {course.lengths_m[i]:.0f} m from the previous goal; a leg may have {LEG_MOST_M:g} m at most"
        raise UserError(f"{task.track.name}: {course.destination(int(i))}: {lies}")
    return course
