"""Thrust and turning share the rotors: the mixer of the simple plant, and the rate loop of the grey-box one."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.sim.physics import swift
from gate_racer.sim.physics.jit import record
from gate_racer.sim.physics.plant import MixedRates, mixed
from gate_racer.sim.physics.plants import rates_stepped
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.vehicle import Mixer, load_vehicle

W, C = RATES_X["w"].at, RATES_X["c"].at.start
STILL, DT = np.zeros(3), 1e-4


def flying(thrust, w=STILL):
    x = np.zeros(RATES_X.size)
    x[3], x[W], x[C] = 1.0, w, thrust
    return x


def turned(vehicle, x, u):
    """(3,) rad/s^2 and m/s^3: how rates and thrust begin to change."""
    after = np.array(rates_stepped(tuple(x), tuple(u), tuple(STILL), record(MixedRates.of(vehicle)), DT))
    return (after[W] - x[W]) / DT, (after[C] - x[C]) / DT


@pytest.mark.parametrize("axis", range(3))
def test_one_axis_has_its_whole_slew_at_half_thrust_none_at_full(dcl, axis):
    u, most = np.zeros(4), dcl.thrust_max
    u[axis] = 10 * dcl.rate_max_rad_s[axis]
    slews = []
    for share in (0.5, 0.75, 1.0):
        u[3] = share * most
        slews.append(turned(dcl, flying(share * most), u)[0][axis])
    assert slews == pytest.approx(np.array([1.0, 0.5, 0.0]) * dcl.mixer.slew_max_rad_s2[axis], rel=0.01, abs=0.5)


def test_axes_share_what_is_left_and_keep_their_proportions(dcl):
    rng = np.random.default_rng(4)
    par, lag, slew = record(MixedRates.of(dcl)), np.array(dcl.rate_lag_s), np.array(dcl.mixer.slew_max_rad_s2)
    for _ in range(200):
        thrust, w, u = rng.uniform(0, dcl.thrust_max), rng.normal(0, 5, 3), rng.normal(0, 8, 3)
        given = np.array(mixed(flying(thrust, w), (*u, thrust), par))
        share = np.abs((given[:3] - w) / lag / slew).sum()
        asked = np.abs((u - w) / lag / slew).sum()
        assert share == pytest.approx(min(asked, 1.0, 2 - 2 * thrust / dcl.thrust_max), abs=1e-9)
        assert given[:3] - w == pytest.approx((u - w) * share / asked, abs=1e-9)


def test_feasible_commands_are_realised_exactly(dcl):
    par = record(MixedRates.of(dcl))
    u = (0.5, -0.3, 0.2, 20.0)
    assert mixed(flying(20.0), u, par) == u


def test_turning_with_little_thrust_adds_hover_s_at_most(dcl):
    par = record(MixedRates.of(dcl))
    thrusts = [mixed(flying(2.0), (rate, 0.0, 0.0, 2.0), par)[3] for rate in (0.0, 0.3, 1.0, 10.0)]
    assert thrusts[0] == 2.0 and np.all(np.diff(thrusts) >= 0) and thrusts[-1] == dcl.mixer.lift_m_s2


def test_without_a_mixer_rates_do_not_depend_on_the_thrust(dcl):
    free, u = replace(dcl, mixer=None), [10.0, -10.0, 5.0, dcl.thrust_max]
    slew, _ = turned(free, flying(dcl.thrust_max), u)
    assert slew == pytest.approx(np.array(u[:3]) / dcl.rate_lag_s, rel=0.01)


@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (2, 0)])
def test_yielding_thrust_is_that_of_betaflights_mixer(axes):
    archer = load_vehicle("archer")
    archer = replace(archer, mixer=replace(archer.mixer, slew_max_rad_s2=archer.rotors.slew_max_rad_s2))
    par, most = record(MixedRates.of(archer)), archer.thrust_max
    reach = np.array(archer.rate_lag_s) * archer.slew_max
    motors = SimpleNamespace(mix=[(-1, 1, 1), (1, -1, 1), (-1, -1, -1), (1, 1, -1)])  # roll, pitch and yaw to each
    rng = np.random.default_rng(5)
    for _ in range(200):
        share, thrust = np.zeros(3), rng.uniform(0, most)
        share[list(axes)] = rng.uniform(-0.8, 0.8, 2)  # of what there is at half thrust
        *rates, flown = mixed(flying(thrust), (*(share * reach), thrust), par)
        outputs = swift.motor_outputs(tuple(share / 2), thrust / most, motors)
        assert flown == pytest.approx(most * np.mean(outputs), abs=1e-9)
        assert rates == pytest.approx(share * reach / max(np.abs(share).sum(), 1.0))


@pytest.mark.parametrize(("slew", "lift"), [((0.0, 1.0, 1.0), 1.0), ((1.0, 1.0, 1.0), -1.0)])
def test_a_mixer_that_cannot_be_is_refused(slew, lift):
    with pytest.raises(ValueError, match="must"):
        Mixer(slew, lift)


def test_thrust_that_yields_needs_the_rotors_that_turning_takes(dcl):
    with pytest.raises(ValueError, match="thrust_yields needs rotors"):
        replace(dcl, mixer=replace(dcl.mixer, thrust_yields=True))


# The rate loop: damping, limits, and rates before thrust.

TICK_S = 1 / 960


def loop():
    vehicle = load_vehicle("kolibri")
    return record(swift.controller_parameters(vehicle.flight_controller, vehicle.rotors))


def after(x, omega, u, par):
    """State and motor outputs of the loop one step on."""
    then, motors = swift.rate_loop(x, omega, u, par, swift.smoothing(par, TICK_S), TICK_S)
    return np.array(then), np.array(motors)


def test_the_d_term_only_damps_and_no_command_kicks_it():
    par, x = loop(), np.zeros(9)
    x, first = after(x, np.zeros(3), (5.0, 0, 0, 0.5), par)
    assert x[6:9] == pytest.approx(np.zeros(3))
    roll = (first * np.array([m[0] for m in par.mix])).sum() / 4
    assert roll == pytest.approx(par.kp[0] * 5.0 + par.ki[0] * 5.0 * TICK_S)
    x, _ = after(np.zeros(9), (1.0, 0, 0), (0.0, 0, 0, 0.5), par)
    assert x[6] > 0  # and a turning body is damped


def test_the_i_term_is_limited_and_reset_by_cut_throttle():
    par, x = loop(), np.zeros(9)
    for _ in range(2000):
        x, _ = after(x, np.zeros(3), (5.0, -5.0, 2.0, 0.5), par)
    assert x[:3] == pytest.approx([par.integral_limit, -par.integral_limit, par.integral_limit])
    x, _ = after(x, np.zeros(3), (5.0, -5.0, 2.0, 0.0), par)
    assert x[:3] == pytest.approx(np.zeros(3))


@pytest.mark.parametrize("throttle", [0.0, 0.02, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("torque", [(0.1, 0.0, 0.0), (0.1, -0.2, 0.05), (2.0, 1.0, -0.5)])
def test_rates_come_before_thrust_when_motors_saturate(torque, throttle):
    par = loop()
    motor = np.array(swift.motor_outputs(np.array(torque), throttle, par))
    assert motor.min() >= -1e-12 and motor.max() <= 1 + 1e-12
    achieved = np.array(par.mix).T @ motor / 4
    scale = achieved @ np.array(torque) / (np.array(torque) @ np.array(torque))
    assert achieved == pytest.approx(scale * np.array(torque))  # the direction is kept
    asked = np.ptp(np.array(par.mix) @ torque)
    assert scale == pytest.approx(min(1.0, 1.0 / asked))
