"""Constraint terms of the time-optimal problem, which holds a list of them.

Between nodes the path is the cubic Hermite interpolant. Few long expressions are differentiated faster than many short ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import inf
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from gate_racer.planner.course import ROUND_M, Course, Leg
from gate_racer.planner.mesh import Mesh, Point, intervals, leg_numbers
from gate_racer.planner.models import HOLDING, C, Model, P, Q, V, W
from gate_racer.planner.nlp import Block, Rows
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import SolidBox, of_obstacle
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, conjugate, rotate

SIGNS = tuple(product((-1.0, 1.0), repeat=3))  # sign patterns that express a sum of three magnitudes by linear rows
TWO_SIGNS = tuple(product((-1.0, 1.0), repeat=2))
TURN_S = 0.03  # s, typical length of an interval, which scales these rows


@dataclass(frozen=True)
class Nodes:
    """Symbolic trajectory on a mesh of N intervals, and the present iterate, from which active constraints are selected."""

    mesh: Mesh
    durations: Array  # (L,) s, of the present iterate's legs
    path: Array  # (N + 1, 3) m, nodes of the present iterate
    before: Any  # (NX, N) states at the beginning of each interval
    after: Any  # (NX, N) states at the end of each interval
    u: Any  # (NU, N) inputs, constant over each interval
    dt: Any  # (1, N) s, lengths of the intervals
    velocity: slice  # indices of the velocity in a state
    still: Any  # (K, N) expressions at the end of each interval that vanish in hover
    slack: Any = None  # -, tangent by which gates may be out of view, a penalised variable; None for a hard constraint

    @cached_property
    def ends(self) -> tuple[Any, Any, Any, Any]:
        """p, v at the beginnings and p, v at the ends of the intervals, (3, N) each."""
        v = self.velocity
        return self.before[P, :], self.before[v, :], self.after[P, :], self.after[v, :]

    @cached_property
    def motion(self) -> Any:
        """p, v at both ends of the intervals, and their lengths, (13, N)."""
        return ca.vertcat(*self.ends, self.dt)

    @property
    def legs(self) -> np.ndarray:
        return leg_numbers(self.mesh)


class Term(ABC):
    """Constraint of one kind, on all legs."""

    mesh_free = False  # whether its rows, and so their multipliers, are the same on every mesh

    @abstractmethod
    def rows(self, nodes: Nodes) -> list[Rows]:
        """Return its constraints on a trajectory."""

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return for each interval, (N,), whether a candidate with positions (S, N, 3), m, violates it between nodes."""
        return np.zeros(path.shape[1], dtype=bool)


