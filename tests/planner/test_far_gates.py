"""Gates farther away than a detector finds them: the view is asked for, and judged, from where they can be found on."""

import numpy as np
import pytest

from gate_racer.planner.certificate.certificate import seen_shares
from gate_racer.planner.certificate.replay import ReplayedPath
from gate_racer.planner.course import resolve
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.terms import GatesInView
from gate_racer.vehicle.camera import LEAST_SIDE_PX
from gate_racer.vehicle.rotation import from_euler
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
def test_the_certificate_counts_from_where_the_opening_is_as_large_as_a_detector_needs(looks_from, share, dcl):
    far = gate(200.0, z=0.0)
    reach = dcl.camera.fx_px * far.opening_m / LEAST_SIDE_PX
    path = straight_flight(dcl, looks_from * reach)
    found = seen_shares(path, (far,), [10.0], dcl.camera, Task(course(far), dcl, SEEN))
    assert found == [pytest.approx(share, abs=0.01)]


def test_a_smaller_opening_is_found_from_nearer_and_a_near_gate_from_the_start(dcl):
    path = straight_flight(dcl, 30.0)
    small = gate(200.0, z=0.0, opening=0.65)  # found from 30 m on
    assert seen_shares(path, (small,), [10.0], dcl.camera, Task(course(small), dcl, SEEN)) == [
        pytest.approx(1.0, abs=0.02)
    ]
    near = straight_flight(dcl, 20.0, length=40.0)
    own = gate(40.0, z=0.0)
    assert seen_shares(near, (own,), [10.0], dcl.camera, Task(course(own), dcl, SEEN)) == [pytest.approx(0.5, abs=0.01)]


@pytest.mark.parametrize("metres", [40.0, 200.0])
def test_the_planner_asks_for_the_view_over_the_same_part_of_the_way(metres, dcl):
    task = Task(course(gate(metres, z=0.0)), dcl, SEEN)
    term, parts = GatesInView(resolve(task)), 100
    legs = resolve(task).legs
    ends = np.array([0.0, *(leg.target[0] for leg in legs)])
    x = np.concatenate([ends[:1], *(np.linspace(a, b, parts + 1)[1:] for a, b in zip(ends, ends[1:], strict=False))])
    mesh, durations = [np.full(parts, 1 / parts)] * len(legs), np.diff(ends) / 20.0
    ((_, way, window, _),) = term._windows(mesh, durations, np.column_stack([x, 0 * x, 0 * x]))
    begin = min(task.view_range_m(task.gates[0]), metres)  # m before the gate
    step = ends[1] / parts
    assert metres - x[way[0]] == pytest.approx(begin, abs=1.01 * step)
    assert metres - x[window[[0, -1]] + 1] == pytest.approx([0.65 * begin, 0.15 * begin], abs=1.01 * step)


def test_a_gate_three_times_as_far_as_it_is_found_is_seen_on_the_way_to_it(dcl):
    _, certificate = make_plan(course(gate(200.0)), dcl, SEEN)
    assert certificate.ok and certificate.seen_share[0] >= 0.48, certificate.status
    assert certificate.total_time_s < 1.05 * certificate.point_mass_bound_s
