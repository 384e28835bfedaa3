"""Certificate: each plan here collides or violates its task, and is refused for that reason."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gate_racer.planner.certificate import replay
from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.models import C, P, Q, V, W
from gate_racer.planner.plan import Plan, PlanError, read_plan, require_certified, write_plan
from gate_racer.planner.planning import find_or_make_plan, make_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Obstacle, bars, load_track, of_obstacle
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import exp, product
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import refused
from tests.planner.test_planner import SOLVED, gate, straight


def judged(plan, track, vehicle, options=None):
    return certify(plan, Task(track, vehicle, options or PlanOptions()), SOLVED)


def with_state(plan, k, block, value):
    x = plan.x.copy()
    x[k, block] = value
    return replace(plan, x=x)


def with_input(plan, k, at, value):
    u = plan.u.copy()
    u[k, at] = value
    return replace(plan, u=u)


def turned(plan, k, angle):
    return product(plan.x[k, Q], exp(np.array([angle, 0.0, 0.0])))


def beside(plan, first):
    """The plan from row `first` on, 2 m to the right of its place."""
    return with_state(plan, slice(first, None), P.start + 1, plan.x[first:, P.start + 1] + 2)


HARMED = {
    "a moved node": (lambda p: with_state(p, 50, 0, p.x[50, 0] + 0.01), "an interval on leg 1 has a defect"),
    "the last gate beside its place": (lambda p: beside(p, 100), "gate 5"),
    "thrust beyond the reserve": (lambda p: with_input(p, 50, 3, 58.0), "input, relative to its range"),
    "attitudes that jump": (lambda p: with_state(p, 60, Q, turned(p, 60, 2.8)), "in attitude"),
    "an end upside down": (lambda p: with_state(p, -1, Q, turned(p, -1, np.pi)), "in attitude"),
    "an end with a thrust of 500 m/s^2": (lambda p: with_state(p, -1, C, 500.0), "in thrust"),
    "body rates that jump": (lambda p: with_state(p, 40, W, p.x[40, W] + 1.0), "in rates"),
    "a start that is turned": (lambda p: with_state(p, 0, Q, turned(p, 0, 0.1)), "requested initial state"),
    "another number of laps": (lambda p: replace(p, laps=2), "2 laps"),
    "gates named at other rows": (lambda p: replace(p, gate_nodes=(5, *p.gate_nodes[1:])), "from the time of its row"),
    "a last row with other inputs": (lambda p: with_input(p, -1, slice(None), p.u[-1] * 0.9), "last row"),
}


def test_only_a_solved_and_unharmed_plan_is_certified(plan, vq1, dcl):
    certificate = judged(plan, vq1, dcl)
    assert certificate.ok and certificate.clearance_m >= dcl.contact_radius_m
    for name, most in replay.TOLERANCES.items():  # which leave room beyond a solved plan
        assert certificate.defects[name] <= certificate.tolerances[name] == most.defect
        assert certificate.drifts_per_s[name] <= certificate.drift_tolerances_per_s[name] / 5 == most.drift_per_s / 5
    assert not certify(plan, Task(vq1, dcl, PlanOptions()), replace(SOLVED, success=False)).ok


@pytest.mark.parametrize(("harm", "words"), HARMED.values(), ids=HARMED)
def test_a_harmed_plan_is_refused_and_says_why(plan, vq1, dcl, harm, words):
    certificate = judged(harm(plan), vq1, dcl)
    assert not certificate.ok and words in certificate.status


def test_a_plan_with_nan_is_one_clear_line(plan, vq1, dcl):
    with pytest.raises(PlanError, match="not finite"):
        judged(with_state(plan, 30, V, np.nan), vq1, dcl)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(0, 13), st.sampled_from([-1, 1]), st.floats(3.0, 100.0))
def test_any_node_moved_beyond_tolerance_is_refused(sprint, dcl, row, column, sign, size):
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    name = next(n for n, field in RATES_X.items() if field.at.start <= column < field.at.stop)
    unit = {name: one.defect for name, one in zip("pvqwc", replay.TOLERANCES.values(), strict=True)}
    k = row % len(plan.t)
    changed = plan.x[k, column] + sign * size * unit[name]
    assert not judged(with_state(plan, k, column, changed), track, dcl).ok


def test_a_plan_that_looks_elsewhere_is_refused(dcl):
    track = straight(gate(12.0, 3.0), gate(25.0, -6.0, -3.0), gate(32.0, 8.0))
    blind, certificate = make_plan(track, dcl, PlanOptions(see=0.0, fast=True))
    assert certificate.ok and judged(blind, track, dcl, PlanOptions(see=0.0)).ok
    refused = judged(blind, track, dcl, PlanOptions(see=0.8))
    assert not refused.ok and "is in view over" in refused.status


def test_near_gates_are_in_view_from_before_the_last_one(dcl):
    track = straight(gate(12.0, 3.0), gate(20.0, -3.0), gate(30.0, 2.0))
    asked = PlanOptions(see=0.5, sight_s=0.7, fast=True)
    plan, certificate = make_plan(track, dcl, asked)
    usual, before = make_plan(track, dcl, replace(asked, sight_s=0.0))
    assert certificate.ok and before.ok and min(certificate.seen_s) > 0.68
    assert np.diff(plan.gate_times_s).min() < 0.68, "one gate alone does not leave that time"
    assert usual.total_time < plan.total_time < 1.1 * usual.total_time
    assert "in view for" in judged(usual, track, dcl, asked).status


def test_a_plan_that_turns_with_rotors_at_their_most_is_refused(vq1, dcl):
    free = replace(dcl, mixer=None)
    plan, certificate = make_plan(vq1, free, PlanOptions(fast=True))
    assert certificate.ok and judged(plan, vq1, free).ok
    assert "angular acceleration" in judged(plan, vq1, dcl).status


def climb(rows, jump_m_s=0.0):
    """A straight climb of the rotors' model at 1.5 times its weight, with a jump of the velocity at each row."""
    cpc = load_vehicle("cpc")
    course = straight(Gate((0.0, 0.0, -20.0), radius_m=0.3))
    task = Task(course, cpc, PlanOptions(model="rotors", reserve=1.0, see=0.0, margin_m=0.0))
    a, t = 0.5 * GRAVITY, np.linspace(0.0, 2.0, rows + 1)
    v = a * t + jump_m_s * np.arange(rows + 1)
    z = np.concatenate([[0.0], np.cumsum(np.diff(t) * v[:-1] + a / 2 * np.diff(t) ** 2)])
    keep = z <= 20.0
    x = np.zeros((rows + 1, 13))
    x[:, 2], x[:, 3], x[:, 9] = -z, 1.0, -v
    u = np.full((rows + 1, 4), (GRAVITY + a) * cpc.rotors.mass_kg / 4)
    nodes = (int(keep.sum()) - 1,)
    about = ("straight", "", course.hash, "cpc", cpc.hash, "rotors", 1)
    return Plan(*about, t[keep], x[keep], u[keep], nodes), task


