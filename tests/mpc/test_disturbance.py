"""The controller's model of its vehicle: equations, delay, and parameters estimated in flight."""

from dataclasses import replace

import numpy as np
import pytest
from loops import flown

from gate_racer.mpc.adaptation import DisturbanceEstimator, load_adaptation
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.model import PARAMETERS, Predictor, nominal_parameters
from gate_racer.vehicle.dynamics import RATES_X, drag, lifted, rates, rk4
from gate_racer.vehicle.rotation import rotate

P, Q, V = (RATES_X[name].at for name in "pqv")


@pytest.mark.parametrize("lag", [1.0, 0.5])
def test_one_step_of_the_horizon_is_the_vehicles_model(plan, dcl, lag):
    vehicle = replace(dcl, rate_lag_s=tuple(lag * tau for tau in dcl.rate_lag_s), thrust_lag_s=lag * dcl.thrust_lag_s)
    predictor, x, u, dt = Predictor(vehicle), plan.x[30], plan.u[30] + [3.0, -3.0, 1.0, 10.0], 0.05
    predictor.sent(-vehicle.command_delay_s, u)
    truth = x
    for _ in range(100):
        truth = np.array(rk4(rates, truth, u, vehicle.rates_parameters, dt / 100))
    off = np.abs(predictor.fly(x, 0.0, dt, nominal_parameters(vehicle)) - truth)
    assert off[P].max() < 2e-3 and off[Q].max() < 2e-3 and off[V].max() < 0.03 and off[10:].max() < 1e-3


def test_an_old_state_is_flown_ahead_by_the_inputs_sent(plan, dcl, vq1, problem, solver):
    dt, vehicle, commands = 1 / 60, replace(dcl, command_delay_s=3 / 60), []
    for age in (0, 3):
        controller = PlanController(plan, vehicle, problem, solver, vq1.course(1))
        states, sent = [plan.x[0].copy()], [np.zeros(4)] * 3
        for k in range(40):
            old = age if k == 39 else 0
            sent.append(controller.step(k * dt, states[-1 - old], dt, old * dt).u)
            x = flown(states[-1], sent[k], vehicle, dt)
            x[Q] /= np.linalg.norm(x[Q])
            states.append(x)
        commands.append(sent[-1])
    assert np.linalg.norm(states[-1][V]) > 10
    reach = np.array([*vehicle.rate_max_rad_s, vehicle.thrust_max])
    assert (np.abs(np.subtract(*commands)) < 0.01 * reach).all()


@pytest.mark.parametrize(
    "thrust, drags, lift", [(0.85, 1.0, 0.0), (1.15, 1.0, 0.01), (1.0, 2.0, 0.0), (0.9, 1.5, -0.01)]
)
def test_errors_of_the_model_are_estimated(plan, dcl, thrust, drags, lift):
    filter, dt = DisturbanceEstimator(dcl, load_adaptation()), 1 / 60
    air = dcl.drag_linear_1_s, dcl.drag_quadratic_1_m

    def found(name):
        return filter.parameters[PARAMETERS[name].at]

    def fly(unknown_w):
        for x in np.repeat(plan.x[:-1], 4, axis=0):
            pull, resist = np.array(rotate(x[Q], (0.0, 0.0, -x[13]))), np.array(drag(x[Q], x[V], *air))
            lifting = lifted(x[Q], x[V], 1.0) * pull / x[13]
            truth = thrust * pull + drags * resist + unknown_w + lift * lifting
            model = found("thrust_scale") * pull + found("residual") + found("lift") * lifting
            model += resist * found("drag_quadratic") / dcl.drag_quadratic_1_m
            filter.update(x, (truth - model) * dt, np.array([*x[10:13], x[13]]), x[13], dt)

    filter.update(plan.x[40], np.array([0.0, 2.0, 0.0]), np.zeros(4), 20.0, dt)
    assert np.allclose(filter.parameters, nominal_parameters(dcl)), "a jump of the state teaches nothing"
    fly(np.zeros(3))
    assert found("thrust_scale")[0] == pytest.approx(thrust, abs=0.03)
    assert found("drag_quadratic")[0] / dcl.drag_quadratic_1_m == pytest.approx(drags, rel=0.15)
    assert found("lift")[0] == pytest.approx(lift, abs=0.003)
    fly(np.array([0.0, 3.0, 0.0]))
    assert found("residual")[1] == pytest.approx(3.0, abs=1.0)


def test_inputs_for_a_time_that_did_not_come_are_forgotten(dcl):
    x, parameters = np.zeros(RATES_X.size), nominal_parameters(dcl)
    x[RATES_X["q"].at.start] = 1.0
    straight, suspended = Predictor(dcl), Predictor(dcl)
    for t in (0.0, 1.0, 1.1, 1.2):
        suspended.sent(t, np.array([3.0, 0.0, 0.0, 20.0]) if t > 0 else np.zeros(4))
    straight.sent(0.0, np.zeros(4))
    for predictor in (straight, suspended):
        predictor.sent(0.95, np.array([0.0, 2.0, 0.0, 15.0]))
    assert np.array_equal(straight.ahead(1.3, x, parameters, 0.4), suspended.ahead(1.3, x, parameters, 0.4))


def test_the_predictor_flies_the_inputs_that_were_sent(plan, dcl):
    predictor, parameters, dt = Predictor(dcl), nominal_parameters(dcl), 1 / 60
    x = plan.x[0].copy()
    x[13] = 0.0
    inputs = [np.array([0.0, -3.0, 0.5, 30.0 + k]) for k in range(20)]
    acting = np.zeros(4)
    for k, u in enumerate(inputs):
        t = k * dt
        if k >= 4:
            ahead = predictor.ahead(t, x, parameters)
        else:
            predictor.ahead(t, x, parameters)
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
