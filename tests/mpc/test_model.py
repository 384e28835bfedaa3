"""The controller's model: equations, delay and parameters found in flight, and commands that the rotors can follow."""

from dataclasses import replace

import numpy as np
import pytest
from loops import flown

from gate_racer.mpc.adaptation import DisturbanceEstimator, ResponseEstimator, load_adaptation
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.model import PARAMETERS, Allocation, Predictor, nominal_parameters
from gate_racer.sim.physics.plant import MixedRates, mixed
from gate_racer.vehicle.dynamics import RATES_X, drag, lifted, rates, rk4
from gate_racer.vehicle.rotation import rotate
from gate_racer.vehicle.vehicle import load_vehicle

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


# A command that the rotors can follow.


def random_commands(vehicle, count=2000):
    """Body rates (3,) and commands (4,), within the vehicle's limits."""
    rng, most = np.random.default_rng(0), np.array(vehicle.rate_max_rad_s)
    for _ in range(count):
        calm = rng.uniform(0, 1) ** 2
        w = rng.uniform(-most, most)
        yield (
            w,
            np.append(np.clip(w + calm * rng.uniform(-most, most), -most, most), rng.uniform(0, vehicle.thrust_max)),
        )


def followed(vehicle, w, u):
    """Return the inputs that the plant's rotors realise at body rates w, with the thrust as commanded."""
    return np.array(mixed(np.array([*np.zeros(10), *w, u[3]]), u, MixedRates.of(vehicle)))


def test_roll_and_pitch_are_followed_where_rotors_can(dcl):
    allocation, reach = Allocation(dcl), np.array(dcl.rate_lag_s) * dcl.slew_max
    followable = 0
    for w, u in random_commands(dcl):
        within = allocation.within(u, w)
        assert within[:2] == pytest.approx(u[:2]) and within[3] <= u[3] + 1e-9
        tilting = np.sum(np.abs(u[:2] - w[:2]) / reach[:2])
        if tilting <= min(1.0, 2 * (1 - within[3] / dcl.thrust_max)) + 1e-9:
            followable += 1
            assert followed(dcl, w, within)[:3] == pytest.approx(within[:3], abs=1e-6)
    assert followable > 1000


def test_allocated_commands_keep_thrust_in_a_yielding_mixer():
    archer = load_vehicle("archer")
    allocation, half, lowered, withheld = Allocation(archer), archer.thrust_max / 2, 0, 0
    for w, u in random_commands(archer):
        within = allocation.within(u, w)
        if u[3] > half:
            assert followed(archer, w, within)[3] == pytest.approx(within[3])
            lowered += followed(archer, w, u)[3] < u[3] - 1.0
            # No thrust is withheld that the mixer would give beside the turn.
            assert followed(archer, w, np.append(within[:3], u[3]))[3] == pytest.approx(within[3])
            withheld += within[3] < u[3]
    assert lowered > 100 and withheld > 100


def test_yaw_takes_no_roll_or_pitch_torque_in_a_yielding_mixer():
    archer = load_vehicle("archer")
    for w, u in random_commands(archer):
        roll, pitch, yaw, _ = Allocation(archer).within(u, w)
        turned, alone = (followed(archer, w, np.array([roll, pitch, r, u[3]])) for r in (yaw, w[2]))
        assert turned[:2] == pytest.approx(alone[:2])


def test_a_command_that_is_followed_anyway_is_left_alone(dcl):
    allocation, free, left = Allocation(dcl), Allocation(replace(dcl, mixer=None)), 0
    for w, u in random_commands(dcl):
        assert np.array_equal(free.within(u, w), u), "where the rotors' range is not known"
        if np.allclose(followed(dcl, w, u)[:3], u[:3]):
            left += 1
            assert np.array_equal(allocation.within(u, w), u)
    assert left > 300
    archer = load_vehicle("archer")  # whose mixer yields
    w, u = np.zeros(3), np.array([7.0, 0.0, 0.0, 0.9 * archer.thrust_max])
    assert np.array_equal(Allocation(archer).within(u, w), u)


def test_yaw_gives_way_before_the_thrust_does(dcl):
    w, u = np.zeros(3), np.array([0.5, 0.0, 5.0, 0.8 * dcl.thrust_max])
    within = Allocation(dcl).within(u, w)
    assert within[3] == u[3] and 0 < within[2] < u[2]


