"""The widths of priors and walks: kept while errors are as assumed, found where they are greater."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.eskf import GyroWalk, accumulated
from gate_racer.estimation.widths import FACTORS, WIDEST, Evidence, PriorWidths
from gate_racer.model.gate_offsets import Constants, GateOffsets
from gate_racer.model.imu import ImuReading
from gate_racer.model.kalman import FilterState, propagate, update
from gate_racer.model.reprojection import stack
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import DELAY, ERROR, GATES, POSE, THETA, N, Noise, Nominal, P, prior
from gate_racer.vehicle.rotation import from_euler
from gate_racer.vehicle.statistics import mahalanobis2
from tests.estimation.flying import FIRST, HZ, Flight, before_gate, looking, sighted

STILL = ImuReading(0.0, np.zeros(3), np.zeros(3))
PLACE = np.array([1.0, 0.0, 0.0, 0.0])
NO_GATES = Constants(np.zeros((0, N)), np.zeros(0))
ROWS = {one: np.concatenate([np.arange(N)[ERROR[name].at] for name in names]) for one, names in FACTORS.items()}
EVERY = np.concatenate(list(ROWS.values()))
IMAGES, CORNERS = 30, 8


def began(dcl, times=1.0, rows=EVERY):
    """A filter at rest, its priors of some states `times` as wide as usual, and no doubt in what a linear update cannot turn."""
    cov = prior(Noise(dcl.imu), GateAppearance(), PLACE)
    cov[THETA], cov[:, THETA], cov[P], cov[:, P] = 0.0, 0.0, 0.0, 0.0
    cov[rows] *= times
    cov[:, rows] *= times
    return FilterState(Nominal.at(0.0, np.zeros(3), np.zeros(3), PLACE), cov, STILL)


class Images:
    """Linear measurements of constants, each by the size of its prior, with noise of 0.3."""

    def __init__(self, start, rng, times=1.0, rows=EVERY):
        sigma = np.sqrt(start.cov.diagonal())
        scale = np.ones(N)
        scale[rows] = times
        self.true, self.rng = sigma * scale * rng.normal(size=N), rng
        self.per_unit = np.divide(1, sigma, out=np.zeros(N), where=sigma > 0)

    def see(self, state):
        H = self.per_unit * self.rng.normal(size=(CORNERS, N)) / np.sqrt(len(EVERY))
        z = H @ self.true + 0.3 * self.rng.normal(size=CORNERS)
        return update(state, lambda x: (z - H @ x.values, H), 0.09 * np.eye(CORNERS))


def flown(dcl, seed, times=1.0, rows=EVERY):
    """Widths, state and true constants at the end of a flight whose errors are `times` as great as assumed."""
    state = start = began(dcl)
    images, widths = Images(start, np.random.default_rng(seed), times, rows), PriorWidths(start, np.zeros(N))
    for _ in range(IMAGES):
        state = widths.test(images.see(state), NO_GATES)
    return widths, state, images.true


def nees(state, true):
    return mahalanobis2((true - state.x.values)[EVERY], state.cov[np.ix_(EVERY, EVERY)]) / len(EVERY)


def test_errors_as_assumed_or_smaller_widen_and_narrow_nothing(dcl):
    """Of 20 flights with 30 images and seven tests of 1e-3 each, which repeat most of their data."""
    assert sum(flown(dcl, seed)[0].contradicted_t is not None for seed in range(20)) <= 1
    assert set(flown(dcl, 0, times=0.0)[0].all.values()) == {1.0}


@pytest.mark.parametrize("times", [1.5, 2.5])
def test_the_widths_converge_to_the_ratio_of_the_errors_to_those_assumed(times, dcl):
    flights = [flown(dcl, seed, times) for seed in range(12)]
    assert np.mean([widths.width("pad") for widths, _, _ in flights]) == pytest.approx(times, rel=0.2)
    assert np.mean([nees(state, true) for _, state, true in flights]) == pytest.approx(1.0, abs=0.35)


def test_a_factor_that_is_wrong_alone_is_widened_more_than_the_others(dcl):
    widths = flown(dcl, 0, 6.0, ROWS["lens"])[0].all
    assert widths["lens"] == max(widths.values()) > 1.5 * widths["IMU"]


@pytest.mark.parametrize("times", [0.5, 1.5, 3.0])
def test_a_widened_prior_is_one_that_was_wide_from_the_start(times, dcl):
    start, wide = began(dcl), began(dcl, times)
    sigma = np.sqrt(start.cov.diagonal())
    one, other = (Images(start, np.random.default_rng(1), 2.0) for _ in range(2))
    for _ in range(5):
        start, wide = one.see(start), other.see(wide)
    own = EVERY[sigma[EVERY] > 0]
    got = Evidence(start, np.eye(N)[own], np.zeros(len(own)), sigma[own], 0.0).widened(times**2)
    assert got.cov == pytest.approx(wide.cov, rel=1e-6, abs=1e-12)
    assert got.x.values == pytest.approx(wide.x.values, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("times", [3.0, 30.0])
def test_the_covariance_stays_positive_and_the_widths_bounded(times, dcl):
    widths, state, _ = flown(dcl, 2, times)
    assert np.linalg.eigvalsh(state.cov).min() > -1e-12 * state.cov.max()
    assert all(1 <= width <= WIDEST**2 for width in widths.all.values())


def test_a_gates_own_offset_counts_as_long_as_it_is_known_from_where(dcl, vq1):
    """A gate seen at twice the others' offsets has a share of the first one's; the first one's slot may be given to another."""
    offsets, state = GateOffsets(0.1, 0.02, 0.01, np.zeros(3)), began(dcl)
    state = offsets.admit([0, 1], state)
    constants = offsets.constants()
    assert constants.H.shape == (10, N) and constants.H[5:8, GATES].any(0).sum() == 6
    assert np.diag(constants.H @ state.cov @ constants.H.T) == pytest.approx(constants.sigma**2)
    offsets.width = 2.0
    assert offsets.constants().sigma == pytest.approx(constants.sigma)
    state = offsets.admit([2], state)
    wide = offsets.constants()
    assert np.diag(wide.H @ state.cov @ wide.H.T)[10:] == pytest.approx(4 * wide.sigma[10:] ** 2)
    state = offsets.relocate(0, np.eye(3), state)
    assert len(offsets.constants().H) == 5, "neither the relocated gate, nor what began from it"


def test_what_was_never_seen_contradicts_nothing_for_however_long_it_walks(dcl):
    start, walks = began(dcl), Noise(dcl.imu).walks
    widths, state = PriorWidths(start, walks), start
    for t in (0.0, 3600.0):
        state = FilterState(Nominal.at(t, np.zeros(3), np.zeros(3), PLACE), start.cov + t * np.diag(walks), STILL)
        assert widths.test(state, NO_GATES) is state


# The random walk of the attitude: as filed while the gyro is, greater once several images say so.


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
