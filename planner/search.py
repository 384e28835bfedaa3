"""The search for the best plan: several first guesses explored side by side on coarse meshes, the best of them refined.

Local optima differ by up to 0.1 % on the published courses and 0.5 % on VQ1. Their order after two meshes was that of the
refined plans in every case measured, so only the best is refined.
"""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from planner.asked import initial
from planner.course import Leg, intervals, legs, ways
from planner.guess import Guess, first_guess, guesses
from planner.model import P, first_state, model
from planner.options import PlanOptions
from planner.plan import Plan
from planner.point_mass import PointMass, solve_point_mass
from planner.problem import Point, Problem
from planner.refinement import FIRST, LEVELS, WARM, Progress, Stage, first_mesh, first_stage, refined
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.process import shielded
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

LONG = 8  # gates; on longer courses a poor guess costs more than a good one gains
EXPLORED = 2  # meshes of every guess


@dataclass(frozen=True)
class Effort:
    """How a solution was come by."""

    solver_status: str
    success: bool
    iterations: int
    build_s: float
    solve_s: float
    point_mass_bound_s: float | None
    guesses_s: dict[str, float | None]  # per first guess, the time of its coarse optimum; None: it led to none


@dataclass(frozen=True)
class Solution:
    """What the optimiser returned, good or not."""

    t: Array  # (N + 1,) s
    x: Array  # (NX, N + 1)
    u: Array  # (NU, N), held over each interval
    gate_nodes: tuple[int, ...]  # the node of each passage, and of the end
    model: str
    effort: Effort


def solutions(
    track: Track, vehicle: Vehicle, options: PlanOptions, progress: Progress = None, warm: Plan | None = None
) -> Iterator[Solution]:
    """Plans the flight through the course: the most promising solution first, the others for when that one will not do.

    Args:
        progress: called with the iteration's number and the time of flight so far, s.
        warm: a plan of the same legs, to start from instead of guesses.

    Raises:
        UserError: the course contradicts the vehicle, or not even a point mass can fly it.
    """
    begin = time.perf_counter()
    problem, bound = formulate(track, vehicle, options), None
    if warm is None:
        point_mass = solve_point_mass(track, vehicle, legs(track, vehicle, options), options)
        bound = point_mass.total_time if point_mass.solved else None
        ready = time.perf_counter()
        stages = _explored(problem, options, point_mass, progress)
    else:
        mesh, point = _of_plan(warm, problem)
        ready = time.perf_counter()
        stages = {f"plan of {warm.track_name}": first_stage(problem, mesh, point, WARM, progress)}
    times = {name: stage.total_time if stage.outcome.success else None for name, stage in stages.items()}
    ranked = sorted(stages.values(), key=lambda stage: stage.total_time if stage.outcome.success else math.inf)
    spent = sum(stage.iterations for stage in ranked)
    for stage in ranked:
        final = refined(problem, stage, LEVELS, progress) if stage.outcome.success else stage
        spent += final.iterations - stage.iterations
        outcome, solve_s = final.outcome, time.perf_counter() - ready
        effort = Effort(outcome.status, outcome.success, spent, ready - begin, solve_s, bound, times)
        yield _solution(problem, final, effort)


def formulate(track: Track, vehicle: Vehicle, options: PlanOptions) -> Problem:
    """The optimal-control problem of a course."""
    chosen, begin = model(vehicle, options), initial(track, options)
    x0 = None if begin is None else first_state(chosen, begin)
    return Problem(track, vehicle, options, chosen, legs(track, vehicle, options), x0)


def _explored(problem: Problem, options: PlanOptions, point_mass: PointMass, progress: Progress) -> dict[str, Stage]:
    """The coarse optimum of every guess, in processes of their own when there are several."""
    count = options.guesses or (1 if len(ways(problem.course)) > LONG else 2)
    chosen = guesses(options.see)[:count]
    if len(chosen) == 1:
        return {chosen[0].name: _explore(problem, point_mass, progress, chosen[0])}
    stages = {}
    task = partial(_explore_afresh, problem.track, problem.vehicle, options, point_mass)
    with shielded():
        crew = multiprocessing.Pool(min(len(chosen), os.cpu_count() or 1), _leave_interrupts_to_the_parent)
    with crew as pool:
        for guess, stage in pool.imap(task, chosen):
            stages[guess.name] = stage
            if progress is not None:
                progress(stage.iterations, stage.total_time)
    return stages


def _explore_afresh(track: Track, vehicle: Vehicle, options: PlanOptions, point_mass: PointMass, guess: Guess):
    return guess, _explore(formulate(track, vehicle, options), point_mass, None, guess)


def _explore(problem: Problem, point_mass: PointMass, progress: Progress, guess: Guess) -> Stage:
    durations = guess.slack * point_mass.durations
    mesh = first_mesh(problem.course, durations, problem.options)
    begin = initial(problem.track, problem.options)
    point = Point(*first_guess(problem.model, begin, point_mass, mesh, guess))
    first = first_stage(problem, mesh, point, FIRST, progress)
    return refined(problem, first, EXPLORED, progress) if first.outcome.success else first


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _of_plan(plan: Plan, problem: Problem) -> tuple[list[Array], Point]:
    """A plan as a point on its own mesh.

    Raises:
        UserError: it is of another model or has another number of legs.
    """
    groups = ways(problem.course)
    if plan.model != problem.model.name or len(plan.gate_nodes) != len(groups):
        raise UserError(
            f"--warm: the plan has {len(plan.gate_nodes)} legs of the {plan.model} model,"
            f" needed are {len(groups)} of {problem.model.name}"
        )
    ends = [0]
    for parts, last in zip(groups, plan.gate_nodes, strict=True):
        ends += [*_crossed(plan, [problem.course[i] for i in parts[:-1]], ends[-1], last), last]
    durations = np.diff(plan.t[list(ends)])
    dt = np.diff(plan.t)
    mesh = [dt[a:b] / T for a, b, T in zip(ends, ends[1:], durations, strict=False)]
    return mesh, Point(plan.x.T, plan.u[:-1].T, durations)


def _crossed(plan: Plan, parts: list[Leg], first: int, last: int) -> list[int]:
    """The nodes between two passages that are nearest to the planes on which these legs end.

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


def _solution(problem: Problem, stage: Stage, effort: Effort) -> Solution:
    point = stage.outcome.point
    t = np.concatenate([[0.0], np.cumsum(intervals(stage.mesh, point.durations))])
    ends = np.cumsum([len(fractions) for fractions in stage.mesh])
    nodes = tuple(int(ends[parts[-1]]) for parts in ways(problem.course))
    return Solution(t, point.x, point.u, nodes, problem.model.name, effort)
