"""Fast plans."""

import math
import time
from itertools import product

import numpy as np

from gate_racer.planner import interior as ip
from gate_racer.common.errors import UserError
from gate_racer.planner.course import Course, route
from gate_racer.planner.guess import _tilted
from gate_racer.planner.mesh import Mesh, Point, first_mesh, intervals, leg_numbers
from gate_racer.planner.models import C, P, Q, V, W
from gate_racer.planner.problem import NodeBounds
from gate_racer.planner.terms import CROSSING_SPEED_MIN, ClearOfSolids
from gate_racer.vehicle.dynamics import GRAVITY, flat
from gate_racer.vehicle.rotation import Array, conjugate, from_euler, log, to_euler
from gate_racer.vehicle.rotation import product as product_q

PART_S = 0.014
SIGNS = tuple(product((-1.0, 1.0), repeat=3))
NEAR_M = 3.0
AHEAD_M = 0.003


def rows(course: Course, mesh: Mesh, point: Point, parts: Array):
    model, task = course.task.model, course.task
    n = sum(map(len, mesh))
    dt = intervals(mesh, point.durations)
    own = leg_numbers(mesh)
    found: list[tuple[int, int, int, bool, list[float]]] = []

    def add(node, kind, given, at=0, equal=False):
        found.append((node, kind, at, equal, list(given)))

    span = model.u_high - model.u_low
    slew = model.slew_max
    for k in range(n):
        for i in range(4):
            add(k, ip.INPUT, (i, 1 / span[i], model.u_low[i]))
            add(k, ip.INPUT, (i, -1 / span[i], model.u_high[i]))
        if np.isfinite(slew).all():
            room0 = float(model.turning(0.0))
            fall = room0 - float(model.turning(1.0))
            for signs in SIGNS:
                for end in (0, 1):
                    add(k, ip.TURN, (*(np.array(signs) / slew), room0, fall, end))
        if math.isfinite(model.thrust_rate_max):
            for sign in (-1.0, 1.0):
                add(k, ip.SLEW, (sign / model.thrust_rate_max,))
    low, high = NodeBounds(course).states(mesh, point.durations)
    path = point.x[P].T
    for k in range(1, n + 1):
        for i in range(3):
            a = np.zeros(7)
            if path[k, i] - low[i, k - 1] < 10.0:
                a[i], a[6] = 1.0, -low[i, k - 1]
                add(k, ip.LINEAR, a)
            if high[i, k - 1] - path[k, i] < 10.0:
                a = np.zeros(7)
                a[i], a[6] = -1.0, high[i, k - 1]
                add(k, ip.LINEAR, a)
        if math.isfinite(model.speed_max):
            add(k, ip.SPEED, (model.speed_max,))
    last = np.cumsum([len(one) for one in mesh])
    for leg, end, number in zip(course.legs, last, range(len(last)), strict=True):
        end = int(end)
        gate = leg.gate
        if gate is None:
            for i in range(3):
                a = np.zeros(7)
                a[i], a[6] = 1.0, -leg.target[i]
                add(end, ip.LINEAR, a, equal=True)
                a = np.zeros(7)
                a[3 + i] = 1.0
                add(end, ip.LINEAR, a, equal=True)
                add(end, ip.STILL, (i,), equal=True)
            add(end, ip.LEVEL, (0,), equal=True)
            add(end, ip.LEVEL, (1,), equal=True)
            continue
        if gate.is_ball:
            add(end, ip.BALL, (*leg.target, gate.half - leg.keep_m[0]))
            continue
        axis = gate.R_wg[:, 0]
        add(end, ip.LINEAR, (*axis, 0, 0, 0, -axis @ gate.p_wg - leg.plane_m), equal=True)
        normals = [(n_y * gate.R_wg[:, 1] + n_z * gate.R_wg[:, 2], h) for n_y, n_z, h in gate.edges]
        if leg.passes:
            add(end, ip.LINEAR, (0, 0, 0, *axis, -CROSSING_SPEED_MIN))
        for (normal, h), keep in zip(normals, leg.keep_m, strict=True):
            if not leg.passes:
                add(end, ip.LINEAR, (*-normal, 0, 0, 0, h + normal @ gate.p_wg - task.body_m - AHEAD_M))
                continue
            ends = (-leg.edge_half_m, leg.edge_half_m) if leg.edge_half_m else (0.0,)
            for one in ends:
                add(end, ip.EDGE, (*axis, *normal, *gate.p_wg, h, one, keep))
            if leg.coast_m:
                add(end, ip.EDGE, (*axis, *normal, *gate.p_wg, h, leg.coast_m, 0.0))
                found[-1][4][9] -= task.body_m
        if leg.inside:
            for k in np.flatnonzero(own == number).tolist():
                for j in range(1, int(parts[k]) + 1):
                    if j == parts[k] and k == end - 1:
                        continue
                    for (normal, h), keep in zip(normals, leg.keep_m, strict=True):
                        add(k, ip.RIM, (*axis, *normal, *gate.p_wg, h, leg.edge_half_m, keep), at=j)
                        add(k, ip.LINEAR, (*-normal, 0, 0, 0, h + normal @ gate.p_wg - task.body_m - AHEAD_M), at=j)
    for k, i in ClearOfSolids(course, NEAR_M)._near(path, own):
        solid = course.space.solids[i]
        for j in range(1, int(parts[k]) + 1):
            add(k, ip.BOX, (*solid.box.centre, *solid.box.axes.T.ravel(), *solid.box.half, solid.keep_m), at=j)
    found.sort(key=lambda one: one[0])
    nodes = np.array([one[0] for one in found])
    given = np.zeros((len(found), ip.NP))
    for r, one in enumerate(found):
        given[r, : len(one[4])] = one[4]
    return (
        np.searchsorted(nodes, np.arange(n + 2)),
        np.array([one[1] for one in found]),
        np.array([one[2] for one in found]),
        given,
        np.array([one[3] for one in found]),
    )