# The delay and the lags of the body rates, found out in flight.


DT, PARTS = 1 / 60, 10
SETTINGS = load_adaptation().response


def follow(vehicle, nominal, seconds, agility=3.0, noise=0.0, seed=0, spoil=None):
    """The estimator of the nominal vehicle after so long a flight of another one, whose commands change all the time."""
    rng, predictor = np.random.default_rng(seed), Predictor(nominal)
    estimator = ResponseEstimator(nominal, predictor, SETTINGS)
    x = np.array([*np.zeros(3), 1.0, *np.zeros(9), 10.0])
    late = vehicle.command_delay_s / DT * PARTS
    inputs, u, before = [np.zeros(4)], np.array([0.0, 0.0, 0.0, 10.0]), None
    for k in range(round(seconds / DT)):
        t, w = k * DT, x[10:13] + noise * rng.standard_normal(3)
        if spoil is not None:
            w = spoil(k, w)
        if before is not None:
            estimator.update(before[0], before[1], t, w)
            predictor.delay_s = estimator.delay_s
        before = t, w
        u = np.append(0.8 * u[:3] + agility * rng.standard_normal(3), 10.0)
        predictor.sent(t, u)
        inputs.append(u)
        for part in range(PARTS):
            acting = inputs[max(int(np.floor((k * PARTS + part - late) / PARTS + 1e-9)) + 1, 0)]
            x = np.array(rk4(rates, x, acting, vehicle.rates_parameters, DT / PARTS))
            x[3:7] /= np.linalg.norm(x[3:7])
    return estimator


@pytest.mark.parametrize("delay, lag", [(0.04, 1.0), (0.06, 1.0), (0.025, 0.7), (0.05, 1.5)])
def test_delay_and_lag_are_found(dcl, delay, lag):
    vehicle = replace(dcl, command_delay_s=delay, rate_lag_s=tuple(lag * tau for tau in dcl.rate_lag_s))
    found = follow(vehicle, dcl, 3.0, noise=0.02)
    assert found.delay_s == pytest.approx(delay, abs=0.002)
    assert found.rate_lag_s == pytest.approx(vehicle.rate_lag_s, rel=0.07)


def test_a_long_delay_is_found_in_half_a_second_and_is_no_lag(dcl):
    """A single Kalman filter found a lag of twice the file's instead, which ended in a limit cycle."""
    vehicle = replace(dcl, command_delay_s=dcl.command_delay_s + 0.075)
    for seed in range(2):
        found = follow(vehicle, dcl, 0.5, agility=6.0, noise=0.05, seed=seed)
        assert found.delay_s == pytest.approx(vehicle.command_delay_s, abs=0.005)
        assert found.lag_scale == pytest.approx(1.0, abs=0.2)


def test_without_rotation_nothing_is_estimated(dcl):
    vehicle = replace(dcl, command_delay_s=0.07)
    found = follow(vehicle, dcl, 3.0, agility=0.0, noise=0.02)
    assert found.delay_s == pytest.approx(dcl.command_delay_s, abs=1e-3)


@pytest.fixture(scope="module")
def clean(dcl):
    """The estimator after a flight that nothing spoils."""
    return follow(dcl, dcl, 2.0)


@pytest.mark.parametrize("spoiled", [np.nan, np.inf, 80.0])
def test_rates_that_no_command_explains_teach_nothing(dcl, clean, spoiled):
    found = follow(dcl, dcl, 2.0, spoil=lambda k, w: w + spoiled if k % 30 == 0 else w)
    assert found.delay_s == pytest.approx(clean.delay_s, abs=2e-3)
    assert np.isfinite(found.rate_lag_s).all()


@pytest.mark.parametrize(("true_s", "filed_s"), [(0.3, 0.04), (0.04, 0.5)])
def test_no_delay_is_found_that_no_vehicle_has(dcl, true_s, filed_s):
    found = follow(*(replace(dcl, command_delay_s=delay_s) for delay_s in (true_s, filed_s)), 2.0)
    assert 0.0 <= found.delay_s <= SETTINGS.delay_high
    assert (found.rate_lag_s <= SETTINGS.lag_high * np.array(dcl.rate_lag_s) + 1e-12).all()
