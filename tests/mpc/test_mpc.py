"""The controller flies what was planned, bridges its delay, and never sends garbage."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

from benchmarks.true_state import Mismatch, fly
from mpc import geometric
from mpc.acados import AcadosMissingError, AcadosSolver
from mpc.adaptation import Residuals, load_adaptation
from mpc.controller import SHIFTED_LIMIT, STALE_S, Controller, Source
from mpc.make import make_controller
from mpc.model import BELIEF, Integrator, believed, thrust_needed, vehicle_belief
from mpc.pace import SLOWEST, Pace
from mpc.portable import CasadiSolver
from mpc.predictor import Predictor
from mpc.problem import NP, NR, REFERENCE, Problem, load_settings
from mpc.reference import CLEAR_M, GOAL, U_W, Reference
from mpc.solver import Solve
from vehicle.dynamics import GRAVITY, RATES_X, drag, rates, rk4
from vehicle.errors import UserError
from vehicle.rotation import matrix, rotate

P, Q, V = (RATES_X[name].at for name in "pqv")
V_R = REFERENCE["v"].at


@pytest.fixture(scope="module")
def problem():
    return Problem(load_settings("tracking"))


@pytest.fixture(scope="module")
def solver(problem, dcl):
    return AcadosSolver(problem, dcl)


@pytest.fixture
def control(plan, dcl, vq1, problem):
    """Makes a controller on a solver."""
    return lambda solver, spare=None: Controller(plan, dcl, problem, solver, load_adaptation(), vq1.course(1), spare)


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


def lead(reference, theta, p_w):
    return reference.lead(reference.sample(np.array([theta]))[0], p_w)


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
        theta = reference.advance(theta, lead(reference, theta, plan.x[0, P]), 1 / 60)
    assert 0.2 < theta < 0.9  # a vehicle stuck on its pad is waited for, but not for ever
    assert reference.advance(1.0, 0.0, 1 / 60) == pytest.approx(1 + 1 / 60)


def test_a_plan_that_is_too_fast_is_flown_slower_until_it_can_be_kept(plan, dcl):
    reference, pace = Reference(plan, dcl), Pace(dcl.thrust_max, 1)
    v = reference.sample(np.array([2.0]))[0, V_R]
    for _ in range(60):
        pace.keep(v, 0.8 * v, 1 / 60)
    assert 0.8 < pace.value < 0.9
    for _ in range(60):
        pace.keep(v, v, 1 / 60)
    assert pace.value == pytest.approx(1.0, abs=0.01)
    assert (
        Pace(dcl.thrust_max, 1).keep(np.zeros(3), np.zeros(3), 1 / 60) == 1.0
    )  # at rest on the pad nothing is too slow


@pytest.mark.parametrize("scale, drags", [(1.0, 1.0), (0.8, 1.0), (1.0, 2.0), (0.7, 1.5)])
def test_the_pace_is_the_fastest_that_the_thrust_allows(plan, dcl, scale, drags):
    """At the pace found, thrust is at its limit wherever the plan's own pace would break it; nowhere beyond it."""
    rows = Reference(plan, dcl).sample(np.linspace(0.5, plan.total_time - 0.1, 40))
    belief = vehicle_belief(dcl)
    belief[BELIEF["thrust_scale"].at], belief[BELIEF["drag_quadratic"].at] = scale, drags * dcl.drag_quadratic_1_m
    pace = Pace(0.8 * dcl.thrust_max, len(rows))
    s = pace.look_ahead(np.hstack([rows, np.tile(belief, (len(rows), 1))]))
    q, v, a = (rows[:, REFERENCE[name].at].T for name in "qva")
    thrust = np.linalg.norm(thrust_needed(q, s * v, s**2 * a, believed(belief)), axis=0)
    limit, bound = scale * 0.8 * dcl.thrust_max, (s > SLOWEST + 1e-6) & (s < 1 - 1e-9)
    assert np.allclose(thrust[bound], limit) and (thrust[s > SLOWEST + 1e-6] <= limit + 1e-6).all()
    assert pace.limit == s.min() and (bound.any() or (scale, drags) == (1.0, 1.0))


