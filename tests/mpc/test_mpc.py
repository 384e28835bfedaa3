"""The controller flies what was planned, bridges its delay, and never sends garbage."""

import numpy as np
import pytest

from mpc.acados import AcadosMissingError, AcadosSolver, Solve, import_template
from mpc.controller import SHIFTED_LIMIT, Controller, Source
from mpc.predictor import Predictor
from mpc.problem import NP, REFERENCE, VEHICLE, input_limits, load_settings, vehicle_parameters
from mpc.reference import Reference
from vehicle.dynamics import GRAVITY, RATES_X, rates, rk4
from vehicle.rotation import matrix

P, Q, V = (RATES_X[name].at for name in "pqv")


@pytest.fixture(scope="module")
def solver(dcl):
    return AcadosSolver(load_settings(), input_limits(dcl))


class Failing:
    """A solver that does as it is told."""

    def __init__(self, inner):
        self.inner, self.status, self.nan, self.starts = inner, 0, False, 0

    def start(self, x, u):
        self.starts += 1
        self.inner.start(x, u)

    def solve(self, x0, parameters):
        good = self.inner.solve(x0, parameters)
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
    assert reference.advance(1.0, reference.sample(np.array([1.0 + 1 / 60]))[0, P], 1 / 60) == pytest.approx(1 + 1 / 60)


def test_lost_time_is_lost(plan, dcl):
    reference = Reference(plan, dcl)
    late = reference.sample(np.array([1.9]))[0, P]
    theta = 2.0
    assert reference.advance(theta, late, 0.1) - theta < 0.1


def test_the_predictor_flies_the_inputs_that_were_sent(plan, dcl):
    predictor, dt = Predictor(dcl), 1 / 60
    x = plan.x[0].copy()
    x[13] = 0.0
    inputs = [np.array([0.0, -3.0, 0.5, 30.0 + k]) for k in range(20)]
    acting = np.zeros(4)
    for k, u in enumerate(inputs):
        t = k * dt
        if k >= 4:
            ahead = predictor.ahead(t, x)
        else:
            predictor.ahead(t, x)
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


def test_from_the_plan_the_plan_is_flown(plan, dcl, solver):
    settings, reference = load_settings(), Reference(plan, dcl)
    parameters = np.zeros((settings.steps + 1, NP))
    parameters[:, VEHICLE] = vehicle_parameters(dcl)
    x, theta, worst = plan.x[0].copy(), 0.0, 0.0
    horizon = np.arange(settings.steps + 1) * settings.step_s
    solver.start(np.tile(plan.x[0], (settings.steps + 1, 1)), np.tile(plan.u[0], (settings.steps, 1)))
    while theta < 4.0:
        parameters[:, REFERENCE] = reference.sample(theta + horizon)
        solution = solver.solve(x, parameters)
        assert solution.status == 0
        x = flown(x, solution.u[0], dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
        theta = reference.advance(theta, x[P], 1 / 60)
        worst = max(worst, np.linalg.norm(x[P] - reference.sample(np.array([theta]))[0, P]))
    assert worst < 0.15


def test_inputs_stay_within_the_vehicles_limits(plan, dcl, solver):
    controller = Controller(plan, dcl, load_settings(), solver)
    low, high = input_limits(dcl)
    x = plan.x[40].copy()
    x[P] += 3.0
    for k in range(20):
        u = controller.step(k / 60, x, 1 / 60).u
        assert (u >= low - 1e-9).all() and (u <= high + 1e-9).all()


@pytest.mark.parametrize("failure", ["status", "nan"])
def test_a_failed_solve_flies_the_old_solution_then_slows_down_then_recovers(plan, dcl, solver, failure):
    failing = Failing(solver)
    controller = Controller(plan, dcl, load_settings(), failing)
    x = plan.x[30].copy()
    controller.theta = float(plan.t[30])
    assert controller.step(0.0, x, 1 / 60).source is Source.SOLVED
    failing.status, failing.nan = (4, False) if failure == "status" else (0, True)
    sources = [controller.step(k / 60, x, 1 / 60) for k in range(1, SHIFTED_LIMIT + 4)]
    assert [c.source for c in sources] == [Source.SHIFTED] * SHIFTED_LIMIT + [Source.LEVEL] * 3
    assert all(np.isfinite(c.u).all() and np.isfinite(c.q_wb).all() for c in sources)
    failing.status, failing.nan = 0, False
    assert controller.step(1.0, x, 1 / 60).source is Source.SOLVED


def test_a_state_with_nan_never_reaches_the_wire(plan, dcl, solver):
    controller = Controller(plan, dcl, load_settings(), solver)
    for k in range(SHIFTED_LIMIT + 3):
        control = controller.step(k / 60, plan.x[0] * np.nan, 1 / 60)
        assert np.isfinite(control.u).all() and control.source is not Source.SOLVED


def test_level_and_slow_stops_the_vehicle(plan, dcl, solver):
    failing = Failing(solver)
    failing.status = 4
    controller = Controller(plan, dcl, load_settings(), failing)
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