@dataclass(frozen=True)
class ModelLimits(Term):
    """Limits of speed, of the thrust's rate, and by the torque left beside the thrust, if known (`vehicle.dynamics.authority`):

    of the angular acceleration, and of the speed across the rotors, at which the air turns the body.
    """

    model: Model

    def rows(self, nodes: Nodes) -> list[Rows]:
        model, v, rows = self.model, nodes.after[nodes.velocity, :], list[Rows]()
        if model.speed_max < inf:
            count = v.shape[1]
            rows.append(Rows((ca.sum1(v**2) / model.speed_max).T, np.zeros(count), np.full(count, model.speed_max)))
        if model.thrust_rate_max < inf:
            dt = ca.repmat(nodes.dt, nodes.u.shape[0], 1)
            rates = ca.vec(model.thrust_rates(nodes.before, nodes.u, dt)) / model.thrust_rate_max
            rows.append(Rows(rates, np.full(rates.numel(), -1.0), np.ones(rates.numel())))
        if not np.isinf(model.slew_max).all():
            change = ca.DM(SIGNS) @ ((nodes.after[W, :] - nodes.before[W, :]) / model.slew_max)
            room = [model.turning(ends[C, :]) * nodes.dt for ends in (nodes.before, nodes.after)]
            rows += [Rows.not_negative((ca.repmat(one, len(SIGNS), 1) - change) / TURN_S) for one in room]
        if model.held.any():
            q, c = (nodes.after[at, :] for at in (Q, C))
            v_b = rotate(conjugate(ca.vertsplit(q)), ca.vertsplit(v))
            held = ca.DM(TWO_SIGNS) @ ca.vertcat(*(by * one for by, one in zip(model.held, v_b, strict=False)))
            rows += [
                Rows.not_negative(room - held) for room in (ca.repmat(model.holding(c), len(TWO_SIGNS), 1), HOLDING)
            ]
        return rows

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return intervals on which the speed exceeds its limit between the nodes."""
        dt, s = intervals(mesh, point.durations), np.linspace(0.0, 1.0, len(path))
        speed = np.linalg.norm([cubic_rate(*_both_ends(point), dt, at) for at in s], axis=1)
        return np.asarray((speed > (1 + STRAY_SPEED) * self.model.speed_max).any(axis=0))


CROSSING_SPEED_MIN = 0.5  # m/s, least speed along the gate's axis at its crossing (chosen)


@dataclass(frozen=True)
class LegEnds(Term):
    """Constraint of each leg's end to its gate's opening or ball, or to rest at its target."""

    course: Course
    mesh_free = True

    def rows(self, nodes: Nodes) -> list[Rows]:
        last = (np.cumsum([len(fractions) for fractions in nodes.mesh]) - 1).tolist()
        _, _, p, v = (end[:, last] for end in nodes.ends)
        legs, still = self.course.legs, nodes.still[:, last]
        flat = [i for i, leg in enumerate(legs) if leg.gate is not None and not leg.gate.is_ball]
        balls = [i for i, leg in enumerate(legs) if leg.gate is not None and leg.gate.is_ball]
        rows: list[Rows] = []
        if balls:
            radii = np.array([gate.half - legs[i].keep_m[0] for i in balls if (gate := legs[i].gate) is not None])
            off = p[:, balls] - np.column_stack([legs[i].target for i in balls])
            rows.append(Rows((ca.sum1(off**2) / radii[None]).T, [0.0] * len(balls), radii))
        if flat:
            rows += _planes([legs[i] for i in flat], p[:, flat], v[:, flat])
        for i, leg in enumerate(legs):
            if leg.gate is None:
                rows.append(Rows.zero(ca.vertcat(p[:, i] - leg.target, v[:, i], still[:, i])))
        return rows


def _planes(legs: list[Leg], p: Any, v: Any) -> list[Rows]:
    """Return constraints of legs that end on a plane: inside the opening's prism, and with the margin on the gate's own plane:

    (h - n p) cos(slope) >= keep, so that an oblique passage narrows the window; in a tunnel, at both ends.
    """
    gates = [leg.gate for leg in legs if leg.gate is not None]
    turn = ca.diagcat(*[ca.DM(gate.R_wg.T) for gate in gates])
    p_g = ca.reshape(turn @ ca.vec(p - np.column_stack([gate.p_wg for gate in gates])), 3, len(legs))
    v_g = ca.reshape(turn @ ca.vec(v), 3, len(legs))
    planes = [leg.plane_m for leg in legs]
    portals, sides, keeps, coasts, passed = [], [], list[float](), [], [k for k, leg in enumerate(legs) if leg.passes]
    for k, (leg, gate) in enumerate(zip(legs, gates, strict=True)):
        depth = leg.edge_half_m
        for (n_y, n_z, h), keep in zip(gate.edges, leg.keep_m, strict=True):
            if not leg.passes:
                portals.append((k, n_y, n_z, h - leg.wall_m, 0.0))
                continue
            ends = (-depth, depth) if depth else (0.0,)
            sides += [(k, n_y, n_z, h, end) for end in ends]
            keeps += [keep] * len(ends)
            coasts += [(k, n_y, n_z, h - leg.wall_m, leg.coast_m)] if leg.coast_m else []

    def at_edges(edges: list[tuple[int, float, float, float, float]]) -> tuple[Any, Any, Any, Any]:
        """Return rows (1, E): distance inside each edge, speeds along the gate's axis and towards the edge, given length."""
        k, (n_y, n_z, h, end) = [edge[0] for edge in edges], (row[None] for row in np.array(edges).T[1:])
        inside = h - n_y * p_g[1, k] - n_z * p_g[2, k]
        return inside, v_g[0, k], n_y * v_g[1, k] + n_z * v_g[2, k], end

    rows = [Rows(ca.vec(p_g[0, :]), planes, planes)]
    if passed:
        rows.append(Rows(ca.vec(v_g[0, passed]), [CROSSING_SPEED_MIN] * len(passed), [ca.inf] * len(passed)))
    if portals:
        rows.append(Rows.not_negative(at_edges(portals)[0]))
    if sides:
        inside, along, out, end = at_edges(sides)
        rows.append(Rows.not_negative(inside * along - end * out - ca.DM(keeps).T * ca.sqrt(along**2 + out**2 + 1e-6)))
    if coasts:
        inside, along, out, end = at_edges(coasts)
        rows.append(Rows.not_negative(inside * along - end * out))
    return rows


