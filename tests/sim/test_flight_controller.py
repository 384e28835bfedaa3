"""The rate loop and the mixer: damping, limits, and rates before thrust."""

import numpy as np
import pytest

from gate_racer.sim.physics import powertrain
from gate_racer.sim.physics.jit import record
from gate_racer.vehicle.vehicle import load_vehicle

DT = 1 / 960


def loop(name="kolibri"):
    vehicle = load_vehicle(name)
    return record(powertrain.controller_parameters(vehicle.flight_controller, vehicle.rotors))


def after(x, omega, u, par):
    """State and motor outputs of the loop one step on."""
    then, motors = powertrain.rate_loop(x, omega, u, par, powertrain.smoothing(par, DT), DT)
    return np.array(then), np.array(motors)


def test_the_d_term_only_damps_and_no_command_kicks_it():
    par, x = loop(), np.zeros(9)
    x, first = after(x, np.zeros(3), (5.0, 0, 0, 0.5), par)
    assert x[6:9] == pytest.approx(np.zeros(3))
    roll = (first * np.array([m[0] for m in par.mix])).sum() / 4
    assert roll == pytest.approx(par.kp[0] * 5.0 + par.ki[0] * 5.0 * DT)
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
    motor = np.array(powertrain.motor_outputs(np.array(torque), throttle, par))
    assert motor.min() >= -1e-12 and motor.max() <= 1 + 1e-12
    achieved = np.array(par.mix).T @ motor / 4
    scale = achieved @ np.array(torque) / (np.array(torque) @ np.array(torque))
    assert achieved == pytest.approx(scale * np.array(torque))  # the direction is kept
    asked = np.ptp(np.array(par.mix) @ torque)
    assert scale == pytest.approx(min(1.0, 1.0 / asked))