@pytest.mark.parametrize("force_m_s2", [1.8, 0.1])
def test_many_rows_cannot_hide_a_force(force_m_s2):
    honest, task = climb(200)
    assert "rows by" not in certify(honest, task, SOLVED).status
    plan, task = climb(4_000, jump_m_s=5e-4 * force_m_s2)
    status = certify(plan, task, SOLVED).status
    assert "an interval" not in status and f"lead away from its rows by {force_m_s2} m/s per s in velocity" in status


def test_many_rows_cannot_hide_a_step_aside_and_back():
    """Each within its interval's tolerance, they lead aside by 2 cm/s and back within a window."""
    plan, task = climb(4_000)
    k = np.arange(len(plan.t))
    aside = 0.9 * replay.TOLERANCES["position_m"].defect * np.clip(np.minimum(k - 1_800, 2_000 - k), 0, None)
    moved = replace(plan, x=plan.x + aside[:, None] * np.eye(13)[0])
    assert "m per s in position" in certify(moved, task, SOLVED).status


def test_an_obstacle_between_two_rows_is_met():
    plan, task = climb(1)
    course = replace(task.track, obstacles=(Obstacle((-5.0, -5.0, -4.05), (5.0, 5.0, -4.0)),))
    assert "within 0.000 m of obstacles[0]" in certify(plan, replace(task, track=course), SOLVED).status


