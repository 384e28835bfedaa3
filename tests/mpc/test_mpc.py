"""The controller flies what was planned, bridges its delay, and never sends garbage."""

import casadi as ca
import numpy as np
import pytest

from benchmarks.true_state import Mismatch, fly
from mpc.acados import AcadosMissingError, AcadosSolver, import_template
from mpc.adaptation import Residuals, load_adaptation
from mpc.controller import SHIFTED_LIMIT, Controller, Source
from mpc.model import BELIEF, Integrator, vehicle_belief
from mpc.predictor import Predictor
from mpc.problem import NP, NR, REFERENCE, Problem, load_settings
from mpc.reference import Reference
from mpc.solver import Solve
from vehicle.dynamics import GRAVITY, RATES_X, drag, rates, rk4
from vehicle.errors import UserError
from vehicle.rotation import matrix, rotate

P, Q, V = (RATES_X[name].at for name in "pqv")


@pytest.fixture(scope="module")
def problem():
    return Problem(load_settings("tracking"))


@pytest.fixture(scope="module")
def solver(problem, dcl):
    return AcadosSolver(problem, dcl)


@pytest.fixture
def control(plan, dcl, vq1, problem):
    """Makes a controller on a solver."""
    return lambda solver: Controller(plan, dcl, problem, solver, load_adaptation(), vq1.course(1))


class Failing:
    """A solver that does as it is told."""

    def __init__(self, inner):
        self.inner, self.status, self.nan, self.starts = inner, 0, False, 0

    def start(self, x, u):
        self.starts += 1
        self.inner.start(x, u)

    def prepare(self, parameters):
        self.inner.prepare(parameters)

    def solve(self, x0):
        good = self.inner.solve(x0)
        u = good.u * np.nan if self.nan else good.u
        return Solve(good.x, u, self.status, good.solve_s)


def flown(x, u, dcl, dt):
    for _ in range(4):
        x = rk4(rates, x, u, dcl.rates_parameters, dt / 4)
    return np.array(x)


def test_the_reference_at_the_nodes_is_the_plan(plan, dcl):
    rows = Reference(plan, dcl).sample(plan.t)
    assert np.allclose(rows[:, P], plan.x[:, P]) and np.allclose(rows[:, 7:10], plan.x[:, V])
    assert (np.sum(rows[1:, Q] * rows[:-1, Q], axis=1) > 0).all()  # no sign flips


def test_progress_never_deadlocks_and_never_runs_away(plan, dcl):
    reference = Reference(plan, dcl)
    theta = 0.0
    for _ in range(60):
        theta = reference.advance(theta, plan.x[0, P], 1 / 60)
    assert 0.2 < theta < 0.9  # a vehicle stuck on its pad is waited for, but not for ever
    assert reference.advance(1.0, reference.sample(np.array([1.0]))[0, P], 1 / 60) == pytest.approx(1 + 1 / 60)


def test_a_plan_that_is_too_fast_is_flown_slower_until_it_can_be_kept(plan, dcl):
    reference, pace, theta = Reference(plan, dcl), 1.0, 2.0
    v = reference.sample(np.array([theta]))[0, V]
    for _ in range(60):
        pace = reference.keep_pace(pace, theta, 0.8 * v, 1 / 60)
    assert 0.8 < pace < 0.9
    for _ in range(60):
        pace = reference.keep_pace(pace, theta, v, 1 / 60)
    assert pace == pytest.approx(1.0, abs=0.01)
    assert reference.keep_pace(1.0, 0.0, np.zeros(3), 1 / 60) == 1.0  # at rest on the pad nothing is too slow


def test_lost_time_is_lost(plan, dcl):
    reference = Reference(plan, dcl)
    late = reference.sample(np.array([1.9]))[0, P]
    theta = 2.0
    assert reference.advance(theta, late, 0.1) - theta < 0.1


def test_the_predictor_flies_the_inputs_that_were_sent(plan, dcl):
    predictor, belief, dt = Predictor(dcl), vehicle_belief(dcl), 1 / 60
    x = plan.x[0].copy()
    x[13] = 0.0
    inputs = [np.array([0.0, -3.0, 0.5, 30.0 + k]) for k in range(20)]
    acting = np.zeros(4)
    for k, u in enumerate(inputs):
        t = k * dt
        if k >= 4:
            ahead = predictor.ahead(t, x, belief)
        else:
            predictor.ahead(t, x, belief)
        predictor.sent(t, u)
        # The truth: inputs act one delay after they were sent, here in steps of a sixth of the period.
        for part in range(6):
            now = t + part * dt / 6
            due = [v for j, v in enumerate(inputs[: k + 1]) if j * dt + dcl.command_delay_s <= now + 1e-12]
            acting = due[-1] if due else acting
            x = flown(x, acting, dcl, dt / 6)
    truth = x  # at 20 dt; the last prediction was made at 19 dt for 19 dt + delay
    assert np.linalg.norm(ahead[V] - truth[V]) < 1.5
    assert ahead[13] > 30


