"""Starts, ends, openings, obstacles and limits: each changes the plan as physics says, and the certificate watches it."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.course import route
from gate_racer.planner.imported import AS_PUBLISHED, IMPORTED, read_peer_plan
from gate_racer.planner.models import C, P, Q, V
from gate_racer.planner.plan import PlanError
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import Initial, PlanOptions, Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Obstacle, load_track, of_obstacle
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT, refused
from tests.planner.test_planner import gate, straight

# What a camera sees changes none of these laws, and takes twice as long.
ONE = PlanOptions(guesses=1, see=0.0, margin_m=0.15)
ONE_GATE, TWO_GATES = straight(gate(20.0)), straight(gate(12.0), gate(30.0))
PEERS = ROOT.parent / "shared" / "data" / "timeopt_splits19_aos_refined.csv"


def certified(track, vehicle, options=ONE, warm=None):
    plan, certificate = make_plan(track, vehicle, options, warm=warm)
    assert certificate.ok, certificate.status
    return plan


planned = cache(certified)


@pytest.mark.parametrize(
    ("what", "fast", "box"),
    [
        ("a thin wall with a way around it", False, ((20.0, -3.0, -30.0), (20.1, 30.0, 30.0))),
        ("a wall with a way below it", True, ((20.0, -50.0, -50.0), (20.5, 50.0, 1.5))),
    ],
)
def test_the_path_goes_around_an_obstacle_and_takes_longer(what, fast, box, dcl):
    # With more thrust, local optima differ by more than obstacles cost.
    obstacle, options = Obstacle(*box), replace(ONE, reserve=0.85, fast=fast)
    free = planned(TWO_GATES, dcl, options)
    plan = planned(replace(TWO_GATES, obstacles=(obstacle,)), dcl, options)
    assert plan.total_time > free.total_time
    _, x, _ = plan.dense(dcl, 10)
    assert of_obstacle(obstacle).distance(x[:, P]).min() >= dcl.contact_radius_m + ONE.margin_m - 2e-3
    _, through, _ = free.dense(dcl, 10)
    assert of_obstacle(obstacle).distance(through[:, P]).min() == 0


def test_the_faster_side_of_a_wall_is_taken_though_longer(dcl):
    """The right is shorter, but gates[1] is crossed towards the right: the way from the left needs no turn."""
    wall = Obstacle((25.0, -6.5, -9.0), (26.0, 6.0, 0.5))
    gates = gate(12.0, z=-2.0), gate(40.0, z=-2.0, yaw=70.0), gate(44.0, 16.0, z=-2.0, yaw=80.0)
    bounds = Bounds((-10.0, -20.0, -9.0), (70.0, 30.0, 0.5))
    course = replace(straight(*gates, start=(0, 0, -1)), bounds=bounds)
    closed = replace(wall, high_m=(26.0, 30.0, 0.5))
    plan, certificate = make_plan(replace(course, obstacles=(wall,)), dcl, ONE)
    left = planned(replace(course, obstacles=(closed,)), dcl)
    assert plan.total_time == pytest.approx(left.total_time, rel=2e-3)
    assert certificate.effort.point_mass_bound_s < plan.total_time


def test_a_vehicle_rises_from_its_pad_before_diving(dcl):
    plan = planned(straight(gate(12.0, z=9.0)), dcl)
    height = plan.x[0, 2] - plan.x[:, 2]
    assert (height[plan.t < 0.3] >= -1e-6).all() and height.max() > 0.1
    assert np.interp(0.1, plan.t, plan.x[:, C.start]) > GRAVITY  # so that thrust carries it, whatever it is short of


def test_a_flying_lap_ends_as_it_began_and_costs_one_lap(dcl):
    track = replace(straight(gate(8.0), gate(8.0, 8.0, yaw=180.0)), closed=True)
    lap, rest = planned(track, dcl, replace(ONE, flying_lap=True)), planned(track, dcl)
    sign = np.sign(lap.x[0, Q] @ lap.x[-1, Q])
    assert lap.x[0, :3] == pytest.approx(lap.x[-1, :3], abs=1e-6)
    assert lap.x[0, 7:] == pytest.approx(lap.x[-1, 7:], abs=1e-5)
    assert lap.x[0, Q] == pytest.approx(sign * lap.x[-1, Q], abs=1e-6)
    with pytest.raises(PlanError, match="does not begin at rest on the track's pad"):
        lap.require(track, dcl)
    two = planned(track, dcl, replace(ONE, laps=2))
    assert two.total_time - rest.total_time == pytest.approx(lap.total_time, rel=0.02)


def test_a_plan_begins_in_any_state_and_stops_where_it_is_told(dcl):
    begin = Initial((-6.0, 1.0, 0.5), (9.0, 0.0, -1.0), 5.0, -20.0, 10.0, (0.1, 0.0, 0.0), 14.0)
    plan = planned(TWO_GATES, dcl, replace(ONE, start=begin, stop_m=(36.0, 2.0, 0.0)))
    assert plan.x[0, P] == pytest.approx(begin.position_m) and plan.x[0, V] == pytest.approx(begin.velocity_m_s)
    assert plan.x[0, Q] == pytest.approx(begin.q_wb) and plan.x[0, C] == begin.thrust_m_s2
    assert plan.x[-1, P] == pytest.approx([36, 2, 0], abs=1e-4) and np.abs(plan.x[-1, V]).max() < 1e-4
    begin = Initial(TWO_GATES.gates[0].centre_m, (8.0, 0.0, 0.0), next_gate=1)
    rest = planned(TWO_GATES, dcl, replace(ONE, start=begin))
    assert len(rest.gate_nodes) == 1


def test_slower_motors_and_a_speed_limit_are_obeyed_and_cost_time(dcl):
    free = planned(ONE_GATE, dcl)
    slow_motors = replace(dcl, thrust_rate_max_m_s3=150.0)
    plan = planned(ONE_GATE, slow_motors)
    rate = np.abs(np.diff(plan.x[:, C.start]) / np.diff(plan.t))
    assert 149.0 < rate.max() < 150.2, "all of the rate is used"
    assert free.total_time < plan.total_time
    plan = planned(ONE_GATE, replace(dcl, speed_max_m_s=12.0))
    assert np.linalg.norm(plan.x[:, V], axis=1).max() <= 12.001


def test_rotor_thrusts_change_no_faster_than_the_motors():
    cpc = load_vehicle("cpc")
    options = replace(ONE, model="rotors", reserve=1.0)
    plan = planned(ONE_GATE, replace(cpc, thrust_rate_max_m_s3=400.0), options)
    dt = np.diff(plan.t)
    rate = np.abs(np.diff(plan.u[:-1], axis=0)) / (0.5 * (dt[1:] + dt[:-1]))[:, None]
    assert 399.0 < rate.max() * 4 / cpc.rotors_parameters.mass < 400.0 * 1.001
    assert plan.total_time > planned(ONE_GATE, cpc, options).total_time


def test_a_triangle_is_passed_inside_and_a_prism_costs_more(dcl):
    triangle = Gate((12.0, 1.0, 0.0), 25.0, polygon_m=((-1.0, 1.0), (1.0, 1.0), (0.0, -1.2)), visible=False)
    hole, prism = (planned(straight(replace(triangle, tunnel_m=m), gate(30.0)), dcl) for m in (0.0, 3.0))
    for plan in (hole, prism):
        assert triangle.margin(plan.x[plan.gate_nodes[0], P]) >= dcl.contact_radius_m + ONE.margin_m - 1e-3
    assert prism.total_time > hole.total_time


def test_a_moved_gate_is_planned_again_from_the_old_plan(dcl):
    old = planned(TWO_GATES, dcl)
    moved = straight(gate(12.0, 0.4, 0.2), gate(30.0))
    cold, warm = planned(moved, dcl), certified(moved, dcl, warm=old)
    assert warm.total_time == pytest.approx(cold.total_time, rel=2e-2)
    with pytest.raises(UserError, match="has 2 legs of the rates model, must be 1 legs of rates"):
        make_plan(straight(gate(12.0)), dcl, ONE, warm=old)


@pytest.mark.skipif(not PEERS.exists(), reason="needs the published trajectories beside the checkout")
def test_a_published_trajectory_is_certified_or_refused():
    """It passes its 0.3 m waypoints at up to 0.31 m, turns 0.2 % too fast between its rows, and starts to the right."""
    cpc, course = load_vehicle("cpc"), load_track(ROOT / "tracks/splits_uzh.yaml")
    task = Task(course, cpc, AS_PUBLISHED)
    refused = certify(read_peer_plan(PEERS, task), task, IMPORTED)
    assert "gate 11 is not passed" in refused.status and "body rate" in refused.status
    assert refused.defects["position_m"] < 1e-5 and refused.defects["velocity_m_s"] < 1e-3
    wide = replace(
        course,
        gates=tuple(replace(g, radius_m=0.31) for g in course.gates),
        start=replace(course.start, yaw_deg=89.9),
        bounds=replace(course.bounds, high_m=(30.0, 30.0, 0.2)),
        end_m=None,
    )
    quick = replace(cpc, rate_max_rad_s=(15.1, 15.1, 3.1))
    task = Task(wide, quick, AS_PUBLISHED)
    certificate = certify(read_peer_plan(PEERS, task), task, IMPORTED)
    assert certificate.ok, certificate.status
    assert certificate.gate_times_s[-1] == pytest.approx(16.5315, abs=0.02)


def test_any_order_of_columns_and_of_the_quaternion_is_understood(tmp_path, dcl):
    """The same motion written as peers write it (z up, quaternion last part first, no thrusts) and as this project does."""
    plan = planned(straight(gate(12.0)), dcl)
    t, x, _ = plan.dense(dcl, 20)
    peer = np.column_stack(
        [x[:, :3] * [1, -1, -1], t, x[:, [4, 5, 6, 3]] * [1, -1, -1, 1], x[:, 7:13] * [1, -1, -1, 1, -1, -1]]
    )
    header = "p_x, p_y, p_z, t, q_w, q_x, q_y, q_z, v_x, v_y, v_z, w_x, w_y, w_z"
    path = tmp_path / "peer.csv"
    np.savetxt(path, peer, delimiter=",", header=header, comments="")
    again = read_peer_plan(path, Task(straight(gate(12.0)), dcl, ONE))
    assert again.model == "rates" and again.x[:, :13] == pytest.approx(x[:, :13], abs=1e-6)
    assert again.x[5:-5, 13] == pytest.approx(x[5:-5, 13], abs=0.5)


HEADER = "t,p_x,p_y,p_z,q_w,q_x,q_y,q_z,v_x,v_y,v_z,w_x,w_y,w_z"


def test_a_repeated_position_passes_a_ball_and_an_end_near_it_too(tmp_path, dcl):
    x = np.array([0.0, 0.0, 6.0, 12.0, 12.0, 18.0])
    rows = np.zeros((len(x), 14))
    rows[:, 0], rows[:, 1], rows[:, 4], rows[:, 8] = 0.1 * np.arange(len(x)), x, 1.0, 60.0
    np.savetxt(tmp_path / "peer.csv", rows, delimiter=",", header=HEADER, comments="")
    balls = straight(*(Gate((at, 0.0, 0.0), radius_m=0.3, visible=False) for at in (12.0, 18.05)))
    assert read_peer_plan(tmp_path / "peer.csv", Task(balls, dcl, ONE)).gate_nodes == (3, 5)


NO_TRAJECTORY = {
    "column p_y is missing": "t,p_x\n0,1\n",
    "column t is missing": "",
    "q_w to q_z of row 2 are zero": f"{HEADER}\n0,0,0,0,1{',0' * 9}\n1{',0' * 13}\n2,0,0,0,1{',0' * 9}\n",
}


@pytest.mark.parametrize(("words", "text"), NO_TRAJECTORY.items(), ids=NO_TRAJECTORY)
def test_a_file_that_is_no_trajectory_is_one_clear_line(text, words, tmp_path, dcl):
    (tmp_path / "peer.csv").write_text(text)
    with refused(words, PlanError):
        read_peer_plan(tmp_path / "peer.csv", Task(TWO_GATES, dcl, ONE))


# The way around obstacles that a first guess follows.


LOW, HIGH, KEEP = np.full(3, -20.0), np.full(3, 20.0), 0.5
A, B = np.array([-10.0, 0.0, 0.0]), np.array([10.0, 0.0, 0.0])


def length(path):
    return np.linalg.norm(np.diff(path, axis=0), axis=1).sum()


@pytest.mark.parametrize(
    ("what", "boxes", "expected"),
    [
        ("nothing in the way", [((-1, 2, -1), (1, 3, 1))], 20.0),
        ("a thin wall, passed on its near side", [((0, -3, -30), (0.1, 30, 30))], 2 * np.hypot(10, 3.5)),
        ("a second wall behind it", [((0, -3, -30), (0.1, 30, 30)), ((5, -30, -30), (5.1, 2, 30))], 24.1),
        ("an end too near to the wall to be kept from it", [((9.8, -30, -30), (9.9, 30, 30))], 20.0),
        ("a wall without a way", [((0, -30, -30), (0.1, 30, 30))], None),
    ],
)
def test_the_way_is_short_and_free(what, boxes, expected):
    obstacles = tuple(of_obstacle(Obstacle(*box)) for box in boxes)
    path = route(A, B, obstacles, KEEP, LOW, HIGH)
    assert (path is None) == (expected is None)
    if path is None:
        return
    assert (path[0] == A).all() and (path[-1] == B).all()
    assert length(path) == pytest.approx(expected, rel=0.03)
    if length(path) > 20.01:
        for a, b in pairwise(path):
            on_it = a + np.linspace(0, 1, 200)[:, None] * (b - a)
            assert min(o.distance(on_it).min() for o in obstacles) >= KEEP * 0.999
