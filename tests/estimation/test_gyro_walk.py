"""The random walk of the attitude: as filed while the gyro is, greater once several images say so."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.eskf import GyroWalk, accumulated
from gate_racer.model.imu import ImuReading
from gate_racer.model.kalman import FilterState, propagate
from gate_racer.model.reprojection import stack
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import DELAY, POSE, THETA, N, Noise, Nominal, prior
from gate_racer.vehicle.rotation import from_euler
from gate_racer.vehicle.statistics import mahalanobis2
from tests.estimation.flying import FIRST, HZ, Flight, before_gate, looking, sighted

ATTITUDE = from_euler(0.4, -0.3, 1.2)


@pytest.mark.parametrize("T", [1 / 30, 1.0])
def test_the_walk_accumulates_as_step_by_step(T):
    still = ImuReading(0.0, np.array([1.0, -2.0, -11.0]), np.zeros(3))
    state, steps = FilterState(Nominal.at(0.0, np.zeros(3), np.zeros(3), ATTITUDE), np.zeros((N, N)), still), 400
    growth = np.zeros(N)
    growth[THETA] = T / steps
    for k in range(steps):
        t = (k + 1) * T / steps
        x = Nominal.at(t, np.zeros(3), np.zeros(3), ATTITUDE)
        state = propagate(state, x, ImuReading(t, still.accel, still.gyro), growth)
    sigma = np.sqrt(state.cov[POSE, POSE].diagonal())
    unit = np.outer(sigma, sigma)
    assert accumulated(state, T) / unit == pytest.approx(state.cov[POSE, POSE] / unit, abs=0.02)


def test_three_grossly_wrong_images_change_nothing(vq1, dcl):
    x = before_gate(vq1.gates[0], np.random.default_rng(0))
    sighting = sighted(vq1.gates[0], x, dcl.camera)
    sighting = replace(sighting, corners_px=sighting.corners_px + [60.0, 0.0])
    image = stack([sighting], FIRST, x, looking(dcl.camera, x[DELAY]))
    state = FilterState(x, prior(Noise(dcl.imu), GateAppearance(), x.q_wb), ImuReading(0.0, np.zeros(3), np.zeros(3)))
    cov = state.cov * 1e-6
    walk, G = GyroWalk(), accumulated(state, 1 / 30)
    failed = walk.likeliest(cov, np.full((9, 9), np.nan), 1 / 30, image, 0.04, 2.0)
    assert failed == 0.0, "nor does a filter that has failed"
    densities = [walk.likeliest(cov, G, 1 / 30, image, 0.04, 2.0) for _ in range(8)]
    assert densities[:3] == [0.0] * 3 and densities[-1] > 0


class Swaying(Flight):
    """A flight whose gyro errs by white noise, rad/s^0.5, beyond the vehicle's file."""

    def errs(self, density, seconds, every=4):
        """Fly so for a time; return the squared Mahalanobis distances of position and attitude at the images."""
        squares = []
        for _ in range(round(seconds * HZ)):
            self.w = np.array([0.5, 0.3, -0.4]) * np.cos(3 * self.t)
            self.tick(((0.0, 0.0, 0.0), tuple(self.rng.normal(0, density * np.sqrt(HZ), 3).tolist())))
            if every and self.k % every == 0:
                self.look()
                state = self.estimator.state()
                squares.append(mahalanobis2(self.p - state.p_wb, state.cov_p))
        return squares

    @property
    def walk(self):
        return self.estimator.noise.states["theta"].walk


def test_the_walk_is_as_filed_unless_the_gyro_errs_more_which_is_noticed_and_forgiven(vq1, dcl):
    flight = Swaying(vq1, dcl)
    filed = flight.walk
    flight.errs(0.0, 2.0)
    assert flight.walk == filed
    flight = Swaying(vq1, dcl)
    filed = flight.walk
    squares = flight.errs(0.05, 3.0)
    assert flight.walk > 0.009 and np.mean(squares[30:]) < 6 and flight.turned < 0.1
    flight.errs(0.0, 12.0)
    assert flight.walk == filed


def test_a_second_without_gates_is_as_uncertain_as_the_gyro_is_bad(vq1, dcl):
    flight = Swaying(vq1, dcl)
    flight.errs(0.05, 2.0)
    flight.errs(0.05, 1.0, every=0)
    state = flight.estimator.state()
    assert mahalanobis2(flight.p - state.p_wb, state.cov_p) < 12
    assert np.mean(flight.errs(0.05, 1.0)) < 6, "and is found again"
