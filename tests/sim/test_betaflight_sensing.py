"""What the flight controller reads of its accelerometer: a filtered force, late by the filter's delay."""

import math

import numpy as np
import pytest

from gate_racer.link.msp.profile import load_betaflight
from gate_racer.sim.betaflight.flight_controller import LowPass
from gate_racer.vehicle.vehicle import load_vehicle

BF, ARCHER = load_betaflight("betaflight"), load_vehicle("archer")


def test_a_force_that_grows_steadily_is_read_late_by_the_delay_of_the_filter():
    low_pass, dt = LowPass(BF.accel_lpf_hz, np.zeros(1)), 1 / 4000
    times = np.arange(1, 4000) * dt
    read = []
    for t in times:
        low_pass.advance(np.array([20.0 * t]), dt)
        read.append(float(low_pass.y[0]))
    assert np.interp(read[-1], 20.0 * times, times) == pytest.approx(times[-1] - BF.accel_delay_s, abs=2 * dt)


def test_a_vibration_is_filtered():
    low_pass, dt = LowPass(BF.accel_lpf_hz, np.zeros(1)), 1 / 480
    read = []
    for k in range(480):
        low_pass.advance(np.array([math.sin(2 * math.pi * 60.0 * k * dt)]), dt)
        read.append(float(low_pass.y[0]))
    assert max(np.abs(read[240:])) < 0.05


def test_the_vehicle_file_states_the_delay_of_the_filter():
    assert ARCHER.imu.accel_delay_s == pytest.approx(BF.accel_delay_s, abs=1e-3)
