"""The time-optimal flight through the gates: multiple shooting with one free duration per leg, bounds on the nodes.

    minimise  sum_l T_l + regularisation,   x_k+1 = f(x_k, u_k, T_l / n_l),   terms: leg ends, view, limits, solids, prisms

The known order of the gates replaces the complementarity constraints of CPC (Foehn et al., Science Robotics 2021).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.planner import terms
from gate_racer.planner.course import Course, Leg
from gate_racer.planner.mesh import Duals, Mesh, Point, intervals, leg_numbers
from gate_racer.planner.models import Model, P, Q, V, W
from gate_racer.planner.nlp import ENDLESS, Block, Blocks, Deadline, Nlp, Rows
from gate_racer.planner.terms import STRAY_M, Nodes, Term, rounded
from gate_racer.vehicle.dynamics import GRAVITY, flat, rk4, shaped
from gate_racer.vehicle.rotation import Array, conjugate, rotate

DOWN = P.start + 2
# Lift-off: for LIFT_OFF_S, s, the vehicle may be as low as its pad, and climbs, wherever the first gate lies, with at least the
# fraction LIFT_OFF_SHARE of the acceleration that its thrust allows, after SPOOL_UP thrust lags (chosen).
LIFT_OFF_S, LIFT_OFF_SHARE, SPOOL_UP = 0.3, 0.25, 2.0
LEAN_M = 0.05  # m, further drop of the body's rim by tilt that is allowed at the pad, as on uneven ground
SHORTEST, LONGEST = 0.3, 4.0  # -, bounds of a leg's duration over the guessed one
SHORTEST_INSIDE, LONGEST_INSIDE = 0.05, 20.0  # -, the same for a leg within a gate, whose guess is poor


@dataclass(frozen=True, eq=False)
class NodeBounds:
    course: Course

    def states(self, mesh: Mesh, durations: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds (NX, N) of the nodes: the body inside the track's box, except during lift-off."""
        task, space = self.course.task, self.course.space
        t = np.cumsum(intervals(mesh, durations))
        high = np.repeat(task.model.x_high[:, None], len(t), axis=1)
        high[Q] = 1.1  # never active, but it limits the search
        low = -high
        low[P], high[P] = space.low[:, None], space.high[:, None]
        x0 = self.course.x0
        if x0 is None:
            return low, high
        early, p0 = t < LIFT_OFF_S, x0[P, None]
        low[P] = np.where(early, np.minimum(low[P], p0), low[P])
        high[P] = np.where(early, np.maximum(high[P], p0), high[P])
        if self.course.from_pad:
            high[DOWN] = np.where(early, np.minimum(high[DOWN], self._lifted(x0, t)), high[DOWN])
        return low, high

    def durations(self, guessed: Array) -> tuple[Array, Array]:
        """Return bounds (L,), s, on the durations of legs with these guessed durations."""
        inside = np.array([leg.inside for leg in self.course.legs])
        shortest, longest = np.where(inside, SHORTEST_INSIDE, SHORTEST), np.where(inside, LONGEST_INSIDE, LONGEST)
        return shortest * guessed, longest * guessed

    def strays(self, path: Array) -> np.ndarray:
        """Return for each interval with positions (S, N, 3), (N,), whether it leaves the box between its nodes."""
        space, ends = self.course.space, path[[0, -1]]
        low, high = np.minimum(space.low, ends.min(axis=0)), np.maximum(space.high, ends.max(axis=0))
        return ((path < low - STRAY_M) | (path > high + STRAY_M)).any(axis=(0, 2))

    def _lifted(self, x0: Array, t: Array) -> Array:
        """Return the largest z (NED, down), m, of the vehicle at times t during lift-off."""
        vehicle, reserve = self.course.task.vehicle, self.course.task.options.reserve
        upright = _upright(*x0[Q][1:3])  # vertical component of the thrust direction
        climb = max(reserve * vehicle.thrust_max * upright - GRAVITY, 0.0)
        late = np.maximum(t - SPOOL_UP * vehicle.thrust_lag_s, 0.0)
        return x0[DOWN] - LIFT_OFF_SHARE * climb / 2 * late**2


