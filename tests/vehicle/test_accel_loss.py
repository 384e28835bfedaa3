"""Vibration lets the accelerometer read low, as the square of the throttle; the pilot knows it, the simulator has it."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.sim.physics.plant import Truth
from gate_racer.sim.simulator import Sensors
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle

ARCHER = load_vehicle("archer")
G0 = 9.80665


def test_the_loss_is_the_published_one():
    full, nine_tenths = ARCHER.thrust_max, ARCHER.throttle.thrust(0.9)
    assert ARCHER.accel_loss(full) == pytest.approx(0.46 * G0, rel=0.01)
    assert ARCHER.accel_loss(nine_tenths) == pytest.approx(3.6, rel=0.03)
    assert 0.2 < ARCHER.accel_loss(GRAVITY) < 0.35
    assert ARCHER.accel_loss(0.0) == 0.0


@pytest.mark.parametrize("thrust", [3.0, GRAVITY, 25.0, 44.0, 58.84])
def test_what_the_sensor_loses_the_pilot_puts_back(thrust):
    quiet = replace(ARCHER.imu, accel_noise_m_s2=0.0, accel_bias_m_s2=0.0, accel_delay_s=0.0)
    vehicle = replace(ARCHER, imu=quiet)
    x = np.zeros(14)
    x[-1] = thrust
    measured = Sensors(vehicle, np.random.default_rng(0)).imu(Truth(0.0, x, np.array([0.4, -0.2, -thrust]))).accel
    assert measured[2] == pytest.approx(-thrust + vehicle.accel_loss(thrust))
    assert vehicle.steadied(measured) == pytest.approx((0.4, -0.2, -thrust), abs=1e-2), "the curve is linear in pieces"


def test_a_vehicle_without_it_is_read_as_it_is():
    assert load_vehicle("dcl").steadied((1.0, 2.0, -30.0)) == (1.0, 2.0, -30.0)
