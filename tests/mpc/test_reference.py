"""The plan as the controller reads it: sampled by progress, as fast as can be kept, through the gates' openings."""

from dataclasses import replace
from itertools import product

import casadi as ca
import numpy as np
import pytest

from gate_racer.mpc.control import CourseOffsets
from gate_racer.mpc.model import PARAMETERS, nominal_parameters, thrust_needed, unpack
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.reference import EDGE, SEEING, SLOWEST, TARGET_PACE, PlanProgress, Reference
from gate_racer.mpc.terms import NR, REFERENCE
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.gate import CLEAR_M
from gate_racer.vehicle.dynamics import RATES_X, lifted
from gate_racer.vehicle.rotation import rotate
from gate_racer.vehicle.vehicle import FOLDER, load_vehicle
from tests.conftest import HALF_SEEN

P, Q, V = (RATES_X[name].at for name in "pqv")
V_R = REFERENCE["v"].at


def parameters_of(vehicle, **changed):
    """The model parameters of a vehicle, some of them changed."""
    parameters = nominal_parameters(vehicle)
    for name, value in changed.items():
        parameters[PARAMETERS[name].at] = value
    return parameters


def look_ahead(progress, rows, parameters):
    """The pace in each row (N,) of a reference."""
    return progress.look_ahead(np.hstack([rows, np.tile(parameters, (len(rows), 1))]))


def test_the_reference_at_the_nodes_is_the_plan(plan, dcl):
    rows = Reference(plan, dcl).sample(plan.t)
    assert np.allclose(rows[:, P], plan.x[:, P]) and np.allclose(rows[:, 7:10], plan.x[:, V])
    assert (np.sum(rows[1:, Q] * rows[:-1, Q], axis=1) > 0).all()  # no sign flips


def flown_at(progress, reference, p_w, dt):
    """Advance progress by dt with the vehicle at p_w (3,)."""
    progress.advance(reference.sample(np.array([progress.theta]))[0], p_w, dt)


def test_progress_never_deadlocks_and_never_runs_away(plan, dcl):
    reference, progress = Reference(plan, dcl), PlanProgress(dcl.thrust_max, 1)
    for _ in range(60):
        flown_at(progress, reference, plan.x[0, P], 1 / 60)
    assert 0.2 < progress.theta < 0.9  # a vehicle stuck on its pad is waited for, but not for ever
    progress.theta = 1.0
    flown_at(progress, reference, reference.sample(np.array([1.0]))[0, P], 1 / 60)
    assert progress.theta == pytest.approx(1 + 1 / 60)
    progress.theta = 2.0
    flown_at(progress, reference, reference.sample(np.array([1.9]))[0, P], 0.1)
    assert progress.theta - 2.0 < 0.1, "lost time is lost"


def test_too_fast_a_plan_is_flown_slower_until_it_is_kept(plan, dcl):
    reference, progress = Reference(plan, dcl), PlanProgress(dcl.thrust_max, 1)
    v = reference.sample(np.array([2.0]))[0, V_R]
    for _ in range(60):
        progress.keep(v, 0.8 * v, 1 / 60)
    assert 0.8 < progress.pace < 0.9
    for _ in range(60):
        progress.keep(v, v, 1 / 60)
    assert progress.pace == pytest.approx(1.0, abs=0.01)
    fresh = PlanProgress(dcl.thrust_max, 1)
    fresh.keep(np.zeros(3), np.zeros(3), 1 / 60)
    assert fresh.pace == 1.0  # at rest on the pad nothing is too slow


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_the_largest_pace_is_that_of_a_search(name):
    """With any lift, at any speed and tilt, every slower pace is within the thrust limit, and a faster one is not."""
    vehicle, paces = load_vehicle(name), np.linspace(SLOWEST, 1, 1401)
    for lift, speed in product((-0.01, 0.0, 0.005, 0.013, 0.02, 0.05), (10.0, 20.0, vehicle.speed_max_m_s)):
        parameters = parameters_of(vehicle, lift=lift, thrust_scale=0.9, drag_quadratic=0.03)
        par, tilts = unpack(parameters), np.linspace(-3.0, 3.0, 25)
        a = 0.8 * vehicle.thrust_max * np.array([np.sin(tilts), 0 * tilts, -np.cos(tilts)])
        q = (np.cos(tilts / 2), 0 * tilts, -np.sin(tilts / 2), 0 * tilts)
        v = (np.full(25, speed), 0 * tilts, 0 * tilts)
        rows = np.zeros((25, NR))
        for name, values in zip("qva", (q, v, a), strict=True):
            rows[:, REFERENCE[name].at] = np.transpose(values)
        progress = PlanProgress(vehicle.thrust_max, 25)
        found = look_ahead(progress, rows, parameters)
        n = np.array(thrust_needed((1, 0, 0, 0), (0, 0, 0), (0, 0, 0), par))[:, None]
        b, y = np.array(thrust_needed(q, v, a, par)) - n, paces[:, None, None] ** 2
        over = np.linalg.norm(y * b + n, axis=1) > 0.9 * vehicle.thrust_max + y[:, 0] * lifted(q, v, par.lift)
        searched = np.where(over.any(axis=0), paces[over.argmax(axis=0)], 1.0)
        assert np.allclose(found, searched, atol=1e-3) and progress.limit == found.min(), (lift, speed)


