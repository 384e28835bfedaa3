"""The window of the view: where less is seen than was asked, its first interval is what to refine, and only there."""

import numpy as np

from planner.course.course import resolve
from planner.models import Q
from planner.options import PlanOptions
from planner.problem.mesh import intervals
from planner.problem.terms import Point
from planner.problem.view import GatesInView
from planner.search.multistart import _of_plan
from planner.task import Task
from vehicle.rotation import from_euler, product


def test_looking_away_before_a_window_is_refined_at_its_first_interval(plan, vq1, dcl):
    """Turned about until the window's first node, the vehicle still does all that is asked of the nodes themselves."""
    course = resolve(Task(vq1, dcl, PlanOptions()))
    term, (mesh, point) = GatesInView(course), _of_plan(plan, course)
    gate, way, window = list(term._windows(mesh, point.durations))[1]
    away, x = slice(way[0], window[0] + 1), point.x.copy()
    for k in range(away.start, away.stop):
        x[Q, k] = product(from_euler(0.0, 0.0, np.pi), x[Q, k])
    turned = Point(x, point.u, point.durations)
    at_nodes = [np.array(term._seen.values(x[: Q.stop, k + 1], gate.p_wg)).min() for k in window]
    assert min(at_nodes) > -1e-6
    dt = intervals(mesh, point.durations)
    assert dt[window].sum() / dt[way].sum() > PlanOptions().see - 0.01  # as counted by ends of intervals
    assert np.flatnonzero(term.strays(mesh, turned, np.empty((1, len(dt), 3)))).tolist() == [window[0]]