def test_rest_is_level_and_still(plan, vq1, dcl):
    task = Task(replace(vq1, end_m=tuple(plan.x[-1, P])), dcl, PlanOptions())
    level = with_state(with_state(with_state(plan, -1, V, 0.0), -1, W, 0.0), -1, Q, [1.0, 0.0, 0.0, 0.0])
    assert replay.broken_ends(level, task) == []
    turning, tilted = with_state(level, -1, W, 1.0), with_state(level, -1, Q, exp(np.array([1.6, 0.0, 0.0])))
    assert "does not end at rest and level in its place: rates_rad_s by 1.7" in replay.broken_ends(turning, task)[0]
    assert "attitude_rad by 1.4" in replay.broken_ends(tilted, task)[0]


@given(st.lists(st.floats(-4.0, 4.0), min_size=6, max_size=6))
def test_a_point_is_hidden_where_the_line_to_it_meets_an_obstacle(ends):
    a, b = np.array(ends[:3]), np.array(ends[3:])
    line = a + np.linspace(0.0, 1.0, 2000)[:, None] * (b - a)
    half = np.array([1.0, 1.5, 0.5])
    wall, within, about = (Obstacle(tuple(-half - d), tuple(half + d)) for d in (0.0, -0.01, 0.01))
    met, near = (of_obstacle(box).distance(line).min() == 0 for box in (within, about))
    assume(met == near)  # a line that only touches the wall may be either
    course = replace(straight(gate(5.0)), obstacles=(wall,))
    assert replay.hidden(course, a[None], b)[0] == met


def test_a_gate_behind_a_wall_is_seen_from_above_it(dcl):
    """A wall with a way over it hides the gate from the height of the pad."""
    wall, options = Obstacle((13.0, -50.0, -4.2), (13.3, 50.0, 50.0)), PlanOptions(see=0.5, guesses=1)
    track = replace(straight(gate(20.0, z=-2.0), start=(0.0, 0.0, -2.0)), obstacles=(wall,))
    _, certificate = make_plan(track, dcl, options)
    open_plan, _ = make_plan(replace(track, obstacles=()), dcl, replace(options, fast=True))
    assert certificate.ok and certificate.total_time_s > 1.1 * open_plan.total_time


def test_a_polygon_is_not_passed_backwards(dcl):
    square = ((-0.75, -0.75), (0.75, -0.75), (0.75, 0.75), (-0.75, 0.75))
    gates = [Gate((x, 0.0, 0.0), yaw, polygon_m=square, visible=False) for x, yaw in ((20, 0), (26, 180), (8, 180))]
    plan, certificate = make_plan(straight(*gates), dcl, PlanOptions(see=0.0, fast=True))
    assert certificate.ok
    back = plan.x[plan.gate_nodes[1] :, P]
    beside = back[np.abs(back[:, 0] - 20.0).argmin(), 1:]
    assert np.abs(beside).max() > 0.75, "it passes beside the opening on its way back"


