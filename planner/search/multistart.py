"""Multistart: several initial guesses are solved in parallel on coarse meshes, and the best optimum is refined.

Local optima differ by up to 0.1 % on the published courses and 0.5 % on VQ1. Their order after two meshes was that of the
refined plans in every measured case, so only the best is refined.
"""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from gate_racer.planner.course.course import Course
from gate_racer.planner.course.legs import Leg
from gate_racer.planner.models import P
from gate_racer.planner.plan import Plan, SolverStatistics
from gate_racer.planner.problem.deadline import ENDLESS, Deadline
from gate_racer.planner.problem.mesh import Mesh, intervals
from gate_racer.planner.problem.nlp import IterationCallback
from gate_racer.planner.problem.point_mass import PointMass, solve_point_mass
from gate_racer.planner.problem.problem import TimeOptimalProblem
from gate_racer.planner.problem.terms import Point
from gate_racer.planner.search.guess import Guess, guesses
from gate_racer.planner.search.refinement import LEVELS, WARM, Optimum, coarse, refined
from gate_racer.planner.search.stretches import from_guess
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.process import shielded

LONG = 8  # gates, above which one guess is solved: on longer courses a poor guess costs more than a good one gains
EXPLORED = 2  # meshes solved for each guess
EXPLORE_SHARE = 0.5  # -, fraction of the remaining CPU time for each of these (chosen)


def plans(
    course: Course, deadline: Deadline = ENDLESS, progress: IterationCallback = None, warm: Plan | None = None
) -> Iterator[tuple[Plan, SolverStatistics]]:
    """Yield plans of the flight through the course with their statistics, the most promising one first.

    Args:
        progress: called with the iteration's number and the present flight time, s.
        warm: a plan of the same legs, for a warm start instead of guesses.

    Raises:
        UserError: there is no way through the course, the warm plan is of another course, or the deadline has passed.
    """
    begin = time.perf_counter()
    problem, bound = TimeOptimalProblem(course, deadline), None
    if warm is None:
        point_mass = solve_point_mass(course, deadline)
        bound = point_mass.total_time if point_mass.solved else None
        ready = time.perf_counter()
        optima = _explored(problem, point_mass, progress)
    else:
        mesh, point = of_plan(warm, course)
        ready = time.perf_counter()
        optima = {f"plan of {warm.track_name}": coarse(problem, mesh, point, WARM, progress)}
    times = {name: one.total_time if one.solved.success else None for name, one in optima.items()}
    ranked = sorted(optima.values(), key=lambda one: one.total_time if one.solved.success else math.inf)
    spent = sum(one.iterations for one in ranked)
    for one in ranked:
        final = refined(problem, one, LEVELS, progress) if one.solved.success else one
        spent += final.iterations - one.iterations
        solved, solve_s = final.solved, time.perf_counter() - ready
        effort = SolverStatistics(solved.status, solved.success, spent, ready - begin, solve_s, bound, times)
        yield as_plan(course, final.mesh, solved.point), effort


def _explored(problem: TimeOptimalProblem, point_mass: PointMass, progress: IterationCallback) -> dict[str, Optimum]:
    """Return the coarse optimum of every guess; several guesses are solved in parallel processes."""
    options = problem.course.task.options
    count = options.guesses or (1 if len(problem.course.ways) > LONG else 2)
    chosen = guesses(options.gates_in_view)[:count]
    if len(chosen) == 1:
        return {chosen[0].name: from_guess(problem, point_mass, chosen[0], EXPLORED, progress)}
    optima = {}
    deadline = problem.deadline
    task = partial(_explore_afresh, problem.course, point_mass, deadline.limit_s, EXPLORE_SHARE * deadline.left_s)
    with shielded():
        crew = multiprocessing.Pool(min(len(chosen), os.cpu_count() or 1), _leave_interrupts_to_the_parent)
    with crew as pool:
        for guess, optimum in pool.imap(task, chosen):
            optima[guess.name] = optimum
            if progress is not None:
                progress(optimum.iterations, optimum.total_time)
    return optima


def _explore_afresh(
    course: Course, point_mass: PointMass, limit_s: float, left_s: float, guess: Guess
) -> tuple[Guess, Optimum]:
    problem = TimeOptimalProblem(course, Deadline.after(limit_s, left_s))
    return guess, from_guess(problem, point_mass, guess, EXPLORED, None)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def of_plan(plan: Plan, course: Course) -> tuple[Mesh, Point]:
    """Convert a plan to a point on its own mesh.

    Raises:
        UserError: the plan is of another model or has another number of legs.
    """
    groups, model = course.ways, course.task.model
    if plan.model != model.name or len(plan.gate_nodes) != len(groups):
        raise UserError(
            f"--warm: the plan has {len(plan.gate_nodes)} legs of the {plan.model} model,"
            f" must be {len(groups)} legs of {model.name}"
        )
    ends = [0]
    for parts, last in zip(groups, plan.gate_nodes, strict=True):
        ends += [*_crossed(plan, [course.legs[i] for i in parts[:-1]], ends[-1], last), last]
    durations = np.diff(plan.t[list(ends)])
    dt = np.diff(plan.t)
    mesh = [dt[a:b] / T for a, b, T in zip(ends, ends[1:], durations, strict=False)]
    return mesh, Point(plan.x.T, plan.u[:-1].T, durations)


def _crossed(plan: Plan, parts: list[Leg], first: int, last: int) -> list[int]:
    """Return the nodes between two passages that are nearest to the planes on which these legs end.

    Raises:
        UserError: there are fewer nodes than legs.
    """
    nodes = []
    for left, leg in zip(range(len(parts), 0, -1), parts, strict=True):
        assert leg.gate is not None
        if last - left <= first:
            raise UserError(f"--warm: the plan of {plan.track_name} has too few rows between two of its gates")
        off = np.abs(leg.gate.local(plan.x[first + 1 : last - left + 1, P])[:, 0] - leg.plane_m)
        first += 1 + int(off.argmin())
        nodes.append(first)
    return nodes


def as_plan(course: Course, mesh: Mesh, point: Point) -> Plan:
    """Convert a point of the optimiser to a plan, not yet certified."""
    task, u = course.task, point.u.T
    ends = np.cumsum([len(fractions) for fractions in mesh])
    return Plan(
        track_name=task.track.name,
        track_file=task.track.file,
        track_hash=task.track.hash,
        vehicle_name=task.vehicle.name,
        vehicle_hash=task.vehicle.hash,
        model=task.model.name,
        laps=task.options.laps,
        t=np.concatenate([[0.0], np.cumsum(intervals(mesh, point.durations))]),
        x=point.x.T,
        u=u[[*range(len(u)), -1]],
        gate_nodes=tuple(int(ends[parts[-1]]) for parts in course.ways),
    )