def _smooth(course: Course) -> tuple[list[Array], list[Array]]:
    """Return per leg positions (M, 3), m, and unit directions along a smooth path through the targets, around solids."""
    space = course.space
    legs = course.legs
    vertices, ends, before = [course.x0[P]], [0], course.x0[P]
    fixed = {}
    for leg in legs:
        way = np.stack([before, leg.target])
        if not leg.inside:
            found = route(before, leg.target, [one.box for one in space.solids], space.keep_m, space.low, space.high)
            if found is None:
                raise UserError("no way")
            way = found
        vertices += list(way[1:])
        ends.append(len(vertices) - 1)
        if leg.gate is not None and not leg.gate.is_ball:
            fixed[len(vertices) - 1] = leg.gate.R_wg[:, 0]
        before = leg.target
    p = np.array(vertices)
    step = np.diff(p, axis=0)
    length = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-6)
    unit = step / length
    tangent = np.vstack([unit[:1], unit[:-1] / length[:-1] + unit[1:] / length[1:], unit[-1:]])
    tangent /= np.maximum(np.linalg.norm(tangent, axis=1, keepdims=True), 1e-9)
    for i, axis in fixed.items():
        tangent[i] = axis
    s = np.linspace(0.0, 1.0, 17)[:, None]
    pieces = []
    for a, b, ta, tb, L in zip(p, p[1:], tangent, tangent[1:], length[:, 0], strict=False):
        pieces.append((1 + 2 * s) * (1 - s) ** 2 * a + s**2 * (3 - 2 * s) * b + L * (s * (1 - s) ** 2 * ta - s**2 * (1 - s) * tb))
    return [np.vstack([pieces[i] if i == a else pieces[i][1:] for i in range(a, b)]) for a, b in zip(ends, ends[1:], strict=False)]


