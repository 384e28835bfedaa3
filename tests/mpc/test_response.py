"""The delay and the lags of the body rates, found out in flight."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.mpc.adaptation import ResponseEstimator, load_adaptation
from gate_racer.mpc.model import Predictor
from gate_racer.vehicle.dynamics import rates, rk4

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
