"""Search: several guesses in parallel, each refined mesh by mesh.

Time-optimal inputs jump, and a jump inside an interval costs time: so the intervals are halved that lie beside a jump, exceed
the integration error, or violate constraints between nodes. Iterations grow with the number of gates: so a long course is
first solved in stretches, each from the final state of the one before to a few gates beyond its end.

Local optima differ by up to 0.5 %, and their order on coarse meshes is not that of the refined plans.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.process import shielded
from gate_racer.planner.course import Course, Leg
from gate_racer.planner.guess import Guess, PointMass, first_guess, guesses, leaning, ways_past_solids
from gate_racer.planner.mesh import Duals, Mesh, Point, first_mesh, intervals
from gate_racer.planner.models import Model, P, V, W
from gate_racer.planner.nlp import ENDLESS, Deadline
from gate_racer.planner.plan import Plan, SolverStatistics
from gate_racer.planner.problem import Progress, Solved, TimeOptimalProblem
from gate_racer.vehicle.rotation import Array

LEVELS = 6  # largest number of meshes, the first included; the last gains 0.002 % of time
MENDED = 4  # most further meshes for violations between the nodes of the last, which occur at about one of 200 gates
DEFECT_M, DEFECT_M_S, DEFECT_RAD_S = 3e-6, 3e-4, 8e-3  # integration error above which an interval is halved
COARSE_TOLERANCE, TOLERANCE = 1e-3, 1e-6  # IPOPT's tolerance, before and on the last mesh
STILL_EXACT = 2.0  # -, multiple of these errors allowed on the last mesh, where a jump may enter an unrefined interval
GROWTH = 1.1  # -, growth of the number of intervals below which a mesh is the last
# The barrier stays adaptive throughout: with a return to monotone mode, iterations grow with the number of gates.
FIRST = {
    "ipopt.max_iter": 300,
    "ipopt.mu_strategy": "adaptive",
    "ipopt.adaptive_mu_globalization": "never-monotone-mode",
    "ipopt.tol": COARSE_TOLERANCE,
}


def from_nearby(distance: float) -> dict:
    """Return IPOPT options for a start near the solution: a small initial barrier, and no push away from active bounds."""
    pushes = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac", "mult_bound_push")
    return {
        "ipopt.max_iter": 600,
        "ipopt.mu_strategy": "monotone",
        "ipopt.mu_init": distance,
        "ipopt.warm_start_init_point": "yes",
        **{f"ipopt.warm_start_{push}": distance for push in pushes},
    }


FINE = 3e-6  # initial barrier on the last mesh, from the solution on the previous mesh, multipliers included
LAST = from_nearby(FINE) | {"ipopt.tol": TOLERANCE}
WARM = from_nearby(1e-4) | {"ipopt.tol": COARSE_TOLERANCE}  # from a plan of a similar course; halves the time


def refined(problem: TimeOptimalProblem, optimum: Solved, levels: int) -> Solved:
    """Refine an optimum up to a level, the last to the full tolerance and halved again where its path violates constraints."""
    model, mended = problem.model, 0
    while True:
        strays = problem.strays(optimum.mesh, optimum.point)
        if optimum.level >= levels:
            if levels < LEVELS or mended == MENDED or not (optimum.success and strays.any()):
                return optimum
            mended += 1
        finer, point = _halved(model, optimum.mesh, optimum.point, strays)
        done = not strays.any() and len(point.u[0]) < GROWTH * len(strays)
        last = done or optimum.level + 1 >= LEVELS
        settings = LAST if last else from_nearby(model.nearby) | {"ipopt.tol": COARSE_TOLERANCE}
        solved = problem.solve(finer, point, settings)
        done = done and not _inexact(model, finer, solved.point, STILL_EXACT).any()
        level = LEVELS if done else optimum.level + 1
        optimum = replace(solved, iterations=optimum.iterations + solved.iterations, level=level)


def _halved(model: Model, mesh: Mesh, point: Point, split: Array) -> tuple[Mesh, Point]:
    """Halve the intervals of `split` (N,) and others that need it; returns the mesh and the same trajectory on it."""
    jump = (np.abs(np.diff(point.u, axis=1)) > model.jump * (model.u_high - model.u_low)[:, None]).any(axis=0)
    split = split | np.append(jump, False) | np.append(False, jump)
    split = split | _inexact(model, mesh, point, 1.0)
    middle = model.integrate(point.x[:, :-1], point.u, intervals(mesh, point.durations) / 2, model.substeps)
    parts = np.where(split, 2, 1)
    # Every interval ends in its old node; a split one has a new node in its middle.
    ends = np.repeat(np.arange(len(parts)), parts)
    is_end = np.append(ends[1:] != ends[:-1], True)
    x = np.where(is_end, point.x[:, 1:][:, ends], middle[:, ends])
    finer, first = [], 0
    for fractions in mesh:
        count = parts[first : first + len(fractions)]
        finer.append(np.repeat(fractions / count, count))
        first += len(fractions)
    whole = np.column_stack([point.x[:, 0], x])
    return finer, Point(whole, point.u[:, ends], point.durations, _shared(point, ends, is_end))


def _inexact(model: Model, mesh: Mesh, point: Point, factor: float) -> np.ndarray:
    """Return for each interval, (N,), whether its integration error exceeds `factor` times the threshold for halving."""
    dt = intervals(mesh, point.durations)
    coarse = model.integrate(point.x[:, :-1], point.u, dt, model.substeps)
    error = np.abs(model.integrate(point.x[:, :-1], point.u, dt, 4 * model.substeps) - coarse)
    most = ((P, DEFECT_M), (V, DEFECT_M_S), (W, DEFECT_RAD_S))
    return np.any([error[part].max(axis=0) > factor * defect for part, defect in most], axis=0)


def _shared(point: Point, ends: np.ndarray, is_end: np.ndarray) -> Duals | None:
    """Map multipliers to the halved mesh: costates are interpolated, those of bounds are divided among the halves."""
    duals = point.duals
    if duals is None:
        return None
    before = np.column_stack([duals.costate[:, 0], duals.costate[:, :-1]])
    costate = np.where(is_end, duals.costate[:, ends], 0.5 * (before + duals.costate)[:, ends])
    share = 1 / np.bincount(ends)[ends]
    return Duals(costate, duals.x[:, ends] * share, duals.u[:, ends] * share, duals.durations, duals.mesh_free)


LONG_COURSE_LEGS = 24  # gates, above which a course is solved in stretches
STRETCH, AHEAD = 12, 2  # gates of a stretch, and of its overlap with the next
FAR_M = 50.0  # m, longest section above which the first optimum is found in steps
LOOKING_AWAY_S = 2.0  # s per unit tangent outside the image; with 10 s a gate 1 km away exceeds the time limit
STRETCH_LEVELS = 3  # meshes of each stretch; the whole is solved on the next
# Gates, above which joined stretches are not solved as a whole: 0.2 % slower at 200 gates, in half of the time.
VERY_LONG = 100


def from_guess(problem: TimeOptimalProblem, point_mass: PointMass, guess: Guess, levels: int) -> Solved:
    """Solve from one initial guess up to a level, or a later one; returns the coarse result if that has failed."""
    if problem.course.has_slots:
        problem = TimeOptimalProblem(leaning(problem.course, point_mass), problem.deadline, problem.progress)
    mesh = first_mesh(problem.course, guess.slack * point_mass.durations, point_mass.p)
    start = first_guess(problem.course, point_mass, mesh, guess)
    first = None
    if len(problem.course.sections) > LONG_COURSE_LEGS and problem.course.x0 is not None:
        first = _in_stretches(problem, mesh, start)
    first = first or _first(problem, mesh, start)
    return refined(problem, first, levels) if first.success else first


def _first(problem: TimeOptimalProblem, mesh: Mesh, start: Point) -> Solved:
    """Solve on the first mesh; for a far gate or a slot in three steps: without, with soft and with hard visibility constraint.

    At the tilt of a fast flight the camera sees no gate ahead, from where the multipliers of that constraint diverge.
    """
    course, options = problem.course, problem.course.task.options
    if not options.gates_in_view or (course.longest_section_m <= FAR_M and not course.has_slots):
        return problem.solve(mesh, start, FIRST)
    unseen = TimeOptimalProblem(course.blind, problem.deadline, problem.progress).solve(mesh, start, FIRST)
    start = replace(unseen.point, duals=None) if unseen.success else start
    soft = problem.solve(mesh, start, FIRST, LOOKING_AWAY_S)
    done = problem.solve(mesh, soft.point, WARM) if soft.success else problem.solve(mesh, start, FIRST)
    return replace(done, iterations=unseen.iterations + soft.iterations + done.iterations)


def _in_stretches(problem: TimeOptimalProblem, mesh: Mesh, start: Point) -> Solved | None:
    """Solve all stretches and join their optima; None if one has failed."""
    course, meshes, points, iterations = problem.course, Mesh(), list[Point](), 0
    levels = STRETCH_LEVELS if len(course.sections) <= VERY_LONG else LEVELS
    for first, kept, seen in stretches(course.sections):
        x0 = points[-1].x[:, -1] if points else course.x0
        part = TimeOptimalProblem(course.stretch(slice(first, seen), x0), problem.deadline, problem.progress)
        optimum = _first(part, mesh[first:seen], start.stretch(mesh, slice(first, seen)))
        if optimum.success:
            optimum = refined(part, optimum, levels)
        iterations += optimum.iterations
        if not optimum.success:
            return None
        points.append(optimum.point.stretch(optimum.mesh, slice(kept - first)))
        meshes += optimum.mesh[: kept - first]
    return Solved(meshes, Point.joined(points), True, "in stretches", iterations, levels)


def stretches(sections: list[list[int]]) -> Iterator[tuple[int, int, int]]:
    """Yield per stretch the indices of its first leg, and one past its last leg without and with the overlap."""
    for begin in range(0, len(sections), STRETCH):
        kept, seen = sections[: begin + STRETCH][-1], sections[: begin + STRETCH + AHEAD][-1]
        yield sections[begin][0], kept[-1] + 1, seen[-1] + 1


LONG = 8  # gates, above which one guess is solved: on longer courses a poor guess costs more than a good one gains
SLOT_GUESSES = 4  # guesses for a course with a slot, of which half converge (chosen)
PROMISING = 1.1  # -, times of the point mass up to which other ways past solids are solved (chosen),
OTHER_WAYS = 2  # and their number
EXPLORE_SHARE = 0.5  # -, fraction of the remaining CPU time for each of these (chosen)


def plans(
    course: Course, deadline: Deadline = ENDLESS, progress: Progress | None = None, warm: Plan | None = None
) -> Iterator[tuple[Plan, SolverStatistics]]:
    """Yield plans of the flight through the course with their statistics, the most promising one first.

    Raises UserError: there is no way through the course, the warm plan is of another course, or the deadline has passed.
    """
    begin = time.perf_counter()
    problem, bound = TimeOptimalProblem(course, deadline, progress), None
    if warm is None:
        ways = ways_past_solids(course, deadline)
        bound = ways[0].total_time if ways[0].solved else None
        ready = time.perf_counter()
        optima = _explored(problem, ways)
    else:
        mesh, point = of_plan(warm, course)
        ready = time.perf_counter()
        optima = {f"plan of {warm.track_name}": problem.solve(mesh, point, WARM)}
    times = {name: one.total_time if one.success else None for name, one in optima.items()}
    spent = sum(one.iterations for one in optima.values())
    for one in sorted(optima.values(), key=lambda one: one.cost):
        final = refined(problem, one, LEVELS) if one.success else one
        spent += final.iterations - one.iterations
        solve_s = time.perf_counter() - ready
        effort = SolverStatistics(final.status, final.success, spent, ready - begin, solve_s, bound, times)
        yield as_plan(course, final), effort


def _explored(problem: TimeOptimalProblem, ways: list[PointMass]) -> dict[str, Solved]:
    """Return the optimum of every guess along the fastest way, and of one along others, refined on all meshes, in parallel."""
    course, options, deadline = problem.course, problem.course.task.options, problem.deadline
    count = options.guesses or (SLOT_GUESSES if course.has_slots else 1 if len(course.sections) > LONG else 2)
    variants = guesses(options.gates_in_view and not course.has_slots)
    near = [way for way in ways[1:] if way.total_time < PROMISING * ways[0].total_time][:OTHER_WAYS]
    chosen = [(one.name, ways[0], one) for one in variants[:count]]
    chosen += [(f"{variants[0].name}, way {k}", way, variants[0]) for k, way in enumerate(near, 2)]
    if len(chosen) == 1:
        return {chosen[0][0]: from_guess(problem, *chosen[0][1:], LEVELS)}
    optima = {}
    task = partial(_explore_afresh, course, deadline.limit_s, EXPLORE_SHARE * deadline.left_s)
    with shielded():
        left_to_the_parent = signal.SIGINT, signal.SIG_IGN
        crew = multiprocessing.Pool(min(len(chosen), os.cpu_count() or 1), signal.signal, left_to_the_parent)
    with crew as pool:
        for (name, _, _), optimum in zip(chosen, pool.imap(task, chosen), strict=True):
            optima[name] = optimum
            if problem.progress is not None:
                problem.progress(optimum.iterations, optimum.total_time)
    return optima


def _explore_afresh(course: Course, limit_s: float, left_s: float, variant: tuple[str, PointMass, Guess]) -> Solved:
    problem = TimeOptimalProblem(course, Deadline.after(limit_s, left_s))
    return from_guess(problem, *variant[1:], LEVELS)


def of_plan(plan: Plan, course: Course) -> tuple[Mesh, Point]:
    """Convert a plan to a point on its own mesh. Raises UserError for another model or number of legs."""
    groups, model = course.sections, course.task.model
    if plan.model != model.name or len(plan.gate_nodes) != len(groups):
        has = f"the plan has {len(plan.gate_nodes)} legs of the {plan.model} model"
        raise UserError(f"warm: {has}, must be {len(groups)} legs of {model.name}")
    ends = [0]
    for parts, last in zip(groups, plan.gate_nodes, strict=True):
        ends += [*_crossed(plan, [course.legs[i] for i in parts[:-1]], ends[-1], last), last]
    durations = np.diff(plan.t[list(ends)])
    dt = np.diff(plan.t)
    mesh = [dt[a:b] / T for a, b, T in zip(ends, ends[1:], durations, strict=False)]
    return mesh, Point(plan.x.T, plan.u[:-1].T, durations)


def _crossed(plan: Plan, parts: list[Leg], first: int, last: int) -> list[int]:
    """Return the nodes between two passages that are nearest to the planes on which these legs end. Raises UserError: too few."""
    nodes = []
    if last - first <= len(parts):
        raise UserError(f"warm: the plan of {plan.track_name} has too few rows between two of its gates")
    for left, leg in zip(range(len(parts), 0, -1), parts, strict=True):
        assert leg.gate is not None
        off = np.abs(leg.gate.local(plan.x[first + 1 : last - left + 1, P])[:, 0] - leg.plane_m)
        first += 1 + int(off.argmin())
        nodes.append(first)
    return nodes


def as_plan(course: Course, solved: Solved) -> Plan:
    task, point, u = course.task, solved.point, solved.point.u.T
    ends = np.cumsum([len(fractions) for fractions in solved.mesh])
    t = np.append(0.0, np.cumsum(intervals(solved.mesh, point.durations)))
    nodes = tuple(int(ends[parts[-1]]) for parts in course.sections)
    return Plan.of(task, task.model.name, t, point.x.T, u[[*range(len(u)), -1]], nodes)
