"""Estimators in flight: what helps, what is late, wrong or missing, and what a link can bring."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.kalman import propagate
from gate_racer.model.states import DELAY
from gate_racer.perception.detection import Detection
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2
from tests.estimation.flying import HZ, NAN, Flight


@pytest.fixture
def flight(vq1, dcl):
    return Flight(vq1, dcl)


def test_rest_on_the_tilted_pad_tells_the_biases(vq1, dcl):
    flight = Flight(vq1, dcl, bias=(0.04, -0.03, 0.02), gyro_bias=(0.004, -0.003, 0.002))
    flight.fly(1.0, every=0)
    assert flight.error < 0.02
    assert flight.turned < 5e-3  # the pad is known no better: tilt and accelerometer bias look alike
    assert np.linalg.norm(flight.estimator.state().omega_b) < 1e-3


@pytest.mark.parametrize("name", ["eskf", "drift"])
def test_gates_hold_the_position_that_a_wrong_bias_would_lose(name, vq1, dcl):
    flight, blind = (Flight(vq1, dcl, name) for _ in range(2))
    for one, every in ((flight, 4), (blind, 0)):
        one.a_b, one.bias = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.05, 0.05])  # not there at rest
        one.fly(1.5, every=every)
    assert flight.error < 0.06 and flight.estimator.health.gates_used > 30
    assert blind.error > 0.07


@pytest.mark.parametrize("name", ["eskf", "drift"])
def test_a_late_image_counts_at_its_own_time(name, vq1, dcl):
    """Images of 50 ms ago, at 4 m/s: 0.2 m if used at arrival."""
    flight, queue = Flight(vq1, dcl, name), []
    flight.a_b = np.array([4.0, 0.0, 0.0])
    for _ in range(150):
        flight.tick()
        if flight.k % 4 == 0:
            queue.append((flight.k, flight.t, flight.detections()))
        if queue and queue[0][0] == flight.k - 6:
            flight.look(*queue.pop(0)[1:])
    assert flight.estimator.health.gates_used > 25 and flight.error < 0.05


@pytest.mark.parametrize("name", ESTIMATORS)
def test_samples_repeated_under_new_stamps_change_nothing(name, vq1, dcl):
    """The real simulator repeats 29 % of its samples; with them or without, the true ones give the same flight."""
    ends = []
    for repeats in (True, False):
        flight = Flight(vq1, dcl, name)
        for k in range(1, 122):
            true = k if k % 3 or k > 120 else k - 1
            if repeats or k == true:
                s = true / HZ
                force = matrix(flight.q).T @ [0, 0, -GRAVITY] + [10 * s, 4 * np.sin(9 * s), 0.0]
                gyro = 0.3 * np.sin(5 * s), 0.1 * s, 0.8 * s
                flight.estimator.imu(Imu(flight.t + k / HZ, tuple(force.tolist()), gyro))
        ends.append(flight.estimator.state())
    for field in ("p_wb", "v_w", "q_wb"):
        assert getattr(ends[0], field) == pytest.approx(getattr(ends[1], field), abs=1e-3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_attitude_telemetry_is_not_needed_but_used(name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.gyro_bias = np.array([0.004, 0.004, 0.004])  # not there at rest: 7 mrad in a second
    for _ in range(120):
        flight.tick()
        assert flight.estimator.attitude(Attitude(flight.t, tuple(flight.q)))
        if flight.k % 4 == 0:
            flight.look()
    assert flight.turned < 3e-3


def test_gates_bring_back_a_pose_that_the_gyro_has_lost(dcl):
    """Twelve degrees wrong without a gate in view: a wider position alone does not fit the gates again."""
    flight = Flight(load_track("vq2"), dcl)
    flight.fly(0.5)
    flight.gyro_bias = np.array([0.3, 0.3, 0.1])
    flight.fly(0.5, every=0)
    flight.gyro_bias = np.zeros(3)
    assert flight.turned > 0.2
    flight.fly(3.0)
    assert flight.turned < 0.1 and flight.error < 0.6  # 0.22 and 11 m if the position alone is doubted


def test_an_estimated_delay_of_images_that_have_not_yet_been_exposed_does_not_lock_them_out(flight):
    flight.fly(0.5)
    filter_ = flight.estimator
    filter_.propagator.correct(replace(filter_.delayed, x=filter_.delayed.x.having(delay=0.08)))
    assert flight.fly(0.5) > 0 and filter_.health.images_late == 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_told_position_is_used_and_nonsense_is_not(name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.bias = np.array([0.3, 0.0, 0.0])  # not there at rest
    for _ in range(120):
        flight.tick()
        assert flight.estimator.position(flight.t, flight.p, flight.v)
    assert flight.error < 0.02
    assert not flight.estimator.position(flight.t, flight.p * NAN, flight.v)
    assert not flight.estimator.position(flight.t - 5.0, flight.p, flight.v)
    assert flight.estimator.health.samples_refused == 2


@pytest.mark.parametrize("seen", [True, False])
def test_told_positions_do_not_blur_a_gate_out_of_sight(seen, vq1, dcl):
    """The place of a gate relative to the vehicle stays as sure as it was; by the IMU alone it would be 2 % less sure."""
    flight = Flight(vq1, dcl)
    flight.a_b = np.array([2.0, 0.0, 0.0])
    variances = []
    for k in range(300):
        flight.tick()
        flight.estimator.position(flight.t, flight.p, flight.v)
        if seen and k < 60 and k % 4 == 0:
            flight.look()
        places = (flight.estimator.gate_covariance(gate, vq1.gates[gate].p_wg) for gate in (0, 1))
        variances.append([np.linalg.eigvalsh(cov).max() for cov in places])
    assert np.array(variances[60:]) == pytest.approx(np.array(variances[60:61] * 240), rel=1e-3)


def test_the_clocks_offset_is_found(flight):
    """Stamps 15 ms late while the vehicle sways in yaw: gyro against the motion in the image."""
    for _ in range(180):
        flight.w = np.array([0.0, 0.0, 1.5 * np.cos(6 * flight.t)])
        flight.tick()
        if flight.k % 4 == 0:
            seen = flight.detections()
            later = flight.t + 0.015
        if flight.k % 4 == 3 and flight.k > 123:
            flight.look(later, seen)
    assert flight.estimator.delayed.x[DELAY] == pytest.approx(-0.015, abs=0.003) and flight.error < 0.08


def test_the_clocks_offset_stays_uncertain_where_the_rates_jump(flight):
    """Stamps 15 ms late while the vehicle jerks in pitch: constant rates do not lead back to the exposure, and that is known."""
    errors, seen = [], None
    rates = np.repeat([6.0, -6.0, 5.0, -4.0, 5.0, -6.0], [5, 7, 6, 9, 11, 8])
    for rate in rates:
        flight.w = np.array([0.0, rate, 0.0])
        flight.tick()
        if flight.k % 4 == 0:
            seen = flight.t + 0.015, flight.detections()
        if flight.k % 4 == 3 and seen is not None:
            flight.look(*seen)
            delayed = flight.estimator.delayed
            errors.append(abs(delayed.x[DELAY] + 0.015) / np.sqrt(delayed.cov[DELAY, DELAY]))
    assert max(errors) < 4.0 and flight.estimator.health.gates_refused < 0.2 * len(errors)


def test_a_long_flight_without_images_is_lost_until_a_gate_is_seen(vq1, dcl):
    flight = Flight(vq1, dcl)
    assert not flight.estimator.state().lost
    flight.bias = np.array([0.02, -0.02, 0.0])  # not there at rest
    flight.fly(12.0, every=0)
    assert flight.estimator.state().lost and flight.error > 1.0
    assert flight.fly(1.0) > 20
    state = flight.estimator.state()
    assert not state.lost and flight.error < 1.0
    assert mahalanobis2(flight.p - state.p_wb, state.cov_p) < chi2_limit(3, 0.001)


def test_a_filter_led_astray_finds_back(vq1, dcl):
    """A wrong place, held for sure: gates that do not fit inflate the covariance until they do."""
    flight = Flight(vq1, dcl)
    flight.fly(0.5)
    flight.astray([0.0, 1.5, 0.0])
    assert flight.error > 1.4 and flight.look() == 0
    flight.fly(2.0)
    assert flight.error < 0.2 and flight.estimator.health.inflations > 0


def test_a_filter_whose_next_gate_contradicts_it_finds_back_by_parts_of_that(vq1, dcl):
    flight = Flight(vq1, dcl)
    flight.fly(0.5)
    flight.astray([0.0, 6 * np.sqrt(flight.estimator.delayed.cov[1, 1]), 0.0])
    for _ in range(5):
        flight.tick()
        shown = np.arange(4) < 2
        flight.look(detections=[Detection.partly(flight.detections()[0].corners_px, shown, shown, 0.3, 0.9)])
    assert flight.estimator.health.inflations > 0 and flight.estimator.health.gates_used > 15


@pytest.mark.parametrize("corners", [1, 2])
def test_parts_of_openings_that_nothing_explains_inflate_nothing(corners, vq1, dcl):
    """A corner at the image's edge fits many places: that it fits none is no sign that the filter is lost."""
    flight = Flight(vq1, dcl)
    flight.fly(0.5)
    shown = np.arange(4) < corners
    astray = Detection.partly(flight.detections()[0].corners_px + 60.0, shown, shown, 0.3, 0.9)
    before = flight.estimator.state()
    flight.fly(0.8, detections=[astray])
    after = flight.estimator.state()
    assert flight.estimator.health.inflations == 0
    assert np.sqrt(np.diag(after.cov)[3:6]).max() < np.sqrt(np.diag(before.cov)[3:6]).max() + 0.05