def test_a_frame_in_the_way_is_a_solid_for_the_certificate(plan, vq1, dcl):
    """The same flight on a course with one more gate, whose frame stands where it flies."""
    x, y, z = plan.x[plan.gate_nodes[0] + 12, P]
    another = replace(vq1.gates[0], centre_m=(x, y + 1.0, z))
    course = replace(vq1, gates=(*vq1.gates, another))
    hit = min(replay.clearances(course, plan.x[:, P]), key=lambda near: near.distance_m)
    assert hit.solid == "the frame of gates[6]"
    certificate = judged(plan, course, dcl)
    assert "it comes within" in certificate.status and "the frame of gates[6]" in certificate.status


@given(st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3), st.floats(-180, 180), st.floats(-40, 40))
def test_the_ring_of_the_certificate_is_the_four_bars(point, yaw, pitch):
    one = Gate((1.0, -2.0, 3.0), yaw, pitch, 1.5, 2.7, 0.26)
    p_w = one.p_wg + np.array([point])
    by_bars = min(float(bar.distance(p_w)[0]) for bar in bars(one))
    assert replay.frame_distance(one, replay.local(one, p_w))[0] == pytest.approx(by_bars, abs=1e-9)


def flown_along(*corners, step=0.01):
    corners = np.array(corners, float)
    legs = [
        a + np.linspace(0, 1, max(int(np.linalg.norm(b - a) / step), 2), endpoint=False)[:, None] * (b - a)
        for a, b in zip(corners, corners[1:], strict=False)
    ]
    p_w = np.vstack([*legs, corners[-1:]])
    return np.arange(len(p_w)) * step / 10.0, p_w


PASSAGES = {
    "straight through": ([(-2, 0, 0), (2, 0, 0)], ""),
    "a dip through the plane and back": ([(2, 0, 0), (-0.04, 0, 0), (2, 0, 0)], "not passed straight"),
    "in from the side behind the frame": ([(-0.2, 3, 0), (-0.2, 0, 0), (2, 0, 0)], "not passed straight"),
    "out to the side": ([(-2, 0, 0), (0.2, 0, 0), (0.2, 3, 0)], "not passed straight"),
    "back after a hand's breadth": ([(-2, 0, 0), (0.1, 0, 0), (-2, 0.1, 0)], "not passed straight"),
    "from behind": ([(2, 0, 0), (-2, 0, 0)], "not passed"),
    "beside the opening": ([(-2, 1.0, 0), (2, 1.0, 0)], "not passed"),
}


@pytest.mark.parametrize(("corners", "fault"), PASSAGES.values(), ids=PASSAGES)
def test_a_passage_leads_from_the_near_side_to_the_far_one(corners, fault):
    one = Gate((0.0, 0.0, 0.0), 0.0, 0.0, 1.5, 2.7, 0.26)
    t, p_w = flown_along(*corners)
    found = replay.passage(one, t, p_w, -1.0, t[len(t) // 2], 0.43, 0.14)
    assert fault in found.fault and bool(found.fault) == bool(fault)


CHANGED = [  # file, what stands there, what instead, why it is refused
    (".csv", ",-", ",", "were changed after it was certified; plan again with plan-track .*vq1.yaml"),
    (".json", '"status": "certified"', '"status": "failed: gate 2 is not passed"', "its status is"),
    (".json", '"reserve": 0.9', '"reserve": 0.95', "were changed after it was certified"),
]


@pytest.mark.parametrize(("suffix", "old", "new", "words"), CHANGED, ids=[old for _, old, _, _ in CHANGED])
def test_a_file_is_flown_only_as_it_was_certified(plan, vq1, dcl, tmp_path, suffix, old, new, words):
    stored = tmp_path / "vq1.csv"
    write_plan(stored, plan, dcl, judged(plan, vq1, dcl).as_dict())
    require_certified(stored, read_plan(stored))
    file = stored.with_suffix(suffix)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    with refused(words, PlanError):
        find_or_make_plan(tmp_path, vq1, dcl, PlanOptions(), None)
    assert find_or_make_plan(tmp_path, vq1, dcl, PlanOptions(), None, uncertified=True).track_hash == vq1.hash