class LevelLiftOff(Term):
    """Limit of the tilt during lift-off, so that the body's rim stays clear of the floor:

    rim sin(tilt) <= height + LEAN_M + rim sin(initial tilt)
    """

    def __init__(self, course: Course):
        x0, floor = course.x0, course.task.track.bounds.high_m[2]
        self.rim_m, self.height_m = course.task.vehicle.contact_radius_m, 0.0
        self.holds = x0 is not None and course.from_pad and floor - x0[DOWN] < course.space.keep_m
        if x0 is not None:  # z, m, from which on the rim touches the floor even upright
            self.height_m = float(x0[DOWN] + LEAN_M + self.rim_m * np.sqrt(1 - _upright(*x0[Q][1:3]) ** 2))

    def early(self, dt: Array) -> np.ndarray:
        """Return the intervals, of lengths dt (N,), s, that end during lift-off."""
        return np.flatnonzero(np.cumsum(dt) < LIFT_OFF_S)

    def rows(self, nodes: Nodes) -> list[Rows]:
        early = self.early(intervals(nodes.mesh, nodes.durations)).tolist()
        if not self.holds or not early:
            return []
        after = nodes.after[:, early]
        room = (self.height_m - after[DOWN, :]) / self.rim_m
        return [Rows.not_negative(room**2 - 1 + _upright(after[Q.start + 1, :], after[Q.start + 2, :]) ** 2)]


def _upright(q_x: Any, q_y: Any) -> Any:
    return 1 - 2 * (q_x**2 + q_y**2)


SMOOTH = 1e-4  # -, square of the cosine below which |cos| is rounded in the reach of a box
SPARE_M = 3e-3  # m, more than the margin that is certified, for what the path does between nodes (chosen)
LEAN = 0.5  # -, least component of the body's z axis across a slot, on the side to which it leans (chosen)
BETWEEN = (0.25, 0.5, 0.75)  # -, points of an interval at which that room is checked
WIDENS = 4.0  # -, widening of a slot's prism per distance from its plane, where the body no longer reaches it (chosen)


@cache
def through_slot(edges: int) -> Block:
    """Build (p, q; centre, axes, edges, half length, half sides of the body, margin, side, least lean) -> values, not negative

    if the body leans to its side, and has room beside each edge. Where the box does not reach the slot, both are free.
    """
    p, q, centre, axes = ca.SX.sym("p", 3), ca.SX.sym("q", 4), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9)
    lines, depth, half = ca.SX.sym("lines", 3 * edges), ca.SX.sym("depth"), ca.SX.sym("half", 3)
    margin, across, least = ca.SX.sym("margin"), ca.SX.sym("across", 3), ca.SX.sym("least")
    R_gw = ca.reshape(axes, 3, 3).T

    def reach(normal_g: Any) -> Any:
        cosines = rotate(conjugate(ca.vertsplit(q)), ca.vertsplit(R_gw.T @ normal_g))
        return sum(h * ca.sqrt(c**2 + SMOOTH) for h, c in zip(ca.vertsplit(half), cosines, strict=True))

    p_g = R_gw @ (p - centre)
    off = rounded(p_g[0])[0] - depth - reach(ca.vertcat(1, 0, 0))
    away = 0.5 * (off + rounded(off)[0])
    z_w = ca.vertcat(*rotate(ca.vertsplit(q), (0, 0, 1)))
    values = [ca.dot(across, z_w) - least + WIDENS * away]
    for i in range(edges):
        n_y, n_z, h = ca.vertsplit(lines[3 * i : 3 * i + 3])
        room = h - n_y * p_g[1] - n_z * p_g[2] - reach(ca.vertcat(0, n_y, n_z)) - margin
        values.append(room + WIDENS * away)
    given = ca.vertcat(centre, axes, lines, depth, half, margin, across, least)
    return Block.of(f"through_slot{edges}", ca.vertcat(p, q), given, ca.vertcat(*values))