def test_lost_time_is_lost(plan, dcl):
    reference = Reference(plan, dcl)
    late = reference.sample(np.array([1.9]))[0, P]
    theta = 2.0
    assert reference.advance(theta, lead(reference, theta, late), 0.1) - theta < 0.1


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


@pytest.mark.parametrize("lag", [1.0, 0.5])
def test_one_step_of_the_horizon_is_the_vehicles_model(plan, dcl, lag):
    """Where lags are half as long too."""
    vehicle = replace(dcl, rate_lag_s=tuple(lag * tau for tau in dcl.rate_lag_s), thrust_lag_s=lag * dcl.thrust_lag_s)
    step, x, dt = Integrator(), plan.x[30], 0.05
    step.p[:], step.u[:] = vehicle_belief(vehicle), plan.u[30] + [3.0, -3.0, 1.0, 10.0]
    truth = x
    for _ in range(100):
        truth = np.array(rk4(rates, truth, step.u, vehicle.rates_parameters, dt / 100))
    off = np.abs(step(x, dt) - truth)
    assert off[P].max() < 2e-3 and off[Q].max() < 2e-3 and off[V].max() < 0.03 and off[10:].max() < 1e-3


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
        theta = reference.advance(theta, lead(reference, theta, x[P]), 1 / 60)
        x = flown(x, solution.u[0], dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
        worst = max(worst, np.linalg.norm(x[P] - reference.sample(np.array([theta]))[0, P]))
    assert worst < 0.15


def test_commands_that_come_a_little_late_do_not_slow_the_plan_down(plan, dcl, control, solver):
    """As in lock-step with a simulator whose telemetry comes in steps of its own."""
    rng, pilot, period, t0 = np.random.default_rng(2), control(solver), 1 / 60, 0.5
    pilot.theta, late_s = t0, rng.uniform(0, 0.4 / 60, 60)
    for k, late in enumerate(late_s):
        t = t0 + k * period + late
        at = pilot.theta - dcl.command_delay_s  # the vehicle follows: when the command acts it is where it should be
        x = np.array([np.interp(at, plan.t, column) for column in plan.x.T])
        pilot.step(t, x, t0 + (k + 1) * period - t)
    assert pilot.theta == pytest.approx(t0 + len(late_s) * period, abs=0.05)


def test_inputs_stay_within_the_vehicles_limits(plan, dcl, problem, solver, control):
    controller = control(solver)
    low, high = problem.input_limits(dcl)
    x = plan.x[40].copy()
    x[P] += 3.0
    for k in range(20):
        u = controller.step(k / 60, x, 1 / 60).u
        assert (u >= low - 1e-9).all() and (u <= high + 1e-9).all()


@pytest.mark.parametrize("failure", ["status", "nan"])
@pytest.mark.parametrize("spare", [True, False])
def test_a_failed_solve_falls_back_in_order_and_recovers(plan, dcl, problem, solver, control, failure, spare):
    failing = Failing(solver)
    controller = control(failing, CasadiSolver(problem, dcl) if spare else None)
    x = plan.x[30].copy()
    controller.theta = float(plan.t[30])
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
    ("a plan with a hole ahead", lambda x: (x, 0.0), 1.5, "hole", Source.GEOMETRIC),
    ("a plan with a hole here", lambda x: (x, 0.0), 0.5, "hole", Source.LEVEL),
]


