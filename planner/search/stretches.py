"""Coarse optimum from an initial guess; a long course is solved in overlapping stretches, one after another.

Both the number of iterations and the time of each grow with the number of gates, since all legs wait for the slowest to
converge. So a long course is first solved in stretches of some gates. Each begins in the final state of the previous one and
extends a few gates beyond its end, which are solved again with the next; the whole then starts close to its solution.
"""

from collections.abc import Iterator
from dataclasses import replace

from gate_racer.planner.problem.mesh import Mesh, first_mesh
from gate_racer.planner.problem.nlp import IterationCallback
from gate_racer.planner.problem.point_mass import PointMass
from gate_racer.planner.problem.problem import Solved, TimeOptimalProblem
from gate_racer.planner.problem.terms import Point
from gate_racer.planner.search.guess import Guess, first_guess
from gate_racer.planner.search.refinement import FIRST, LEVELS, WARM, Optimum, coarse, refined

LONG = 24  # gates, above which a course is solved in stretches
STRETCH, AHEAD = 12, 2  # gates of a stretch, and of its overlap with the next
FAR_M = 50.0  # m, longest way above which the first optimum is found in steps
LOOKING_AWAY_S = 2.0  # s per unit tangent outside the image; with 10 s a gate 1 km away exceeds the time limit
STRETCH_LEVELS = 3  # meshes of each stretch; the whole is solved on the next
# Gates, above which joined stretches are not solved as a whole: 0.2 % slower at 200 gates, in half of the time.
VERY_LONG = 100


def from_guess(
    problem: TimeOptimalProblem, point_mass: PointMass, guess: Guess, levels: int, progress: IterationCallback
) -> Optimum:
    """Solve from one initial guess up to a level, or a later one; returns the coarse result if that has failed."""
    mesh = first_mesh(problem.course, guess.slack * point_mass.durations, point_mass.p)
    start = first_guess(problem.course, point_mass, mesh, guess)
    first = None
    if len(problem.course.ways) > LONG and problem.course.x0 is not None:
        first = _in_stretches(problem, mesh, start, progress)
    first = first or _first(problem, mesh, start, progress)
    return refined(problem, first, levels, progress) if first.solved.success else first


def _first(problem: TimeOptimalProblem, mesh: Mesh, start: Point, progress: IterationCallback) -> Optimum:
    """Solve on the first mesh; for a far gate in view in three steps: without, with soft and with hard visibility constraint.

    At the tilt of a fast flight, 75 degrees, the camera sees no gate ahead, and from such a point the multipliers of the
    visibility constraint diverge. The linear penalty bounds them: plans to gates 500 m and 1 km away take 9 and 23 s. With the
    hard constraint at once, or from the unconstrained optimum with a small barrier, 500 m do not converge within 60 s; from there
    without the penalty, one course of 500 m converges and another does not.
    """
    course, options = problem.course, problem.course.task.options
    if not options.gates_in_view or course.longest_way_m <= FAR_M:
        return coarse(problem, mesh, start, FIRST, progress)
    blind = replace(course, task=replace(course.task, options=replace(options, see=0.0, sight_s=0.0)))
    done = TimeOptimalProblem(blind, problem.deadline).solve(mesh, start, FIRST, progress)
    iterations, settings = done.iterations, FIRST
    if done.success:
        start = replace(done.point, duals=None)
    done = problem.solve(mesh, start, FIRST, progress, LOOKING_AWAY_S)
    iterations += done.iterations
    if done.success:
        start, settings = done.point, WARM
    optimum = coarse(problem, mesh, start, settings, progress)
    return replace(optimum, iterations=optimum.iterations + iterations)


def _in_stretches(problem: TimeOptimalProblem, mesh: Mesh, start: Point, progress: IterationCallback) -> Optimum | None:
    """Solve all stretches and join their optima; None if one has failed."""
    course, meshes, points, iterations = problem.course, Mesh(), list[Point](), 0
    levels = STRETCH_LEVELS if len(course.ways) <= VERY_LONG else LEVELS
    for first, kept, seen in _stretches(course.ways):
        x0 = points[-1].x[:, -1] if points else course.x0
        part = TimeOptimalProblem(course.stretch(slice(first, seen), x0), problem.deadline)
        optimum = _first(part, mesh[first:seen], start.stretch(mesh, slice(first, seen)), progress)
        if optimum.solved.success:
            optimum = refined(part, optimum, levels, progress)
        iterations += optimum.iterations
        if not optimum.solved.success:
            return None
        points.append(optimum.solved.point.stretch(optimum.mesh, slice(kept - first)))
        meshes += optimum.mesh[: kept - first]
    return Optimum(levels, meshes, Solved(Point.joined(points), True, "in stretches", iterations), iterations)


def _stretches(ways: list[list[int]]) -> Iterator[tuple[int, int, int]]:
    """Yield per stretch the indices of its first leg, and one past its last leg without and with the overlap."""
    for begin in range(0, len(ways), STRETCH):
        kept, seen = ways[: begin + STRETCH][-1], ways[: begin + STRETCH + AHEAD][-1]
        yield ways[begin][0], kept[-1] + 1, seen[-1] + 1
