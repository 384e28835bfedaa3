"""Races on the true state by vehicles that differ; whatever fails, a command goes out that can be flown."""

from dataclasses import replace

import numpy as np
import pytest
from loops import Failing, flown

from gate_racer.benchmarks.true_state import fly
from gate_racer.mpc.control import Source
from gate_racer.mpc.controller import SHIFTED_LIMIT, STALE_S, PlanController
from gate_racer.mpc.geometric import brake
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.reference import Reference
from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.solvers.acados import AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.worlds.world import AirDeviation, Deviations, PlantDeviation, World, as_believed
from gate_racer.tracks.track import Bounds, Start, Track, load_track
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import matrix
from tests.planner.test_planner import gate

P, Q, V = (RATES_X[name].at for name in "pqv")
DT = 1 / 60


@pytest.mark.parametrize("failure", ["status", "nan"])
@pytest.mark.parametrize("spare", [True, False])
def test_a_failed_solve_falls_back_in_order_and_recovers(plan, dcl, problem, solver, control, failure, spare):
    failing = Failing(solver)
    controller = control(failing, CasadiSolver(problem, dcl) if spare else None)
    x = plan.x[30].copy()
    controller.progress.theta = float(plan.t[30])
    assert controller.step(0.0, x, 1 / 60).source is Source.SOLVED
    failing.status, failing.nan = (4, False) if failure == "status" else (0, True)
    sources = [controller.step(k / 60, x, 1 / 60) for k in range(1, SHIFTED_LIMIT + 4)]
    last = Source.SPARE if spare else Source.GEOMETRIC
    assert [c.source for c in sources] == [Source.SHIFTED] * SHIFTED_LIMIT + [last] * 3
    assert all(np.isfinite(c.u).all() and np.isfinite(c.q_wb).all() for c in sources)
    assert {c.reason for c in sources} == {"solver status 4" if failure == "status" else "the solution is not finite"}
    failing.status, failing.nan = 0, False
    assert controller.step(1.0, x, 1 / 60).source is Source.SOLVED


HOLES = [  # sentence, what is done to state, age and plan, words of the reason, last resort
    ("a state with NaN", lambda x: (x * np.nan, 0.0), None, "not finite", Source.LEVEL),
    ("a stale estimate", lambda x: (x, 2 * STALE_S), None, "older than", Source.LEVEL),
    ("a plan with a hole ahead", lambda x: (x, 0.0), 1.5, "reference is not finite", Source.GEOMETRIC),
    ("a plan with a hole here", lambda x: (x, 0.0), 0.5, "reference is not finite", Source.LEVEL),
]


@pytest.mark.parametrize("spoil, hole_s, words, last", [case[1:] for case in HOLES], ids=[case[0] for case in HOLES])
def test_bad_input_is_survived_and_never_reaches_the_wire(plan, dcl, vq1, problem, solver, spoil, hole_s, words, last):
    if hole_s is not None:
        kept = (plan.t < hole_s) | (plan.t > hole_s + 2.0)
        kept[list(plan.gate_nodes)] = True
        nodes = tuple(np.searchsorted(plan.t[kept], plan.t[list(plan.gate_nodes)]).tolist())
        plan = replace(plan, t=plan.t[kept], x=plan.x[kept], u=plan.u[kept], gate_nodes=nodes)
    controller = PlanController(plan, dcl, problem, solver, vq1.course(1), CasadiSolver(problem, dcl))
    controller.progress.theta = 0.7
    x = Reference(plan, dcl).sample(np.array([0.7]))[0]
    state = np.nan_to_num(np.concatenate([x[:10], np.zeros(4)]), nan=1.0)
    for k in range(SHIFTED_LIMIT + 3):
        control = controller.step(k / 60, *[spoil(state)[0], 1 / 60, spoil(state)[1]])
        assert np.isfinite(control.u).all() and np.isfinite(control.q_wb).all() and words in control.reason
        assert np.isfinite(controller.theta) and np.isfinite(controller.progress.pace)
    assert control.source is last