@pytest.mark.parametrize("spoil, hole_s, words, last", [case[1:] for case in HOLES], ids=[case[0] for case in HOLES])
def test_bad_input_is_survived_and_never_reaches_the_wire(plan, dcl, vq1, problem, solver, spoil, hole_s, words, last):
    if hole_s is not None:
        kept = (plan.t < hole_s) | (plan.t > hole_s + 2.0)
        kept[list(plan.gate_nodes)] = True
        nodes = tuple(np.searchsorted(plan.t[kept], plan.t[list(plan.gate_nodes)]).tolist())
        plan = replace(plan, t=plan.t[kept], x=plan.x[kept], u=plan.u[kept], gate_nodes=nodes)
    controller = Controller(plan, dcl, problem, solver, load_adaptation(), vq1.course(1), CasadiSolver(problem, dcl))
    controller.theta = 0.7
    x = Reference(plan, dcl).sample(np.array([0.7]))[0]
    state = np.nan_to_num(np.concatenate([x[:10], np.zeros(4)]), nan=1.0)
    for k in range(SHIFTED_LIMIT + 3):
        control = controller.step(k / 60, *[spoil(state)[0], 1 / 60, spoil(state)[1]])
        assert np.isfinite(control.u).all() and np.isfinite(control.q_wb).all() and words in control.reason
        assert np.isfinite(controller.theta) and np.isfinite(controller.pace)
    assert control.source is last


def test_an_old_state_is_flown_ahead_by_the_inputs_sent(plan, dcl, vq1, problem, solver):
    """Where the model is true, the state of 50 ms ago and what was sent since give the command that the state of now gives."""
    dt, vehicle, commands = 1 / 60, replace(dcl, command_delay_s=3 / 60), []
    for age in (0, 3):
        controller = Controller(plan, vehicle, problem, solver, load_adaptation(), vq1.course(1))
        states, sent = [plan.x[0].copy()], [np.zeros(4)] * 3
        for k in range(40):
            old = age if k == 39 else 0
            sent.append(controller.step(k * dt, states[-1 - old], dt, old * dt).u)
            x = flown(states[-1], sent[k], vehicle, dt)
            x[Q] /= np.linalg.norm(x[Q])
            states.append(x)
        commands.append(sent[-1])
    assert np.linalg.norm(states[-1][V]) > 10
    assert np.allclose(*commands, atol=0.3)


