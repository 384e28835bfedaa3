"""Constraints between nodes: the intervals that look away in part, or on which the speed exceeds its limit, are refined."""

import numpy as np

from gate_racer.planner.course import resolve
from gate_racer.planner.models import Q, RatesModel, V
from gate_racer.planner.search import of_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.terms import GatesInView, Point, SpeedLimit
from gate_racer.vehicle.rotation import from_euler, product


def test_intervals_that_look_away_in_part_are_refined_where_too_little_is_seen(plan, vq1, dcl):
    """Turned about before the window, once within it and behind it: what is refined are intervals of which a part is not seen."""
    course = resolve(Task(vq1, dcl, PlanOptions()))
    term, (mesh, point) = GatesInView(course), of_plan(plan, course)
    _, way, window, _ = list(term._windows(mesh, point.durations, point.x[:3].T))[1]
    x = point.x.copy()
    for k in (*range(way[0], window[0] + 1), window[4], *range(window[-1] + 2, way[-1] + 1)):
        x[Q, k] = product(from_euler(0.0, 0.0, np.pi), x[Q, k])
    turned = Point(x, point.u, point.durations)
    ends = x[:3].T
    path = np.stack([ends[:-1] + s * (ends[1:] - ends[:-1]) for s in np.linspace(0, 1, 9)])
    assert not term.strays(mesh, point, path).any()
    assert np.flatnonzero(term.strays(mesh, turned, path)).tolist() == [window[0], window[3], window[4]]


def test_intervals_that_are_too_fast_between_their_nodes_are_refined(dcl):
    """At 20 m/s in every node; in the second interval it comes 1 cm farther than so in 0.1 s."""
    x = np.zeros((14, 4))
    x[V.start], x[0] = 20.0, [0.0, 2.0, 4.01, 6.01]
    point, path = Point(x, np.zeros((4, 3)), np.array([0.3])), np.zeros((9, 3, 3))
    for most, refined in ((20.0, [1]), (20.2, []), (np.inf, [])):
        term = SpeedLimit(RatesModel(dcl, speed_m_s=most))
        assert np.flatnonzero(term.strays([np.full(3, 1 / 3)], point, path)).tolist() == refined
