"""Visibility windows: asked for and judged from where a detector finds a gate on; what looks away between nodes is refined."""

import numpy as np
import pytest

from gate_racer.planner.certificate.replay import ReplayedPath, seen
from gate_racer.planner.course import resolve
from gate_racer.planner.mesh import Point
from gate_racer.planner.models import Q
from gate_racer.planner.search import of_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.terms import GatesInView
from gate_racer.vehicle.camera import LEAST_SIDE_PX
from gate_racer.vehicle.rotation import from_euler, product
from tests.planner.test_hard_courses import course
from tests.planner.test_planner import gate

SEEN = PlanOptions(see=0.5, guesses=1)


def straight_flight(dcl, looks_from_m: float, length: float = 200.0, count: int = 2001) -> ReplayedPath:
    """Return a flight at constant speed to a gate `length` m ahead, facing away until `looks_from_m` before it."""
    x = np.zeros((count, 14))
    x[:, 0] = np.linspace(0.0, length, count)
    ahead, back = from_euler(0.0, -np.radians(dcl.camera.tilt_deg), 0.0), from_euler(0.0, 0.0, np.pi)
    x[:, 3:7] = np.where((length - x[:, 0] <= looks_from_m)[:, None], ahead, back)
    return ReplayedPath(np.linspace(0.0, 10.0, count), x, np.zeros((count - 1, 14)))


@pytest.mark.parametrize(("looks_from", "share"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0), (2.0, 1.0)])
@pytest.mark.parametrize(("away_m", "opening_m"), [(200.0, 1.5), (200.0, 0.65), (40.0, 1.5)])
def test_the_view_counts_from_where_a_detector_finds_the_opening(away_m, opening_m, looks_from, share, dcl):
    own = gate(away_m, z=0.0, opening=opening_m)
    reach = min(dcl.camera.fx_px * opening_m / LEAST_SIDE_PX, away_m)
    path = straight_flight(dcl, looks_from * reach, away_m)
    found = seen(path, [10.0], Task(course(own), dcl, SEEN))
    assert found[0][0] == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("metres", [40.0, 200.0])
def test_the_planner_asks_for_the_view_over_the_same_part(metres, dcl):
    task = Task(course(gate(metres, z=0.0)), dcl, SEEN)
    term, parts = GatesInView(resolve(task)), 100
    legs = resolve(task).legs
    ends = np.array([0.0, *(leg.target[0] for leg in legs)])
    x = np.concatenate([ends[:1], *(np.linspace(a, b, parts + 1)[1:] for a, b in zip(ends, ends[1:], strict=False))])
    mesh, durations = [np.full(parts, 1 / parts)] * len(legs), np.diff(ends) / 20.0
    ((_, way, window, _),) = term.windows(mesh, durations, np.column_stack([x, 0 * x, 0 * x]))
    begin = min(task.view_range_m(task.gates[0]), metres)  # m before the gate
    step = ends[1] / parts
    assert metres - x[way[0]] == pytest.approx(begin, abs=1.01 * step)
    assert metres - x[window[[0, -1]] + 1] == pytest.approx([0.65 * begin, 0.15 * begin], abs=1.01 * step)


def test_intervals_that_look_away_in_part_are_refined(plan, vq1, dcl):
    """Turned about before the window, once within it and behind it: what is refined are intervals of which a part is not seen."""
    course = resolve(Task(vq1, dcl, PlanOptions()))
    term, (mesh, point) = GatesInView(course), of_plan(plan, course)
    _, way, window, _ = list(term.windows(mesh, point.durations, point.x[:3].T))[1]
    x = point.x.copy()
    for k in (*range(way[0], window[0] + 1), window[4], *range(window[-1] + 2, way[-1] + 1)):
        x[Q, k] = product(from_euler(0.0, 0.0, np.pi), x[Q, k])
    turned = Point(x, point.u, point.durations)
    ends = x[:3].T
    path = np.stack([ends[:-1] + s * (ends[1:] - ends[:-1]) for s in np.linspace(0, 1, 9)])
    assert not term.strays(mesh, point, path).any()
    assert np.flatnonzero(term.strays(mesh, turned, path)).tolist() == [window[0], window[3], window[4]]