def test_the_integrator_is_the_vehicles_model(plan, dcl):
    step = Integrator()
    step.p[:], step.u[:] = vehicle_belief(dcl), plan.u[30]
    assert np.allclose(step(plan.x[30], 0.01), rk4(rates, plan.x[30], plan.u[30], dcl.rates_parameters, 0.01))


@pytest.mark.parametrize("thrust, drags", [(0.85, 1.0), (1.15, 1.0), (1.0, 2.0), (0.9, 1.5)])
def test_what_the_model_gets_wrong_is_found_out(plan, dcl, thrust, drags):
    """Truth and belief differ by a thrust scale and a drag scale, and then by a wind that blows from one side."""
    filter, dt, facts = Residuals(dcl, load_adaptation()), 1 / 60, (dcl.drag_linear_1_s, dcl.drag_quadratic_1_m)

    def fly(unknown_w):
        for k in np.arange(len(plan.t) - 1):
            x, belief = plan.x[k].copy(), filter.belief
            for _ in range(4):
                pull, resist = rotate(x[Q], (0.0, 0.0, -x[13])), np.array(drag(x[Q], x[V], *facts))
                truth = thrust * np.array(pull) + drags * resist + unknown_w
                model = belief[BELIEF["thrust_scale"].at] * np.array(pull) + belief[BELIEF["residual"].at]
                model += resist * belief[BELIEF["drag_quadratic"].at] / dcl.drag_quadratic_1_m
                u = np.array([*x[10:13], x[13]])
                filter.update(x, (truth - model) * dt, u, x[13], dt)

    fly(np.zeros(3))
    assert filter.belief[BELIEF["thrust_scale"].at][0] == pytest.approx(thrust, abs=0.03)
    assert filter.belief[BELIEF["drag_quadratic"].at][0] / dcl.drag_quadratic_1_m == pytest.approx(drags, rel=0.15)
    fly(np.array([0.0, 3.0, 0.0]))
    assert filter.belief[BELIEF["residual"].at][1] == pytest.approx(3.0, abs=1.0)


def test_a_jump_of_the_estimate_teaches_nothing(plan, dcl):
    filter = Residuals(dcl, load_adaptation())
    filter.update(plan.x[40], np.array([0.0, 2.0, 0.0]), np.zeros(4), 20.0, 1 / 60)
    assert np.allclose(filter.belief, vehicle_belief(dcl))