ALONG = (0.25, 0.5, 0.75, 1.0)  # -, points of an interval at which clearance to solids is imposed
THROUGH = (0.5,)  # -, points of an interval within a gate; its ends lie on planes with constraints of their own
SHARPNESS = 10.0  # -, sharpness of the smooth maximum, times the clearance
STRAY_M = 1e-3  # m, violation of a clearance between nodes above which the interval is halved
STRAY_SPEED = 8e-4  # -, likewise of the speed limit, relative: a little less than the certificate tolerates


def cubic(p0: Any, v0: Any, p1: Any, v1: Any, dt: Any, s: Any) -> Any:
    """Return the position at the fraction s of an interval of length dt, s, by cubic Hermite interpolation; CasADi or NumPy."""
    ends = (1 + 2 * s) * (1 - s) ** 2 * p0 + s**2 * (3 - 2 * s) * p1
    return ends + dt * (s * (1 - s) ** 2 * v0 - s**2 * (1 - s) * v1)


def cubic_rate(p0: Any, v0: Any, p1: Any, v1: Any, dt: Any, s: float) -> Any:
    return 6 * s * (1 - s) * (p1 - p0) / dt + (1 - s) * (1 - 3 * s) * v0 - s * (2 - 3 * s) * v1


def rounded(x: Any) -> tuple[Any, Any]:
    """Return a smooth |x|, and a smooth upper bound of max(x, 0)."""
    return ca.sqrt(x**2 + 1e-8), 0.5 * (x + ca.sqrt(x**2 + ROUND_M**2))


def _ends() -> tuple[Any, Any, Any, Any, Any]:
    p0, v0, p1, v1 = (ca.SX.sym(name, 3) for name in ("p0", "v0", "p1", "v1"))
    return p0, v0, p1, v1, ca.SX.sym("dt")


@cache
def outside(thin: bool) -> Block:
    """Build (p_k, v_k, p_k+1, v_k+1, dt; centre, axes, half, keep) -> values, nonnegative if the cubic is clear of a box.

    Each is a smooth maximum of the distances to the box's faces, minus `keep`; for a `thin` box the squared distance, so that the
    inflated edges are rounded with radius `keep`.
    """
    ends, centre, axes, half = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9), ca.SX.sym("half", 3)
    keep, values = ca.SX.sym("keep"), []
    for s in ALONG:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        beyond = [rounded(p[i])[0] - half[i] for i in range(3)]
        if thin:
            values.append(sum(rounded(one)[1] ** 2 for one in beyond) / keep - keep)
        else:
            most, k = ca.fmax(ca.fmax(*beyond[:2]), beyond[2]), SHARPNESS / keep
            values.append(most + ca.log(sum(ca.exp(k * (one - most)) for one in beyond)) / k - keep)
    name = "outside_plate" if thin else "outside_box"
    return Block.of(name, ca.vertcat(*ends), ca.vertcat(centre, axes, half, keep), ca.vertcat(*values))


