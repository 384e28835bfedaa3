"""Long courses in windows: a horizon over some gates that recedes along the course.

What lies several gates ahead hardly changes how a gate is flown, while the iterations of an interior-point method grow with the
number of gates. So a window is solved to the full tolerance, its last gates are dropped, since it was blind to what follows them,
and the next window begins in the very state in which the kept part ends.
"""

from math import ceil

import numpy as np

from planner.course.course import Course
from planner.models import RotorsModel
from planner.problem.deadline import ENDLESS, Deadline
from planner.problem.nlp import Progress
from planner.problem.point_mass import solve_point_mass
from planner.problem.problem import Point, Solved, TimeOptimalProblem
from planner.search.guess import guesses
from planner.search.refinement import LEVELS, Optimum, from_guess

WHOLE = 24  # gates; up to that a course is solved at once
WINDOW, AHEAD = 14, 3  # gates solved at once, and those of them that the next window solves again


def in_windows(course: Course) -> bool:
    """Whether a course is long enough for windows, and what is flown in one says all that the next has to know."""
    model = course.task.model
    remembers = isinstance(model, RotorsModel) and model.thrust_rate_max < np.inf  # the thrusts before
    return len(course.ways) > WHOLE and course.x0 is not None and not remembers


def receding(course: Course, deadline: Deadline = ENDLESS, progress: Progress = None) -> Optimum | None:
    """The optimum window by window; None where a window has none."""
    assert course.x0 is not None
    count, guess = len(course.ways), guesses(course.task.options.see)[0]
    windows = max(ceil((count - AHEAD) / (WINDOW - AHEAD)), 1)
    keep = ceil((count - AHEAD) / windows)  # of each, so that all are of one size
    parts, first, x0 = list[Optimum](), 0, course.x0
    while first < count:
        last = min(first + keep + AHEAD, count)
        part = course.part(first, last, x0)
        found = from_guess(
            TimeOptimalProblem(part, deadline), solve_point_mass(part, deadline), guess, LEVELS, progress
        )
        if not found.solved.success:
            return None
        kept = len(part.ways) if last == count else keep
        parts.append(_beginning(found, sum(map(len, part.ways[:kept]))))
        first, x0 = first + kept, parts[-1].solved.point.x[:, -1]
    return _joined(parts)


def _beginning(optimum: Optimum, legs: int) -> Optimum:
    """The first legs of it."""
    mesh, solved, point = optimum.mesh[:legs], optimum.solved, optimum.solved.point
    n = sum(map(len, mesh))
    cut = Point(point.x[:, : n + 1], point.u[:, :n], point.durations[:legs])
    return Optimum(
        optimum.level, mesh, Solved(cut, solved.success, solved.status, solved.iterations), optimum.iterations
    )


def _joined(parts: list[Optimum]) -> Optimum:
    """One after the other, each of which begins in the state in which the one before ends."""
    points, last = [part.solved.point for part in parts], parts[-1].solved
    point = Point(
        np.hstack([points[0].x, *(one.x[:, 1:] for one in points[1:])]),
        np.hstack([one.u for one in points]),
        np.concatenate([one.durations for one in points]),
    )
    iterations = sum(part.iterations for part in parts)
    mesh = [fractions for part in parts for fractions in part.mesh]
    return Optimum(LEVELS, mesh, Solved(point, last.success, last.status, iterations), iterations)