def test_without_a_plan_or_a_solver_it_brakes_to_a_hover(plan, dcl):
    x = plan.x[60].copy()
    speed = np.linalg.norm(x[V])
    for _ in range(600):
        x = flown(x, geometric.brake(x), dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
    assert speed > 20 and np.linalg.norm(x[V]) < 1.0
    assert matrix(x[Q])[2, 2] > 0.99 and x[13] == pytest.approx(GRAVITY, abs=0.5)


@pytest.mark.parametrize("spare", [True, False])
def test_a_race_without_its_solver_is_finished(plan, vq1, dcl, problem, solver, control, spare):
    """By the spare solver at the plan's pace, else by the geometric controller slowly."""
    failing = Failing(solver)
    failing.status = 3
    controller = control(failing, CasadiSolver(problem, dcl) if spare else None)
    flight = fly(controller, plan, vq1, dcl, Mismatch(), seed=4, patience=4.0)
    assert flight.finished, flight.cause
    assert flight.margin_m > (0.35 if spare else 0.2) and flight.fallbacks == len(flight.step_s)
    assert flight.time_s < (1.03 if spare else 2.5) * plan.total_time


@pytest.mark.parametrize("name", ["tracking", "mpcc"])
def test_both_solvers_find_the_same(plan, vq1, dcl, name):
    """One and the same step from the same guess, from a place off the plan, with inputs at their limits."""
    problem = Problem(load_settings(name))
    row = Reference(plan, dcl, vq1.course(1)).sample(1.6 + np.arange(21) * 0.05)
    parameters = np.hstack([row, np.tile(vehicle_belief(dcl), (21, 1))])
    parameters[:, GOAL] = problem.settings.pace_max
    x0 = np.concatenate([row[0, :10], row[0, U_W], [30.0], [1.6, 1.0]])[: problem.x.size]
    x0[P] += [0.5, -0.8, 0.6]
    found = []
    for solver in (AcadosSolver(problem, dcl), CasadiSolver(problem, dcl)):
        guess = np.tile(x0, (21, 1)), np.tile(np.zeros(problem.u.size), (20, 1))
        solver.start(*guess)
        solver.prepare(parameters)
        found.append(solver.solve(x0))
        assert found[-1].status == 0
    low, high = problem.input_limits(dcl)
    assert (np.isclose(found[1].u, low) | np.isclose(found[1].u, high)).any()
    assert np.allclose(found[0].u, found[1].u, atol=5e-3) and np.allclose(found[0].x, found[1].x, atol=5e-3)


def test_casadi_flies_a_race_alone(plan, vq1, dcl):
    controller = make_controller("tracking", plan, dcl, vq1.course(1), "casadi")
    flight = fly(controller, plan, vq1, dcl, Mismatch(), seed=5)
    assert flight.finished and flight.fallbacks == 0
    assert flight.time_s < 1.02 * plan.total_time and flight.margin_m > 0.35


def test_attitude_targets_fly_a_race_as_rates_do(plan, vq1, dcl, control, solver):
    flight = fly(control(solver), plan, vq1, dcl, Mismatch(), seed=6, by_rates=False)
    assert flight.finished, flight.cause
    assert flight.time_s < 1.03 * plan.total_time and flight.margin_m > 0.3


def test_without_acados_casadi_flies_and_says_so(monkeypatch, tmp_path, plan, vq1, dcl, capsys):
    monkeypatch.delenv("ACADOS_SOURCE_DIR", raising=False)
    monkeypatch.setattr("mpc.acados.WHEEL", tmp_path / "nowhere")
    controller = make_controller("tracking", plan, dcl, vq1.course(1))
    told = capsys.readouterr().err
    assert told.startswith("flying with CasADi") and told.count("\n") == 1
    assert controller.step(0.0, plan.x[0], 1 / 60).source is Source.SOLVED
    with pytest.raises(AcadosMissingError, match="make setup"):
        make_controller("tracking", plan, dcl, vq1.course(1), "acados")


CASES = [  # sentence, controller, what differs from the belief, greatest time over the plan's, least margin
    ("as believed, the plan's time is flown", "tracking", Mismatch(), 1.02, 0.4),
    (
        "with a sixth of the thrust missing it is flown slower, as near to the line",
        "tracking",
        Mismatch(thrust=0.85),
        1.05,
        0.4,
    ),
    ("and so with half as much drag again", "tracking", Mismatch(drag=1.5), 1.14, 0.4),
    ("in gusts every gate is passed", "tracking", Mismatch(gust_m_s=2.0), 1.03, 0.2),
    ("contouring does not lose to the plan", "mpcc", Mismatch(), 1.0, 0.4),
    ("contouring takes the reserve when thrust is missing", "mpcc", Mismatch(thrust=0.85), 1.03, 0.4),
    ("contouring loses less to drag", "mpcc", Mismatch(drag=1.5), 1.1, 0.4),
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
    side = at[0, REFERENCE["across"].at]
    assert 1 / (side @ gate.R_wg[:, 1]) == pytest.approx(gate.half - dcl.contact_radius_m - CLEAR_M)
    assert np.allclose(at[0, REFERENCE["gate"].at], gate.p_wg)
    assert abs(side @ at[0, V_R]) < 1e-9  # along the plan's direction, which may be oblique, nothing binds
    assert np.linalg.norm(away[0, REFERENCE["across"].at]) < 0.01


@pytest.mark.parametrize("name", ["tracking", "mpcc"])
def test_at_the_plan_only_progress_and_inputs_cost(plan, dcl, name):
    """Every other residual vanishes when the state is the plan's own, at its pace."""
    problem, k = Problem(load_settings(name)), 60
    row = np.append(Reference(plan, dcl).sample(plan.t[k : k + 1])[0], vehicle_belief(dcl))
    row[GOAL] = problem.settings.pace_max
    x = np.append(plan.x[k], [plan.t[k], 1.0])[: problem.x.size]
    s = problem.symbols
    y_end = np.array(ca.Function("y", [s.x, s.p], [s.y_end])(x, row)).ravel()
    expected = [problem.settings.pace_max - 1.0] if name == "mpcc" else []
    assert np.allclose(sorted(np.abs(y_end))[len(y_end) - len(expected) :], expected, atol=1e-6)
    assert np.sum(np.abs(y_end)) == pytest.approx(sum(expected), abs=1e-6)