def test_without_a_plan_or_a_solver_it_brakes_to_a_hover(plan, dcl):
    x = plan.x[60].copy()
    speed = np.linalg.norm(x[V])
    for _ in range(600):
        x = flown(x, brake(x), dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
    assert speed > 20 and np.linalg.norm(x[V]) < 1.0
    assert matrix(x[Q])[2, 2] > 0.99 and x[13] == pytest.approx(GRAVITY, abs=0.5)


def test_a_race_without_any_solver_is_finished(sprint, dcl, problem, solver):
    """By the geometric controller, at a slow pace; by CasADi one is flown in `tests/pilot/test_bad_input.py`."""
    track, plan, failing = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv"), Failing(solver)
    failing.status = 3
    controller = PlanController(plan, dcl, problem, failing, track.course(1))
    flight = fly(controller, plan, as_believed(track, dcl), dcl, seed=4, patience=4.0)
    assert flight.finished, flight.cause
    assert flight.margin_m > 0.35 and flight.fallbacks == len(flight.step_s)
    assert flight.time_s < 2.5 * plan.total_time


@pytest.fixture
def flying(control, solver, plan, dcl):
    """A controller that has flown a second on the plan's line, and its time then."""
    controller, (t, x, _) = control(solver), plan.dense(dcl, 8)
    for k in range(60):
        at = np.array([np.interp(k * DT, t, column) for column in x.T])
        controller.step(k * DT, at, DT)
        controller.prepare()
    return controller, 59 * DT


def test_it_expects_to_be_where_its_last_solution_leads(flying):
    controller, t = flying
    p_w = controller.way(0.1)
    assert controller.expected(t, 0.0)[P] == pytest.approx(p_w[0])
    assert controller.expected(t, 0.05)[P] == pytest.approx(p_w[1])
    between = controller.expected(t, 0.075)
    assert between[P] == pytest.approx((p_w[1] + p_w[2]) / 2)
    assert np.linalg.norm(between[Q]) == pytest.approx(1.0)
    assert controller.expected(t, 1.2) is None  # beyond its horizon
    controller.rejoin(0.0, 1.0)
    assert controller.expected(t, 0.0) is None  # nothing solved is left


def test_another_plan_is_followed_through_displaced_gates(flying, plan, dcl):
    controller, t = flying
    offset = np.array([0.2, -0.1, 0.1])
    controller.reference.offsets.set_offset(2, offset, 0.1)
    slower = replace(plan, t=1.1 * plan.t)
    controller.follow(slower, dcl, 1.1)
    assert controller.theta == 1.1 and controller.progress.pace == 1.0
    assert controller.reference.gate_times_s[2] == pytest.approx(1.1 * plan.gate_times_s[2])
    assert controller.reference.offsets.line(controller.reference.gate_times_s[2:3])[0][0] == pytest.approx(offset)
    row = controller.reference.sample(np.array([1.1]))[0]
    x = np.array([np.interp(1.1, slower.t, column) for column in slower.x.T])
    x[P] = row[P]
    control = controller.step(t + DT, x, DT)
    assert control.source == "solved"


# Races on the true state, with a vehicle that differs from the nominal one.


NOMINAL, WEAK, DRAGGED, SLOW = (
    Deviations(PlantDeviation(**off)) for off in ({}, {"thrust_scale": 0.85}, {"drag_scale": 1.5}, {"slew_scale": 0.67})
)
GUSTS = Deviations(air=AirDeviation(gust_m_s=2.0))
CASES = {  # controller, what differs from the model, greatest time over the plan's, least margin, by rates
    "nominal, in the plan's time": ("tracking", NOMINAL, 1.02, 0.4, True),
    "by attitude targets": ("tracking", NOMINAL, 1.03, 0.3, False),
    "a sixth of the thrust missing": ("tracking", WEAK, 1.05, 0.4, True),
    "half as much drag again": ("tracking", DRAGGED, 1.14, 0.4, True),
    "gusts": ("tracking", GUSTS, 1.04, 0.2, True),
    "rotors that turn it two thirds as fast": ("tracking", SLOW, 1.02, 0.4, True),
    "contouring does not lose to the plan": ("mpcc", NOMINAL, 1.0, 0.4, True),
    "contouring takes the reserve of thrust": ("mpcc", WEAK, 1.03, 0.4, True),
    "contouring loses less to drag": ("mpcc", DRAGGED, 1.1, 0.4, True),
}


@pytest.fixture(scope="module")
def course(vq1):
    return replace(vq1, gates=vq1.gates[:3])


@pytest.fixture(scope="module")
def reserved(course, dcl):
    """A plan that leaves a quarter of the thrust to who flies it."""
    plan, certificate = make_plan(course, dcl, PlanOptions(reserve=0.75, see=0.5, fast=True))
    assert certificate.ok, certificate.status
    return plan


@pytest.mark.parametrize("name, wrong, slowest, margin, by_rates", CASES.values(), ids=CASES)
def test_races_on_the_true_state(reserved, course, dcl, name, wrong, slowest, margin, by_rates):
    problem = Problem(load_settings(name))
    controller = PlanController(reserved, dcl, problem, AcadosSolver(problem, dcl), course.course(1))
    flight = fly(controller, reserved, World.of("wrong", wrong, course, dcl), dcl, seed=3, by_rates=by_rates)
    assert flight.finished, flight.cause
    assert flight.time_s < slowest * reserved.total_time and flight.margin_m > margin and flight.fallbacks == 0


def test_a_gate_that_faces_away_is_flown_by_contouring(dcl):
    bounds = Bounds((-20.0, -20.0, -20.0), (40.0, 20.0, 3.0))
    away = Track("away", Start((0.0, 0.0, 0.0), 0.0), bounds, (gate(10.0, yaw=180.0),), False, None)
    plan, certificate = make_plan(away, dcl, PlanOptions(see=0.0, margin_m=0.15, fast=True))
    assert certificate.ok, certificate.status
    controller = make_controller("mpcc", plan, dcl, away)
    flight = fly(controller, plan, as_believed(away, dcl), dcl, seed=3, scatter=False)
    assert flight.finished, flight.cause
    assert flight.margin_m > dcl.contact_radius_m
    assert flight.time_s - dcl.command_delay_s < 1.03 * plan.total_time


def test_slightly_late_commands_do_not_slow_the_plan_down(reserved, course, dcl, problem, solver):
    pilot = PlanController(reserved, dcl, problem, solver, course.course(1))
    rng, period, t0 = np.random.default_rng(2), 1 / 60, 1.5
    pilot.progress.theta, late_s = t0, rng.uniform(0, 0.4 / 60, 60)
    for k, late in enumerate(late_s):
        t = t0 + k * period + late
        at = pilot.theta - dcl.command_delay_s  # the vehicle follows: when the command acts it is where it should be
        x = np.array([np.interp(at, reserved.t, column) for column in reserved.x.T])
        pilot.step(t, x, t0 + (k + 1) * period - t)
    assert pilot.theta == pytest.approx(t0 + len(late_s) * period, abs=0.05)