def guess(course: Course) -> tuple[Mesh, Point]:
    model = course.task.model
    legs = _smooth(course)
    path = np.vstack([legs[0], *(one[1:] for one in legs[1:])])
    ends = np.cumsum([len(one) - 1 for one in legs])
    c = float(course.task.options.reserve * course.task.vehicle.thrust_max)
    most = 0.6 * math.sqrt(max(c**2 - GRAVITY**2, 1.0))
    step = np.diff(path, axis=0)
    ds = np.maximum(np.linalg.norm(step, axis=1), 1e-6)
    unit = step / ds[:, None]
    bend = np.linalg.norm(np.diff(unit, axis=0), axis=1) / (0.5 * (ds[1:] + ds[:-1]))
    top = min(model.speed_max, 1e3)
    limit = np.full(len(path), 0.9 * top)
    limit[1:-1] = np.minimum(limit[1:-1], np.sqrt(most / np.maximum(bend, 1e-6)))
    limit = np.maximum(limit, 1.0)
    limit[0] = min(max(float(np.linalg.norm(course.x0[V])), 0.1), limit[0] if limit[0] > 1 else 1)
    if course.legs[-1].gate is None:
        limit[-1] = 0.1
    quad, lin = course.task.vehicle.drag_quadratic_1_m, float(np.mean(course.task.vehicle.drag_linear_1_s))
    v2 = limit**2
    for i in range(len(ds)):
        v2[i + 1] = min(v2[i + 1], v2[i] + 2 * max(most - (quad * v2[i] + lin * math.sqrt(v2[i])), 0.0) * ds[i])
    for i in range(len(ds) - 1, -1, -1):
        v2[i] = min(v2[i], v2[i + 1] + 2 * (most + quad * v2[i + 1] + lin * math.sqrt(v2[i + 1])) * ds[i])
    speed = np.sqrt(v2)
    t = np.concatenate([[0.0], np.cumsum(2 * ds / (speed[1:] + speed[:-1]))])
    marks = np.concatenate([[0.0], t[ends]])
    durations = np.diff(marks)
    paths = [np.array([np.interp(np.linspace(a, b, 17), t, row) for row in path.T]) for a, b in zip(marks, marks[1:], strict=False)]
    mesh = first_mesh(course, durations, paths)
    at = np.concatenate([[0.0], np.cumsum(intervals(mesh, durations))])
    tangent = np.vstack([unit[:1], unit[:-1] + unit[1:], unit[-1:]])
    tangent /= np.maximum(np.linalg.norm(tangent, axis=1, keepdims=True), 1e-9)
    velocity = tangent * speed[:, None]
    n = len(at) - 1
    x = np.repeat(course.x0[:, None], n + 1, axis=1)
    x[P] = [np.interp(at, t, row) for row in path.T]
    x[V] = [np.interp(at, t, row) for row in velocity.T]
    x[:, 0] = course.x0
    wide = np.clip(at[None] + np.array([[-0.1], [0.1]]), 0.0, at[-1])
    late, early = (np.array([np.interp(w, t, row) for row in velocity.T]) for w in wide[::-1])
    a = (late - early) / (wide[1] - wide[0])
    force = a - np.array([[0], [0], [GRAVITY]]) + course.task.vehicle.drag_quadratic_1_m * np.linalg.norm(x[V], axis=0) * x[V]
    force += np.mean(course.task.vehicle.drag_linear_1_s) * x[V]
    size = np.linalg.norm(force, axis=0)
    level = from_euler(0.0, 0.0, to_euler(course.x0[Q])[2])
    for k in range(1, n + 1):
        x[Q, k] = _tilted(-force[:, k] / max(size[k], 1e-3), level)
        if x[Q, k] @ x[Q, k - 1] < 0:
            x[Q, k] *= -1
    x[C, 1:] = np.clip(size[1:], 2.0, 0.9 * c)
    w, dt = np.zeros((3, n)), intervals(mesh, durations)
    for k in range(n):
        w[:, k] = np.clip(log(product_q(conjugate(x[Q, k]), x[Q, k + 1])) / dt[k], -0.5 * model.w_high, 0.5 * model.w_high)
    x[W, 1:] = w
    return mesh, Point(x, model.inputs(w, x[C, 1:].ravel()), durations)


def solve(course: Course, mesh: Mesh, point: Point, mu=1e-2, least=1e-5, most=100, verbose=False):
    dt = intervals(mesh, point.durations)
    parts = np.clip(np.ceil(dt / PART_S), 1, ip.PARTS).astype(int)
    table = rows(course, mesh, point, parts)
    X, U, T = np.ascontiguousarray(point.x.T), np.ascontiguousarray(point.u.T), point.durations.copy()
    stats = np.zeros((most, 10))
    begin = time.process_time()
    par = np.array(flat(course.task.model.parameters))
    ok, count = ip.minimise(
        X, U, T, leg_numbers(mesh), np.concatenate(mesh), parts, par, *table, mu, least, most, stats
    )
    if verbose:
        for i, one in enumerate(stats[: count + 1]):
            print(i, *(f"{v:.3g}" for v in one))
        print(f"{ok} {count} it {time.process_time() - begin:.3f} CPU s, {len(dt)} intervals, {len(table[1])} rows")
    return ok, count, Point(X.T, U.T, T)