def test_a_gap_is_flown_through_and_counted(flight):
    flight.a_b = np.array([1.0, 0.0, 0.0])
    flight.fly(0.5)
    for _ in range(18):  # 150 ms of silence
        a_w = matrix(flight.q) @ flight.a_b
        flight.p, flight.v = flight.p + flight.v / HZ + 0.5 * a_w / HZ**2, flight.v + a_w / HZ
        flight.k += 1
    flight.fly(0.5)
    assert flight.estimator.health.gaps == 1 and flight.error < 0.05


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_samples_at_rest_are_no_repeats(name, vq1, dcl):
    """Equal samples at rest without noise are readings: the motion after them is integrated over its own step only."""
    flight = Flight(vq1, dcl, name)
    for _ in range(11):
        flight.tick()
    flight.w = np.array([0.0, 3.0, 0.0])
    flight.tick()
    assert flight.turned < 1e-6


@pytest.mark.parametrize("pitch_deg", [17.8, -17.8, 40.0])
def test_roll_and_pitch_at_rest_are_gravitys_and_not_the_files(pitch_deg, vq1, dcl):
    """The file's tilt was errors to 3 deg: a pad pitched by 17.8 deg left a bias of the accelerometer that is none."""
    track = replace(vq1, start=replace(vq1.start, pitch_deg=vq1.start.pitch_deg + pitch_deg, roll_deg=5.0))
    flight = Flight(track, dcl, filed=vq1)
    assert flight.turned < 2e-3
    flight.fly(1.0, every=0)
    assert flight.error < 0.02


def test_the_covariance_of_the_present_is_that_of_the_steps(flight):
    """In one stride from the delayed state, while the vehicle sways: the turn between samples is not known to an arc."""
    for _ in range(40):
        flight.w = np.array([4.0 * np.cos(20 * flight.t), 0.0, 0.0])
        flight.tick()
    estimator, delayed = flight.estimator, flight.estimator.delayed
    for x, reading in estimator.propagator.since:
        delayed = propagate(delayed, x, reading, estimator.noise.growth(delayed.reading, reading))
    stepwise, stride = (np.sqrt(np.diag(cov)[6:9]) for cov in (delayed.cov, estimator.state().cov))
    assert stride == pytest.approx(np.hypot(stepwise, estimator.noise.known.misaligned), rel=0.2)
