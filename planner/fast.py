"""Fast plans: a guess along a smooth path, improved by the interior-point method of `interior`, in a tenth of a second.

The guess: the shortest way around solids through the portals of all gates, rounded by cubics, at the speed that a share of the
thrust allows; attitudes follow from its accelerations (differential flatness). The problem is that of `problem.py` on its first
mesh, but for lines of sight past obstacles.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gate_racer.common.compiled import warm_up
from gate_racer.common.errors import UserError
from gate_racer.planner import interior as ip
from gate_racer.planner import stages as st
from gate_racer.planner import terms
from gate_racer.planner.course import Course, Leg, Side, try_sides, way_to
from gate_racer.planner.guess import SAME, tilted, turning
from gate_racer.planner.mesh import Mesh, Point, first_mesh, intervals, leg_numbers
from gate_racer.planner.models import HOLDING, C, P, Q, RatesModel, V, W
from gate_racer.planner.plan import Plan, SolverStatistics
from gate_racer.planner.problem import LevelLiftOff, NodeBounds, Solved
from gate_racer.planner.search import as_plan
from gate_racer.planner.terms import ClearOfSolids, GatesInView, WithinPrisms, cubic
from gate_racer.vehicle.dynamics import GRAVITY, flat
from gate_racer.vehicle.rotation import Array, aligned, from_euler, to_euler

PART_S = 0.014  # s, longest part of an interval that is integrated in one step
NEAR_M = 3.0  # m, distance from the present path above which a solid is ignored
BOUND_M, BOUND_PART_M = 10.0, 3.0  # m, the same for bounds, at the nodes and between them
AHEAD_M = 0.005  # m, added to clearances that hold at the nodes, for the path between them
AHEAD = 1e-3  # -, likewise of the speed limit
SPARE = 1.3  # -, of the spacing of points of the path over that of the guess
SHARE = 0.6  # -, of the thrust across and along the guessed path


@dataclass
class Rows:
    blocks: list[tuple[Array, Array, Array, Array, Array]] = field(default_factory=list)

    def add(self, nodes: object, kind: int, given: object, at: object = 0, equal: bool = False) -> None:
        """Add a row per node (M,) of a kind with parameters (M, K) or (K,), at the end of part `at`, (M,) or one for all."""
        nodes = np.atleast_1d(np.asarray(nodes, int))
        table = np.zeros((len(nodes), st.NP))
        given = np.asarray(given, float)
        table[:, : given.shape[-1]] = given
        full = np.full(len(nodes), 0)
        self.blocks.append((nodes, full + kind, full + at, table, np.full(len(nodes), equal)))

    def sorted(self, nodes: int) -> "Table":
        """Return all rows in the order of their nodes."""
        owners, kinds, at, given, equal = (np.concatenate(one) for one in zip(*self.blocks, strict=True))
        order = np.argsort(owners, kind="stable")
        begins = np.searchsorted(owners[order], np.arange(nodes + 1))
        return begins, kinds[order], at[order], given[order], equal[order]


Table = tuple[Any, Any, Any, Any, Any]  # first row of each node, and the end; kinds, parts, parameters, equalities


def rows(course: Course, mesh: Mesh, point: Point, parts: np.ndarray, strayed: np.ndarray) -> Table:
    """Return the rows of a course about a point, with parts (N,) of intervals, and whether it strayed (N,) between nodes."""
    found, n = Rows(), len(parts)
    _limits(found, course, n)
    _bounds(found, course, mesh, point, parts)
    ends, own = np.cumsum([len(one) for one in mesh]), leg_numbers(mesh)
    for number, (leg, end) in enumerate(zip(course.legs, ends.tolist(), strict=True)):
        _leg_end(found, course, leg, end)
        if leg.inside:
            _prism(found, course, leg, np.flatnonzero(own == number), end, parts)
    path = point.x[P].T
    for k, i in ClearOfSolids(course, NEAR_M).near(path, own):
        solid, j = course.space.solids[i], np.arange(1, int(parts[k]) + 1)
        apart = SPARE * float(np.linalg.norm(path[k + 1] - path[k])) / len(j)
        keep = solid.keep_m + apart**2 / (8 * solid.keep_m)
        box = solid.box
        found.add(np.full(len(j), k), st.BOX, (*box.centre, *box.axes.T.ravel(), *box.half, keep), at=j)
    _view(found, course, mesh, point, strayed)
    lean = LevelLiftOff(course)
    if lean.holds:
        early = lean.early(intervals(mesh, point.durations))
        found.add(early + 1, st.LEAN, (lean.height_m, lean.rim_m))
    return found.sorted(n + 1)


def _limits(found: Rows, course: Course, n: int) -> None:
    model, k = course.task.model, np.arange(n)
    span, slew = model.u_high - model.u_low, model.slew_max
    for i in range(4):
        found.add(k, st.INPUT, (i, 1 / span[i], model.u_low[i]))
        found.add(k, st.INPUT, (i, -1 / span[i], model.u_high[i]))
    if np.isfinite(slew).all():
        room = float(model.turning(0.0))
        for signs in terms.SIGNS:
            for end in (0, 1):
                found.add(k, st.TURN, (*(np.array(signs) / slew), room, room - float(model.turning(1.0)), end))
    if model.held.any():
        room = float(model.holding(0.0))
        for pair in terms.TWO_SIGNS:
            found.add(k + 1, st.HOLD, (*(pair * model.held), room, room - float(model.holding(1.0))))
            found.add(k + 1, st.HOLD, (*(pair * model.held), HOLDING, 0.0))
    if math.isfinite(model.thrust_rate_max):
        for sign in (-1.0, 1.0):
            found.add(k, st.SLEW, (sign / model.thrust_rate_max,))


def _bounds(found: Rows, course: Course, mesh: Mesh, point: Point, parts: np.ndarray) -> None:
    low, high = NodeBounds(course).states(mesh, point.durations)
    path, k, most = point.x[P][:, 1:], np.arange(len(parts)), course.task.model.speed_max
    halved = (parts > 1) & (k > 0)
    for i in range(3):
        for sign, bound in ((1.0, low[i]), (-1.0, high[i])):
            room = sign * (path[i] - bound)
            given = np.zeros((len(k), 4))
            given[:, 0], given[:, 1 + i] = -sign * bound - AHEAD_M, sign
            close, between = room < BOUND_M, halved & (room < BOUND_PART_M)
            found.add(k[close] + 1, st.LINEAR, given[close])
            found.add(k[between], st.LINEAR, given[between], at=parts[between] // 2)
    if math.isfinite(most):
        limit = ((1 - AHEAD) * most, 0, 0, 0, 1)
        found.add(k + 1, st.BALL, limit)
        found.add(k[halved], st.BALL, limit, at=parts[halved] // 2)


def _leg_end(found: Rows, course: Course, leg: Leg, end: int) -> None:
    gate, body = leg.gate, course.task.body_m
    if gate is None:
        found.add(np.full(9, end), st.LINEAR, np.column_stack([[*-leg.target, *[0] * 6], np.eye(9)]), equal=True)
        found.add(np.full(2, end), st.LEVEL, np.arange(2)[:, None], equal=True)
        return
    if gate.is_ball:
        found.add(end, st.BALL, (gate.half - leg.keep_m[0], *leg.target))
        return
    axis = gate.R_wg[:, 0]
    found.add(end, st.LINEAR, (-axis @ leg.target, *axis), equal=True)
    if leg.passes:
        found.add(end, st.LINEAR, (-terms.CROSSING_SPEED_MIN, 0, 0, 0, *axis))
    for (n_y, n_z, h), keep in zip(gate.edges, leg.keep_m, strict=True):
        normal = gate.R_wg[:, 1:] @ (n_y, n_z)
        about = (*axis, *normal, *gate.p_wg)
        if not leg.passes:
            found.add(end, st.LINEAR, (h + normal @ gate.p_wg - body - AHEAD_M, *-normal))
            continue
        for side in (-leg.edge_half_m, leg.edge_half_m) if leg.edge_half_m else (0.0,):
            found.add(end, st.EDGE, (*about, h, side, keep))
        if leg.coast_m:
            found.add(end, st.EDGE, (*about, h - body, leg.coast_m, 0.0))


def _prism(found: Rows, course: Course, leg: Leg, own: np.ndarray, end: int, parts: np.ndarray) -> None:
    """Add the clearances from the walls and edges of an opening on the way through it, between the nodes (M,) of the leg."""
    gate, body = leg.gate, course.task.body_m
    assert gate is not None, "a leg within a gate has one"
    pairs = [(k, j) for k in own.tolist() for j in range(1, int(parts[k]) + 1) if (k, j) != (end - 1, parts[k])]
    if not pairs:
        return
    k, j = np.array(pairs).T
    axis = gate.R_wg[:, 0]
    for (n_y, n_z, h), keep in zip(gate.edges, leg.keep_m, strict=True):
        normal = gate.R_wg[:, 1:] @ (n_y, n_z)
        found.add(k, st.RIM, (*axis, *normal, *gate.p_wg, h, leg.edge_half_m, keep), at=j)
        found.add(k, st.LINEAR, (h + normal @ gate.p_wg - body - AHEAD_M, *-normal), at=j)


def _view(found: Rows, course: Course, mesh: Mesh, point: Point, strayed: np.ndarray) -> None:
    """Add the views of gates, from a node earlier where the point has missed their share."""
    camera, path, term = course.task.vehicle.camera, point.x[P].T, GatesInView(course)
    for window in term.windows(mesh, point.durations, path):
        at = np.arange(max(window.at[0] - strayed[window.at].any(), 0), window.at[-1] + 1)
        for target in term.targets(window.gate):
            far = np.linalg.norm(path[at + 1] - target, axis=1)
            for normal in terms.view_normals(camera):
                given = np.tile([*target, *camera.p_bc, *normal, 0.0], (len(far), 1))
                given[:, 9] = 1 / np.maximum(far, 0.5)
                found.add(at + 1, st.VIEW, given)


def _smooth(course: Course, sides: Sequence[Side] = ()) -> list[Array]:
    """Return positions (M, 3), m, along a smooth path through the targets of all legs, leg by leg. Errors as `way_to`."""
    x0 = course.x0
    assert x0 is not None, "a flying lap has no start"
    vertices, marks, aimed = [x0[P]], [0], dict[int, Array]()
    for i, leg in enumerate(course.legs):
        vertices += list(way_to(course, i, vertices[-1], sides)[1:])
        marks.append(len(vertices) - 1)
        if leg.gate is not None and not leg.gate.is_ball:
            aimed[marks[-1]] = leg.gate.R_wg[:, 0]
    p = np.array(vertices)
    step = np.diff(p, axis=0)
    length = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-6)
    unit = step / length
    bend = unit[:-1] / length[:-1] + unit[1:] / length[1:]
    way_on = np.vstack([unit[:1], bend / np.maximum(np.linalg.norm(bend, axis=1, keepdims=True), 1e-9), unit[-1:]])
    for i, axis in aimed.items():
        way_on[i] = axis
    s = np.linspace(0.0, 1.0, SAMPLES + 1)[:, None]
    cubics = [cubic(p[i], way_on[i], p[i + 1], way_on[i + 1], length[i], s) for i in range(len(step))]
    return [_joined(cubics[a:b]) for a, b in pairwise(marks)]


SAMPLES = 16  # points of each cubic, and of each leg in time
SMOOTH_S = 0.1  # s, half of the time over which the guess's acceleration is taken
THRUST_LEAST, THRUST_MOST = 2.0, 0.9  # m/s^2, share of the largest: thrust of the guess


@dataclass(frozen=True)
class Path:
    legs: list[Array]  # (M, 3) m, world NED, both ends included
    t: Array  # (M,) s, of all points
    v: Array  # (M, 3) m/s

    @staticmethod
    def of(course: Course, sides: Sequence[Side]) -> "Path":
        """Return the smooth path on these sides, at the speed that a share of the thrust allows. Errors as `way_to`."""
        c = course.task.options.reserve * course.task.vehicle.thrust_max
        legs = _smooth(course, sides)
        t, v = _timed(_joined(legs), course, SHARE * math.sqrt(max(c**2 - GRAVITY**2, 1.0)))
        return Path(legs, t, v)


def _joined(legs: list[Array]) -> Array:
    return np.vstack([legs[0], *(one[1:] for one in legs[1:])])


def guess(course: Course, way: Path) -> tuple[Mesh, Point]:
    model, vehicle, x0 = course.task.model, course.task.vehicle, course.x0
    assert x0 is not None, "a flying lap has no start"
    legs, t, v, path = way.legs, way.t, way.v, _joined(way.legs)
    c = course.task.options.reserve * vehicle.thrust_max
    marks = np.append(0.0, t[np.cumsum([len(one) - 1 for one in legs])])
    durations = np.diff(marks)
    paths = [_at(np.linspace(a, b, SAMPLES + 1), t, path) for a, b in pairwise(marks)]
    mesh = first_mesh(course, durations, paths)
    times = np.append(0.0, np.cumsum(intervals(mesh, durations)))
    n = len(times) - 1
    x = np.repeat(x0[:, None], n + 1, axis=1)
    x[P, 1:], x[V, 1:] = _at(times, t, path)[:, 1:], _at(times, t, v)[:, 1:]
    before, after = np.clip(times - SMOOTH_S, 0.0, t[-1]), np.clip(times + SMOOTH_S, 0.0, t[-1])
    force = (_at(after, t, v) - _at(before, t, v)) / (after - before) - GRAVITY * np.array([[0.0], [0.0], [1.0]])
    speed = np.linalg.norm(x[V], axis=0)
    force += (vehicle.drag_quadratic_1_m * speed + np.mean(vehicle.drag_linear_1_s)) * x[V]
    size = np.linalg.norm(force, axis=0)
    level = from_euler(0.0, 0.0, to_euler(x0[Q])[2])
    for k in range(1, n + 1):
        down = -force[:, k] / max(size[k], 1e-3)
        forward = course.task.options.gates_in_view and speed[k] > 1.0
        x[Q, k] = aligned(down, x[V, k]) if forward else tilted(down, level)
    x[C, 1:] = np.clip(size[1:], THRUST_LEAST, THRUST_MOST * c)
    x[Q], x[W, 1:] = turning(x[Q], intervals(mesh, durations), model)
    return mesh, Point(x, model.inputs(x[W, 1:], x[C, 1:].ravel()), durations)


def _at(times: Array, t: Array, values: Array) -> Array:
    """Return values (M, 3) at t (M,) interpolated at times (K,), (3, K)."""
    return np.array([np.interp(times, t, column) for column in values.T])


def _timed(path: Array, course: Course, most: float) -> tuple[Array, Array]:
    """Return times (M,), s, and velocities (M, 3), m/s, along a path (M, 3) at accelerations up to `most`, m/s^2."""
    vehicle, x0 = course.task.vehicle, course.x0
    assert x0 is not None, "a flying lap has no start"
    step = np.diff(path, axis=0)
    ds = np.maximum(np.linalg.norm(step, axis=1), 1e-6)
    unit = step / ds[:, None]
    bend = np.linalg.norm(np.diff(unit, axis=0), axis=1) / (0.5 * (ds[1:] + ds[:-1]))
    limit = np.full(len(path), (0.9 * min(course.task.model.speed_max, 1e3)) ** 2)
    limit[1:-1] = np.clip(most / np.maximum(bend, 1e-6), 1.0, limit[1:-1])
    limit[0] = max(float(x0[V] @ x0[V]), 0.01)
    if course.legs[-1].gate is None:
        limit[-1] = 0.01
    square, linear = vehicle.drag_quadratic_1_m, float(np.mean(vehicle.drag_linear_1_s))
    v2 = limit.tolist()
    for i, s in enumerate(ds.tolist()):
        drag = square * v2[i] + linear * math.sqrt(v2[i])
        v2[i + 1] = min(v2[i + 1], v2[i] + 2 * max(most - drag, 0.0) * s)
    for i, s in reversed(list(enumerate(ds.tolist()))):
        drag = square * v2[i + 1] + linear * math.sqrt(v2[i + 1])
        v2[i] = min(v2[i], v2[i + 1] + 2 * (most + drag) * s)
    speed = np.sqrt(v2)
    ahead = np.vstack([unit[:1], unit[:-1] + unit[1:], unit[-1:]])
    ahead /= np.maximum(np.linalg.norm(ahead, axis=1, keepdims=True), 1e-9)
    return np.append(0.0, np.cumsum(2 * ds / (speed[1:] + speed[:-1]))), ahead * speed[:, None]


ITERATIONS, PER_GATE = 80, 4  # most iterations, and for each gate of a longer course (chosen)
PASSES = 3  # most solutions, each with the views and solids of the one before
PROMISING = 1.1  # -, times of a guess over that of the best up to which it is solved


def improved(course: Course, mesh: Mesh, point: Point, mu: float, strayed: np.ndarray) -> Solved:
    """Return the solution from a point, with the barrier's first parameter mu, s; `strayed` as of `rows`."""
    parts = np.clip(np.ceil(intervals(mesh, point.durations) / PART_S), 1, ip.PARTS).astype(int)
    x, u, durations = (np.array(one, order="C") for one in (point.x.T, point.u.T, point.durations))  # which it changes
    par, table = np.array(flat(course.task.model.parameters)), rows(course, mesh, point, parts, strayed)
    steps = leg_numbers(mesh), np.concatenate(mesh), parts
    most = max(ITERATIONS, PER_GATE * len(course.sections))
    done, count = ip.minimise(x, u, durations, *steps, par, *table, mu, most)  # type: ignore[no-untyped-call]
    status = "Solve_Succeeded" if done else "Maximum_Iterations_Exceeded"
    return Solved(mesh, Point(x.T, u.T, durations), done, status, count)