@dataclass(frozen=True)
class ThroughSlots(Term):
    """Room for the body's box, at its attitude, beside each edge of a slot while it reaches its plane: a passage in SE(3).

    A slot lets the box pass, but not the sphere around it. A box with half sides h_i reaches sum_i h_i |n . e_i| in a direction
    n; in the plane of a slot, its centre keeps that and a margin from each edge. It cannot lean to one side and then to the
    other without standing level in between: so each plan has a side.
    """

    course: Course

    def rows(self, nodes: Nodes) -> list[Rows]:
        result = []
        for i, leg, given in self._slots():
            at = np.flatnonzero(nodes.legs == i).tolist()
            poses = ca.horzcat(nodes.before[: Q.stop, at[0]], nodes.after[: Q.stop, at])
            block = through_slot(len(leg.keep_m))
            result.append(Rows.not_negative_blocks(block, poses, ca.repmat(ca.DM(given), 1, len(at) + 1)))
        return result

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return intervals between whose ends the body has less room than it needs."""
        result, own = super().strays(mesh, point, path), leg_numbers(mesh)
        for i, leg, given in self._slots():
            at = np.flatnonzero(own == i)
            room = through_slot(len(leg.keep_m)).values.map(len(at))
            for s in BETWEEN:
                q = (1 - s) * point.x[Q][:, at] + s * point.x[Q][:, at + 1]
                poses = np.vstack([path[round(s * (len(path) - 1)), at].T, q / np.linalg.norm(q, axis=0)])
                result[at] |= (np.array(room(poses, np.tile(given, (len(at), 1)).T)) < -STRAY_M).any(axis=0)
        return result

    def _slots(self) -> Iterator[tuple[int, Leg, list[float]]]:
        """Yield the legs within slots: their number, and the parameters of `through_slot`."""
        half = np.array(self.course.task.vehicle.body_m) / 2
        for i, leg in enumerate(self.course.legs):
            if leg.in_slot and leg.gate is not None and leg.slot_m is not None:
                gate = leg.gate
                across, least = (leg.lean * leg.slot_axes[0], LEAN) if leg.lean else (np.zeros(3), -1.0)
                opening = [*gate.p_wg, *gate.R_wg.T.ravel(), *gate.edges.ravel(), leg.edge_half_m]
                yield i, leg, [*opening, *half, leg.slot_m + SPARE_M, *across, least]


NEAR_M = 3.0  # m, distance from the present path above which a solid is ignored on a mesh
Progress = Callable[[int, float], None]  # called after each solve with its iterations and the flight time, s


@dataclass(frozen=True)
class Solved:
    mesh: Mesh
    point: Point
    success: bool
    status: str
    iterations: int  # total over this and all previous meshes
    level: int = 1  # 1 on the first mesh, `search.LEVELS` on the last

    @property
    def total_time(self) -> float:
        return float(self.point.durations.sum())

    @property
    def cost(self) -> float:
        return self.total_time if self.success else math.inf


class TimeOptimalProblem:
    """Time-optimal problem of a course. `solve` may be called on successively finer meshes."""

    def __init__(self, course: Course, deadline: Deadline = ENDLESS, progress: Progress | None = None):
        self.course, self.model, self.deadline, self.progress = course, course.task.model, deadline, progress
        self._x0, self._bounds = course.x0, NodeBounds(course)
        self._flight = flight_block(self.model)
        self.terms: list[Term] = [
            terms.LegEnds(course),
            terms.GatesInView(course),
            terms.ModelLimits(self.model),
            terms.ClearOfSolids(course, NEAR_M),
            terms.WithinPrisms(course),
            ThroughSlots(course),
            LevelLiftOff(course),
        ]

    def solve(self, mesh: Mesh, start: Point, settings: dict, slack_cost: float | None = None) -> Solved:
        """Solve from a point; slack_cost: s per unit tangent by which gates are out of the image, None for a hard constraint."""
        nlp, model, n = Nlp(), self.model, sum(map(len, mesh))
        X, U, T = ca.MX.sym("X", model.x.size, n), ca.MX.sym("U", model.u.size, n), ca.MX.sym("T", len(mesh))
        nlp.variable(X, start.x[:, 1:], *self._bounds.states(mesh, start.durations))
        nlp.variable(U, start.u, model.u_low[:, None], model.u_high[:, None])
        nlp.variable(T, start.durations[:, None], *(one[:, None] for one in self._bounds.durations(start.durations)))
        change = U[:, 1:] - U[:, :-1]
        level, changed = (ca.DM(weight).T for weight in (model.weight_level, model.weight_change))
        nodes = self._nodes(mesh, start, X, U, T)
        cost = ca.sum2(level @ U**2 * nodes.dt) + ca.sum2(changed @ change**2)
        if slack_cost is not None:
            nodes = replace(nodes, slack=ca.MX.sym("slack"))
            nlp.variable(nodes.slack, np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), np.inf))
            cost += slack_cost * nodes.slack
        facts = ca.repmat(ca.DM(flat(model.parameters)), 1, n)
        flown = Blocks(self._flight, ca.vertcat(nodes.before, U, nodes.dt), facts)
        nlp.rows.append(Rows.zero(-X, flown))
        for term in self.terms:
            rows, begin = term.rows(nodes), nlp.size
            nlp.rows += rows
            if term.mesh_free:
                mesh_free = [begin + at for at in _of_legs(rows, X, nodes.legs)]
        duals = _pack(start.duals, nlp.size, mesh_free) if start.duals else {}
        found = nlp.minimise(ca.sum1(T) + cost, settings, duals, self.deadline)
        x, u, durations = nlp.values([X, U, T], found.w)
        lam_x, lam_u, lam_T = nlp.values([X, U, T], found.lam_w)
        costate = found.lam_g[: x.size].reshape(x.shape[::-1]).T
        known = Duals(costate, lam_x, lam_u, lam_T.ravel(), [found.lam_g[at] for at in mesh_free])
        first = self._x0 if self._x0 is not None else _turned(start.x) * x[:, -1]
        point = Point(np.column_stack([first, x]), u, durations.ravel(), known)
        solved = Solved(mesh, point, found.success, found.status, found.iterations)
        if self.progress is not None:
            self.progress(solved.iterations, solved.total_time)
        return solved

    def strays(self, mesh: Mesh, point: Point) -> np.ndarray:
        """Return for each interval, (N,), whether the candidate violates bounds or a term between its nodes."""
        return self._bounds.strays(terms.sampled(mesh, point)) | terms.strays(self.terms, mesh, point)

    def _nodes(self, mesh: Mesh, start: Point, X: Any, U: Any, T: Any) -> Nodes:
        first = ca.MX(self._x0) if self._x0 is not None else _turned(start.x) * X[:, -1]
        return Nodes(
            mesh=mesh,
            durations=start.durations,
            path=start.x[P].T,
            before=ca.horzcat(first, X[:, :-1]),
            after=X,
            u=U,
            dt=ca.vertcat(*[T[i] * fractions for i, fractions in enumerate(mesh)]).T,
            velocity=V,
            still=ca.vertcat(X[Q, :][1:3, :], X[W, :]),  # hover is level, with free yaw
        )


def step(model: type[Model], like: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return SX symbols x, u, dt and parameters, `flat`, shaped as those of `like`, and the state one Runge-Kutta step later."""
    x, u, dt = ca.SX.sym("x", model.x.size), ca.SX.sym("u", model.u.size), ca.SX.sym("dt")
    p = ca.SX.sym("p", len(flat(like)))
    end = ca.vertcat(*rk4(model.f, ca.vertsplit(x), ca.vertsplit(u), shaped(ca.vertsplit(p), like), dt))
    return x, u, dt, p, ca.vertcat(end[P], end[Q] / ca.norm_2(end[Q]), end[Q.stop :])