def test_from_the_plan_the_plan_is_flown(plan, dcl, problem, solver):
    settings, reference = problem.settings.horizon, Reference(plan, dcl)
    parameters = np.zeros((settings.steps + 1, NP))
    parameters[:, NR:] = vehicle_belief(dcl)
    x, theta, worst = plan.x[0].copy(), 0.0, 0.0
    horizon = np.arange(settings.steps + 1) * settings.step_s
    solver.start(np.tile(plan.x[0], (settings.steps + 1, 1)), np.tile(plan.u[0], (settings.steps, 1)))
    while theta < 4.0:
        parameters[:, :NR] = reference.sample(theta + horizon)
        solver.prepare(parameters)
        solution = solver.solve(x)
        assert solution.status == 0
        theta = reference.advance(theta, x[P], 1 / 60)
        x = flown(x, solution.u[0], dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
        worst = max(worst, np.linalg.norm(x[P] - reference.sample(np.array([theta]))[0, P]))
    assert worst < 0.15


def test_inputs_stay_within_the_vehicles_limits(plan, dcl, problem, solver, control):
    controller = control(solver)
    low, high = problem.input_limits(dcl)
    x = plan.x[40].copy()
    x[P] += 3.0
    for k in range(20):
        u = controller.step(k / 60, x, 1 / 60).u
        assert (u >= low - 1e-9).all() and (u <= high + 1e-9).all()


@pytest.mark.parametrize("failure", ["status", "nan"])
def test_a_failed_solve_flies_the_old_solution_then_slows_down_then_recovers(plan, solver, control, failure):
    failing = Failing(solver)
    controller = control(failing)
    x = plan.x[30].copy()
    controller.theta = float(plan.t[30])
    assert controller.step(0.0, x, 1 / 60).source is Source.SOLVED
    failing.status, failing.nan = (4, False) if failure == "status" else (0, True)
    sources = [controller.step(k / 60, x, 1 / 60) for k in range(1, SHIFTED_LIMIT + 4)]
    assert [c.source for c in sources] == [Source.SHIFTED] * SHIFTED_LIMIT + [Source.LEVEL] * 3
    assert all(np.isfinite(c.u).all() and np.isfinite(c.q_wb).all() for c in sources)
    assert {c.reason for c in sources} == {"solver status 4" if failure == "status" else "the solution is not finite"}
    failing.status, failing.nan = 0, False
    assert controller.step(1.0, x, 1 / 60).source is Source.SOLVED


def test_a_state_with_nan_never_reaches_the_wire(plan, solver, control):
    controller = control(solver)
    for k in range(SHIFTED_LIMIT + 3):
        control = controller.step(k / 60, plan.x[0] * np.nan, 1 / 60)
        assert np.isfinite(control.u).all() and control.source is not Source.SOLVED


def test_level_and_slow_stops_the_vehicle(plan, dcl, solver, control):
    failing = Failing(solver)
    failing.status = 4
    controller = control(failing)
    x = plan.x[60].copy()
    speeds = []
    for k in range(600):
        x = flown(x, controller.step(k / 60, x, 1 / 60).u, dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
        speeds.append(np.linalg.norm(x[V]))
    assert speeds[0] > 20 and speeds[-1] < 1.0
    assert matrix(x[Q])[2, 2] > 0.99 and x[13] == pytest.approx(GRAVITY, abs=0.5)


def test_missing_acados_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("ACADOS_SOURCE_DIR", raising=False)
    monkeypatch.setattr("mpc.acados.WHEEL", tmp_path / "nowhere")
    with pytest.raises(AcadosMissingError, match="make setup"):
        import_template()


CASES = [  # sentence, controller, what differs from the belief, greatest time over the plan's, least margin
    ("as believed, the plan's time is flown", "tracking", Mismatch(), 1.02, 0.35),
    ("with a sixth of the thrust missing it is still flown", "tracking", Mismatch(thrust=0.85), 1.03, 0.35),
    ("with half as much drag again it is still flown", "tracking", Mismatch(drag=1.5), 1.07, 0.25),
    ("in gusts every gate is passed", "tracking", Mismatch(gust_m_s=2.0), 1.03, 0.2),
    ("contouring does not lose to the plan", "mpcc", Mismatch(), 1.0, 0.35),
    ("contouring takes the reserve when thrust is missing", "mpcc", Mismatch(thrust=0.85), 1.0, 0.3),
]


@pytest.mark.parametrize("name, wrong, slowest, margin", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_races_on_the_true_state(plan, vq1, dcl, name, wrong, slowest, margin):
    problem = Problem(load_settings(name))
    controller = Controller(plan, dcl, problem, AcadosSolver(problem, dcl), load_adaptation(), vq1.course(1))
    flight = fly(controller, plan, vq1, dcl, wrong, seed=3)
    assert flight.finished, flight.cause
    assert flight.time_s < slowest * plan.total_time and flight.margin_m > margin and flight.fallbacks == 0


def test_an_unknown_controller_is_named():
    with pytest.raises(UserError, match="tracking, mpcc"):
        load_settings("mppi")


def test_the_tunnel_binds_near_a_gate_and_only_there(plan, dcl, vq1):
    reference, gate = Reference(plan, dcl, vq1.course(1)), vq1.gates[2]
    passed = plan.t[plan.gate_nodes[2]]
    at, away = reference.sample(np.array([passed])), reference.sample(np.array([passed - 0.3]))
    room = 1 / np.linalg.norm(at[0, REFERENCE["across"].at])
    assert room == pytest.approx(gate.half - dcl.contact_radius_m) and np.allclose(
        at[0, REFERENCE["gate"].at], gate.p_wg
    )
    assert np.linalg.norm(away[0, REFERENCE["across"].at]) < 0.01


@pytest.mark.parametrize("name", ["tracking", "mpcc"])
def test_at_the_plan_only_progress_and_inputs_cost(plan, dcl, name):
    """Every other residual vanishes when the state is the plan's own, at its pace."""
    problem, k = Problem(load_settings(name)), 60
    row = np.append(Reference(plan, dcl).sample(plan.t[k : k + 1])[0], vehicle_belief(dcl))
    x = np.append(plan.x[k], [plan.t[k], 1.0])[: problem.x.size]
    s = problem.symbols
    y_end = np.array(ca.Function("y", [s.x, s.p], [s.y_end])(x, row)).ravel()
    expected = [problem.settings.pace_max - 1.0] if name == "mpcc" else []
    assert np.allclose(sorted(np.abs(y_end))[len(y_end) - len(expected) :], expected, atol=1e-6)
    assert np.sum(np.abs(y_end)) == pytest.approx(sum(expected), abs=1e-6)