def settled(course: Course, mesh: Mesh, point: Point, mu: float = ip.MU) -> Solved:
    """Return the solution from a point, again with the views and solids of the last one while its path strays between nodes."""
    checked = [GatesInView(course), ClearOfSolids(course, NEAR_M), WithinPrisms(course)]
    solved = improved(course, mesh, point, mu, np.zeros(sum(map(len, mesh)), bool))
    for _ in range(PASSES - 1):
        strayed = terms.strays(checked, mesh, solved.point)
        if not solved.success or not strayed.any():
            break
        again = improved(course, mesh, solved.point, ip.MU_NEARBY, strayed)
        solved = replace(again, iterations=solved.iterations + again.iterations)
    return solved


def solution(course: Course) -> Solved:
    """Return the fastest solution found on promising sides of solids. Raises UserError: a flying lap, `rotors`, or no way."""
    name = course.task.track.name
    if course.x0 is None or course.task.model.name != RatesModel.name:
        raise UserError(f"{name}: fast: plans the rates model from a start, not a flying lap or the rotors model")
    first = Path.of(course, ())
    found = {first.t[-1]: settled(course, *guess(course, first))}  # by the guessed time

    def solve(sides: tuple[Side, ...]) -> float:
        path = Path.of(course, sides)
        time_s = path.t[-1]
        if time_s > PROMISING * first.t[-1] or min(abs(time_s / t - 1) for t in found) < SAME:
            return math.inf
        found[time_s] = settled(course, *guess(course, path))
        return found[time_s].cost

    try_sides(course, found[first.t[-1]].cost, solve)
    best = min(found.values(), key=lambda one: one.cost)
    if best.success and any(map(course.looks, course.sections)):
        best = min(best, _reconsidered(course, best), key=lambda one: one.cost)
    return best


def _reconsidered(course: Course, seeing: Solved) -> Solved:
    """Return the solution whose views are imposed on the best flight without any, which may turn to the gates at other times."""
    blind = settled(course.blind, seeing.mesh, seeing.point)
    return settled(course, seeing.mesh, blind.point, ip.MU_NEARBY) if blind.success else blind


def fast_plans(course: Course) -> Iterator[tuple[Plan, SolverStatistics]]:
    """Yield the fast plan of the course with its statistics, like `search.plans`. Raises UserError as `solution`."""
    begin = time.perf_counter()
    warm_up()
    ready = time.perf_counter()
    found = solution(course)
    solve_s, total_s = time.perf_counter() - ready, found.total_time if found.success else None
    spent = found.iterations, ready - begin, solve_s, None, {"fast": total_s}
    yield as_plan(course, found), SolverStatistics(found.status, found.success, *spent)