@cache
def within_prism(edges: int) -> Block:
    """Build (p_k, v_k, p_k+1, v_k+1, dt; centre, axes, edges, half depth, body, keeps) -> values, nonnegative if the cubic is

    at least `body` inside each edge's plane and its `keep` away from each edge, which extends `half depth` to both sides.
    """
    ends, centre, axes = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9)
    lines, depth, body = ca.SX.sym("lines", 3 * edges), ca.SX.sym("depth"), ca.SX.sym("body")
    keeps = ca.SX.sym("keeps", edges)
    values = []
    for s in THROUGH:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        beyond = rounded(rounded(p[0])[0] - depth)[1] ** 2
        for i in range(edges):
            (n_y, n_z, h), keep = ca.vertsplit(lines[3 * i : 3 * i + 3]), keeps[i]
            inside = h - n_y * p[1] - n_z * p[2]
            values += [inside - body, (beyond + inside**2) / keep - keep]
    given = ca.vertcat(centre, axes, lines, depth, body, keeps)
    return Block.of(f"within_prism{edges}", ca.vertcat(*ends), given, ca.vertcat(*values))


class ClearOfSolids(Term):
    """Clearance to every solid near the present path, except the frame of the gate being passed."""

    def __init__(self, course: Course, near_m: float):
        self.space, self._near_m = course.space, near_m
        self._frames = np.array([leg.frame for leg in course.legs])

    def rows(self, nodes: Nodes) -> list[Rows]:
        result, near, solids = [], self.near(nodes.path, nodes.legs), self.space.solids
        for thin in (True, False):
            pairs = [(k, i) for k, i in near if (solids[i].frame >= 0) == thin]
            if pairs:
                at = [k for k, _ in pairs]
                boxes = [(solids[i].box, solids[i].keep_m) for _, i in pairs]
                given = [[*box.centre, *box.axes.T.ravel(), *box.half, keep] for box, keep in boxes]
                result.append(Rows.not_negative_blocks(outside(thin), nodes.motion[:, at], ca.DM(np.array(given).T)))
        return result

    def near(self, path: Array, legs: np.ndarray) -> list[tuple[int, int]]:
        """Return pairs (interval, solid) near a path (N + 1, 3) on legs (N,), without frames that a leg stays on one side of."""
        middle, length = 0.5 * (path[1:] + path[:-1]), np.linalg.norm(np.diff(path, axis=0), axis=1)
        own, pairs = self._frames[legs], list[tuple[int, int]]()
        for i, solid in enumerate(self.space.solids):
            close = solid.box.distance(middle) < self._near_m + 0.5 * length
            if solid.frame >= 0 and close.any():
                x = (path - solid.box.centre) @ solid.box.axes[:, 0]
                clear = solid.box.half[0] + solid.keep_m + ROUND_M / 2
                one_side = (np.minimum(x[1:], x[:-1]) >= clear) | (np.maximum(x[1:], x[:-1]) <= -clear)
                beside = np.isin(legs, legs[close & ~one_side & (own != solid.frame)])
                close &= beside & (own != solid.frame)
            pairs += [(int(k), i) for k in np.flatnonzero(close)]
        return sorted(pairs)

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        result, own = super().strays(mesh, point, path), self._frames[leg_numbers(mesh)]
        middle, reach = path[len(path) // 2], np.linalg.norm(path[-1] - path[0], axis=1)
        for solid in self.space.solids:
            close = solid.box.distance(middle) < solid.keep_m + reach
            close &= (solid.frame < 0) | (own != solid.frame)
            at = np.flatnonzero(close)
            result[at] |= (solid.box.distance(path[:, at]) < solid.keep_m - STRAY_M).any(axis=0)
        return result


@dataclass(frozen=True)
class WithinPrisms(Term):
    """Constraint of the body to the prism of an opening on the way through it, with the margin to the opening's edges."""

    course: Course

    def rows(self, nodes: Nodes) -> list[Rows]:
        legs = ((k, self.course.legs[i]) for k, i in enumerate(nodes.legs))
        passed = [(k, leg, leg.gate) for k, leg in legs if leg.inside and leg.gate is not None]
        result = []
        for count in {len(gate.edges) for _, _, gate in passed}:
            these = [one for one in passed if len(one[2].edges) == count]
            given = []
            for _, leg, gate in these:
                opening = *gate.p_wg, *gate.R_wg.T.ravel(), *gate.edges.ravel()
                given.append([*opening, leg.edge_half_m, leg.wall_m, *leg.keep_m])
            motion = nodes.motion[:, [k for k, _, _ in these]]
            result.append(Rows.not_negative_blocks(within_prism(count), motion, ca.DM(np.array(given).T)))
        return result

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return intervals on which the body comes too near to an edge, over the frame's whole depth, or leaves the prism."""
        result, own = super().strays(mesh, point, path), leg_numbers(mesh)
        for i, leg in enumerate(self.course.legs):
            if leg.inside and leg.gate is not None:
                at = np.flatnonzero(own == i)
                p_g, depth_m = leg.gate.local(path[:, at]), leg.gate.depth_m if leg.frame >= 0 else 0.0
                inside = leg.gate.edges[:, 2] - p_g[..., 1:] @ leg.gate.edges[:, :2].T
                beyond = np.maximum(np.abs(p_g[..., 0]) - max(depth_m, leg.gate.tunnel_m) / 2, 0.0)
                least = inside.min(axis=-1)
                radius = self.course.task.vehicle.radius_m if leg.slot_m is None else leg.wall_m
                short = np.hypot(beyond, least) < radius - STRAY_M
                result[at] |= (short | (least < leg.wall_m - STRAY_M)).any(axis=0)
        return result


def sampled(mesh: Mesh, point: Point) -> Array:
    """Return positions (9, N, 3), m, of a candidate along each interval, both ends included."""
    dt = intervals(mesh, point.durations)
    return np.stack([cubic(*_both_ends(point), dt, s).T for s in np.linspace(0, 1, 9)])


def _both_ends(point: Point) -> tuple[Array, Array, Array, Array]:
    return point.x[P, :-1], point.x[V, :-1], point.x[P, 1:], point.x[V, 1:]


def strays(terms: Sequence[Term], mesh: Mesh, point: Point) -> np.ndarray:
    """Return for each interval, (N,), whether a candidate violates one of the terms between its nodes."""
    path = sampled(mesh, point)
    return np.any([term.strays(mesh, point, path) for term in terms], axis=0)


# Fraction of the half image within which the gate's centre stays. With 0.85, plans of VQ2 never had the whole opening in view on
# the way to 7 of 17 gates.
VIEW_FRACTION = 0.7
SIGHT_M = 0.3  # m, distance of a line of sight from an obstacle below which it is kept aside (chosen)
SHARE_SLACK = 5e-3  # -, tolerance of the visible fraction, by which nodes may miss the ends of the window


def view_normals(camera: Camera) -> Array:
    """Return the inward normals (4, 3), body axes, of the pyramid of view: |x_c| <= k_x z_c, |y_c| <= k_y z_c, camera RDF."""
    kx = VIEW_FRACTION * min(camera.cx_px, camera.width_px - camera.cx_px) / camera.fx_px
    ky = VIEW_FRACTION * min(camera.cy_px, camera.height_px - camera.cy_px) / camera.fy_px
    return np.array([[-1, 0, kx], [1, 0, kx], [0, -1, ky], [0, 1, ky]]) @ camera.R_bc.T


@cache
def sight_past_box() -> Block:
    """Build (p; target, centre, axes, half, faces) -> 2 values, nonnegative if the line from p to the target clears a box.

    It leads through the box along the first axis: where it meets each of two planes normal to that, `faces` from the centre, the
    smooth maximum of the distances to the four other faces.
    """
    p, target, centre, half = (ca.SX.sym(name, 3) for name in ("p", "target", "centre", "half"))
    axes, faces, values = ca.SX.sym("axes", 9), ca.SX.sym("faces", 2), []
    a, b = (ca.reshape(axes, 3, 3).T @ (point - centre) for point in (p, target))
    for face in ca.vertsplit(faces):
        met = a + (face - a[0]) / (b[0] - a[0]) * (b - a)
        y, z = (rounded(met[i])[0] - half[i] for i in (1, 2))
        values.append((y + z + ca.sqrt((y - z) ** 2 + ROUND_M**2)) / 2)
    return Block.of("sight_past_box", p, ca.vertcat(target, centre, axes, half, faces), ca.vertcat(*values))


def lines_of_sight(p_w: Array, targets: Array, boxes: Sequence[SolidBox]) -> list[tuple[int, Array]]:
    """Return pairs of a line, from p_w (K, 3) to a target (K, 3), and the parameters of `sight_past_box` for a near box."""
    pairs = []
    for box in boxes:
        for k in np.flatnonzero(box._replace(half=box.half + SIGHT_M).meets(p_w, targets)):
            a, b = ((point - box.centre) @ box.axes for point in (p_w[k], targets[k]))
            faces = np.array([-box.half, box.half])
            crossed = [faces[(a[i] - faces[:, i]) * (b[i] - faces[:, i]) < 0, i].tolist() for i in range(3)]
            shares = [abs(b[i] - a[i]) / box.half[i] if crossed[i] else 0.0 for i in range(3)]
            first = int(np.argmax(shares))
            if crossed[first]:
                order = [first, *(i for i in range(3) if i != first)]
                met = (crossed[first] * 2)[:2]
                given = targets[k], box.centre, box.axes[:, order].T.ravel(), box.half[order], met
                pairs.append((int(k), np.concatenate(given)))
    return pairs


class Window(NamedTuple):
    gate: Gate
    way: np.ndarray  # intervals on which its time in view counts
    at: np.ndarray  # intervals at whose ends it is constrained to be in view
    least_s: float  # s, least time in view


@dataclass(frozen=True)
class GatesInView(Term):
    """Visibility of the next gate's centre, or its four corners, until the last part of the way to it, past obstacles.

    It holds at the end of each interval in the window; for corners, which enter the image last, also at its beginning.
    """

    course: Course

    @cached_property
    def _seen(self) -> Block:
        """Block (p, q; target) -> 4 values, nonnegative if the world point is in view."""
        x, target = ca.SX.sym("x", Q.stop), ca.SX.sym("target", 3)
        camera, p_b = self.course.task.vehicle.camera, rotate(conjugate(ca.vertsplit(x[Q])), target - x[P])
        return Block.of("view", x, target, view_normals(camera) @ (ca.vertcat(*p_b) - camera.p_bc))

    def rows(self, nodes: Nodes) -> list[Rows]:
        at, targets = list[int](), list[Array]()
        for window in self.windows(nodes.mesh, nodes.durations, nodes.path):
            for target in self.targets(window.gate):
                at += window.at.tolist()
                targets += [target] * len(window.at)
        if not at:
            return []
        parts, eyes_w = [(self._seen, Q.stop, list(range(len(at))), np.column_stack(targets))], nodes.path[1:][at]
        if hidden := lines_of_sight(eyes_w, np.array(targets), self._obstacles):
            lines, given = [k for k, _ in hidden], np.column_stack([one for _, one in hidden])
            parts.append((sight_past_box(), P.stop, lines, given))
        found, far = [], np.linalg.norm(eyes_w - np.array(targets), axis=1)
        for block, size, lines, given in parts:
            rows = Rows.not_negative_blocks(block, nodes.after[:size, [at[k] for k in lines]], ca.DM(given))
            if nodes.slack is not None:
                each = np.repeat(far[lines], block.values.size1_out(0))
                rows = rows._replace(expression=nodes.slack * ca.DM(each))
            found.append(rows)
        return found

    @cached_property
    def _obstacles(self) -> list[SolidBox]:
        return [of_obstacle(one) for one in self.course.task.track.obstacles]

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return intervals in the window of a gate whose visible fraction, with views between the nodes, is too small."""
        result, dt = super().strays(mesh, point, path), intervals(mesh, point.durations)
        q = _interpolated(point.x[Q], len(path))
        for gate, way, at, least_s in self.windows(mesh, point.durations, point.x[P].T):
            seen = self._in_image(gate, np.moveaxis(path[:, way], -1, 0), q[:, :, way]).mean(axis=0)
            if dt[way] @ seen < least_s:
                result[at] |= seen[at - way[0]] < 1.0
        return result

    def _in_image(self, gate: Gate, p_w: Array, q_wb: Array) -> np.ndarray:
        """Return (...) whether all targets of a gate are in the full image, from positions (3, ...) at attitudes (4, ...)."""
        camera, result = self.course.task.vehicle.camera, np.ones(p_w.shape[1:], bool)
        for target in self.targets(gate):
            to_b = rotate(conjugate(q_wb), target.reshape(3, *[1] * result.ndim) - p_w)
            p_c = (np.stack(to_b, axis=-1) - camera.p_bc) @ camera.R_bc
            ahead = p_c[..., 2] > 0
            p_c[~ahead] = [0.0, 0.0, 1.0]
            result &= ahead & camera.sees(camera.project(p_c))
            for box in self._obstacles:
                result &= ~box.meets(np.moveaxis(p_w, 0, -1), target)
        return result

    def targets(self, gate: Gate) -> Array:
        """Return the world points (K, 3), m, of a gate that shall be in view."""
        return gate.corners() if self.course.task.options.see_corners else gate.p_wg[None]

    def windows(self, mesh: Mesh, durations: Array, path: Array) -> Iterator[Window]:
        """Yield each visible gate's window along positions (N + 1, 3), m, from detection range, or the section before, on."""
        options, course = self.course.task.options, self.course
        t, first, before = np.append(0.0, np.cumsum(intervals(mesh, durations))), 0, list[int]()
        for number, parts in enumerate(course.sections if options.gates_in_view else []):
            earliest = first - sum(len(mesh[i]) for i in before)
            flown_share = course.flown_share if number == 0 else 0.0
            last = first + sum(len(mesh[i]) for i in parts)
            within = course.in_range([*before, *parts], t[earliest : last + 1], path[earliest : last + 1])
            near = within if within > t[first] else t[first] - flown_share / (1 - flown_share) * (t[last] - t[first])
            begin_s, end_s = course.view_window(parts, near, t[last])
            end = first + int(np.abs(t[first + 1 : last + 1] - end_s).argmin())
            begin_s = max(begin_s + t[end + 1] - end_s, within)
            gate = course.legs[parts[-1]].gate
            if gate is not None and course.looks(parts) and t[first + 1] < end_s:
                begin = int(t[1:].searchsorted(begin_s + SHARE_SLACK * (t[last] - near), side="right"))
                way = int(t[1:].searchsorted(near, side="right"))
                shared_s = course.legs[parts[-1]].see * (t[last] - t[way])
                least_s = max(shared_s, min(options.sight_s, t[end + 1] - begin_s))
                at = np.arange(max(begin - options.see_corners, 0), end + 1)
                yield Window(gate, np.arange(min(way, begin), last), at, least_s)
            first, before = last, parts


def _interpolated(q: Array, count: int) -> Array:
    """Interpolate attitudes (4, N + 1) linearly at `count` = S points of each interval, both ends included; returns (4, S, N)."""
    before, after = q[:, None, :-1], q[:, None, 1:]
    after = np.where((before * after).sum(axis=0) < 0, -after, after)
    s = np.linspace(0.0, 1.0, count)[:, None]
    mixed = (1 - s) * before + s * after
    return np.asarray(mixed / np.linalg.norm(mixed, axis=0))