@pytest.mark.parametrize(("options", "drags"), [(HALF_SEEN, 1.0), (PlanOptions(), 1.5), (PlanOptions(), 2.0)])
def test_the_slowed_pace_keeps_the_gates_in_view_of_the_plan(dcl, vq1, options, drags):
    """Thrust turned up to the edge of the view where seeing binds, and nowhere beyond where it may be as slow as that."""
    plan, _ = make_plan(vq1, dcl, replace(options, fast=True))
    times = np.linspace(0.3, plan.total_time - 0.1, 200)
    rows = Reference(plan, dcl, vq1.course(1)).sample(times)
    parameters = parameters_of(dcl, drag_quadratic=drags * dcl.drag_quadratic_1_m)
    free, looking = (PlanProgress(0.9 * dcl.thrust_max, len(rows), 1.2, dcl.camera) for _ in range(2))
    looking.looking = True
    s, fastest = (look_ahead(progress, rows, parameters) for progress in (looking, free))
    p, q, v, a, look = (rows[:, REFERENCE[name].at].T for name in ("p", "q", "v", "a", "look"))
    d = (look - p) / np.linalg.norm(look - p, axis=0)
    sine = np.sin(dcl.camera.elevation(EDGE))

    def above(up):
        return (up * d).sum(axis=0) / np.linalg.norm(up, axis=0)

    at_pace = above(np.array(thrust_needed(q, s * v, s**2 * a, unpack(parameters))))
    ahead, right = (np.array(rotate(q, axis)) for axis in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    aside = np.abs((right * d).sum(axis=0)) > (ahead * d).sum(axis=0) * dcl.camera.cx_px / dcl.camera.fx_px
    seen = (above(np.array(rotate(q, (0.0, 0.0, -1.0)))) <= sine) & ~aside
    slower = s < fastest - 1e-9
    assert slower.any() and not (slower & ~seen).any(), "only where the plan sees"
    assert np.allclose(at_pace[slower & (s > SEEING + 1e-6)], sine, atol=1e-3)
    assert (at_pace[seen & (s > SEEING + 1e-6)] <= sine + 1e-3).all()


def test_the_tunnel_binds_near_a_gate_and_only_there(plan, dcl, vq1):
    reference, gate = Reference(plan, dcl, vq1.course(1)), vq1.gates[2]
    passed = plan.t[plan.gate_nodes[2]]
    at, away = reference.sample(np.array([passed])), reference.sample(np.array([passed - 0.3]))
    side = at[0, REFERENCE["across"].at]
    assert 1 / (side @ gate.R_wg[:, 1]) == pytest.approx(gate.half - dcl.contact_radius_m - CLEAR_M)
    assert np.allclose(at[0, REFERENCE["gate"].at], gate.p_wg)
    assert abs(side @ at[0, V_R]) < 1e-9  # along the plan's direction, which may be oblique, nothing binds
    assert np.linalg.norm(away[0, REFERENCE["across"].at]) < 0.01


def test_a_plan_that_comes_to_rest_behind_its_last_gate_is_read(plan, dcl, vq1):
    course = vq1.course(1)[:-1]
    reference = Reference(plan, dcl, course)
    passed, end = plan.t[list(plan.gate_nodes[-2:])]
    rows = reference.sample(np.array([passed, end]))
    assert np.allclose(rows[0, REFERENCE["gate"].at], course[-1].p_wg)
    assert np.linalg.norm(rows[1, REFERENCE["across"].at]) < 0.01


@pytest.mark.parametrize("name", ["tracking", "mpcc"])
def test_at_the_plan_only_progress_and_inputs_cost(plan, dcl, name):
    problem, k = Problem(load_settings(name)), 60
    row = np.append(Reference(plan, dcl).sample(plan.t[k : k + 1])[0], nominal_parameters(dcl))
    row[TARGET_PACE] = problem.settings.pace_max
    x = np.append(plan.x[k], [plan.t[k], 1.0])[: problem.formulation.x.size]
    s = problem.symbols
    y_end = np.array(ca.Function("y", [s.x, s.p], [s.y_end])(x, row)).ravel()
    expected = [problem.settings.pace_max - 1.0] if name == "mpcc" else []
    assert np.allclose(sorted(np.abs(y_end))[len(y_end) - len(expected) :], expected, atol=1e-6)
    assert np.sum(np.abs(y_end)) == pytest.approx(sum(expected), abs=1e-6)


def test_a_moved_gate_is_passed_where_it_stands_floor_kept(plan, dcl, vq1):
    times = np.linspace(0.0, plan.total_time + 0.2, 400)
    on_map, moved = (Reference(plan, dcl, vq1.course(1), floor_m=0.5) for _ in range(2))
    offsets = np.random.default_rng(0).uniform(-0.3, 0.3, (len(vq1.gates), 3))
    for k, offset in enumerate(offsets):
        moved.offsets.set_offset(k, offset, 0.0)
    gates_s = plan.t[list(plan.gate_nodes)]
    here, there = on_map.sample(gates_s), moved.sample(gates_s)
    assert np.allclose(there[:, P] - here[:, P], offsets) and np.allclose(there[:, V_R], here[:, V_R])
    gate = REFERENCE["gate"].at
    assert np.allclose(there[:, gate] - here[:, gate], offsets), "each opening where it stands"
    rows, before = moved.sample(times), on_map.sample(times)
    steered = times < plan.total_time
    floor = REFERENCE["down"].at.stop - 1
    bound = steered & (before[:, floor] == 1.0) & (rows[:, floor] == 1.0)
    assert np.allclose(rows[bound, gate][:, 2], before[bound, gate][:, 2]), "floors do not move with gates"
    line = rows[:, P] - before[:, P]
    assert np.allclose(line[0], 0.0), "the pad is where the course begins"
    slope = np.gradient(line[steered], times[steered], axis=0)
    assert np.allclose(slope[1:-1], (rows - before)[steered][1:-1, V_R], atol=0.05)
    assert np.allclose(line[~steered], offsets[-1])


def test_the_camera_is_led_to_where_the_next_gate_stands(plan, dcl, vq1):
    reference, look = Reference(plan, dcl, vq1.course(1)), REFERENCE["look"].at
    reference.offsets.set_offset(3, np.array([0.0, 1.0, 0.0]), 0.0)
    before, after = plan.t[plan.gate_nodes[3]] - 0.1, plan.t[plan.gate_nodes[3]] + 0.1
    rows = reference.sample(np.array([before, after]))
    assert np.allclose(rows[0, look], vq1.gates[3].p_wg + [0.0, 1.0, 0.0])
    assert np.allclose(rows[1, look], vq1.gates[4].p_wg)


@pytest.mark.parametrize(
    ("sigma", "left"), [(0.0, 1.0), (0.05, 1 - 2 * 0.05 / 0.35), (1.0, 0.1 / 0.35), (np.inf, 0.1 / 0.35)]
)
def test_an_opening_narrows_with_the_covariance_of_its_place(plan, dcl, vq1, sigma, left):
    reference, at = Reference(plan, dcl, vq1.course(1)), plan.t[list(plan.gate_nodes[2:4])]
    sure = reference.sample(at)
    reference.offsets.set_offset(2, np.zeros(3), sigma)
    for side in ("across", "down"):
        before, after = (np.linalg.norm(rows[:, REFERENCE[side].at], axis=1) for rows in (sure, reference.sample(at)))
        assert before / after == pytest.approx([left, 1.0])


def test_the_line_beyond_a_plan_does_not_lead_into_the_floor(dcl, plan):
    x = plan.x.copy()
    x[-1, RATES_X["v"].at] = 20.0, 0.0, 3.0
    diving, end = replace(plan, x=x), np.array([plan.total_time])
    floor_m = float(x[-1, 2]) + 1.2
    reference = Reference(diving, dcl, floor_m=floor_m)
    row, (later,) = reference.sample(end)[0], reference.sample(end + 1.0)
    assert row[V_R][2] > 1.0 and np.allclose(row[P], x[-1, :3]), "the plan itself stays"
    assert later[P][2] < floor_m - dcl.contact_radius_m and later[V_R][2] == 0.0
    assert np.allclose(later[P][:2], row[P][:2] + row[V_R][:2]), "level otherwise as straight as before"
    for height_m in (np.inf, 0.5):
        (straight,) = Reference(diving, dcl, floor_m=float(x[-1, 2]) + height_m).sample(end + 1.0)
        assert np.allclose(straight[P], row[P] + row[V_R]), "far from the floor, and too near to it"


def test_a_course_begun_elsewhere_joins_the_plan_at_its_gate():
    offsets, offset = CourseOffsets(np.array([1.0, 2.5])), np.array([0.5, -1.0, 0.2])
    offsets.set_start_offset(offset)
    moved, moving = offsets.line(np.array([0.0, 0.5, 1.0, 2.0]))
    assert moved[0] == pytest.approx(offset) and moved[1] == pytest.approx(offset / 2) and not moved[2:].any()
    assert not moving[[0, 2, 3]].any() and moving[1] @ offset < 0