def flight_block(model: Model) -> Block:
    """Return (x, u, dt; parameters) -> state at the end of an interval, built once per process for all vehicles."""
    parameters = model.parameters
    return _flight_block(type(model), shaped(range(len(flat(parameters))), parameters), model.substeps)


@cache
def _flight_block(model: type[Model], like: Any, substeps: int) -> Block:
    return Block.integration(f"step_{model.name}", *step(model, like), substeps)


def _of_legs(rows: list[Rows], X: Any, legs: np.ndarray) -> list[np.ndarray]:
    """Return per leg the indices of the rows that depend on its nodes."""
    of_nodes = ca.jacobian_sparsity(ca.veccat(*(one.expression for one in rows)), X)
    row, column = (np.array(one, int) for one in of_nodes.get_triplet())
    owners = np.zeros(of_nodes.shape[0], int)
    owners[row] = legs[column // X.shape[0]]
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.searchsorted(owners[order], range(1, legs[-1] + 1)))


def _pack(duals: Duals, size: int, mesh_free: list[np.ndarray]) -> dict[str, Array]:
    """Arrange multipliers in the order of the problem; those of mesh-dependent terms start at zero."""
    lam_g = np.zeros(size)
    lam_g[: duals.costate.size] = duals.costate.T.ravel()
    lam_g[np.concatenate(mesh_free)] = np.concatenate(duals.mesh_free)
    return {"lam_x0": np.concatenate([duals.x.T.ravel(), duals.u.T.ravel(), duals.durations]), "lam_g0": lam_g}


def _turned(x: Array) -> Array:
    """Return signs (NX,): -1 for the quaternion if it changes its sign over the periodic flight x (NX, N + 1), else 1."""
    sign = np.ones(len(x))
    sign[Q] = np.sign(x[Q, 0] @ x[Q, -1])
    return sign
