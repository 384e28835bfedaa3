"""Odometry integrates what it should; the drift filter is consistent and uses late images at their own time."""

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter
from scipy.stats import chi2

from gate_racer.estimation.drift import (
    STRAPDOWN_NOISE,
    SWIFT_NOISE,
    DriftEstimator,
    DriftFilter,
    DriftNoise,
)
from gate_racer.estimation.odometry import InertialOdometry
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.reprojection import GateSighting
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix

HZ = 120.0
LEVEL = (1.0, 0.0, 0.0, 0.0)


def rest(q=LEVEL, bias=(0.0, 0.0, 0.0)):
    return tuple(matrix(q).T @ [0, 0, -GRAVITY] + bias)


def stand(odometry, q=LEVEL, samples=120, bias=(0.0, 0.0, 0.0), gyro=(0.0, 0.0, 0.0), t0=0.0):
    for k in range(1, samples + 1):
        odometry.imu(Imu(t0 + k / HZ, rest(q, np.array(bias)), gyro))
    return t0 + samples / HZ


def test_rest_stays_rest_whatever_the_biases_on_the_tilted_pad():
    q = from_euler(0.0, np.radians(-17.8), np.pi)
    odometry = InertialOdometry(np.zeros(3), q)
    t = stand(odometry, q, bias=(0.1, -0.05, 0.2), gyro=(0.01, -0.02, 0.005))
    odometry.release()
    for k in range(1, 601):
        odometry.imu(Imu(t + k / HZ, rest(q, np.array([0.1, -0.05, 0.2])), (0.01, -0.02, 0.005)))
    assert np.abs(odometry.pose.p_w).max() < 1e-9 and np.abs(odometry.pose.v_w).max() < 1e-9


def test_constant_acceleration_gives_the_parabola():
    odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
    t = stand(odometry)
    odometry.release()
    for k in range(1, 121):
        odometry.imu(Imu(t + k / HZ, (2.0, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
    assert odometry.pose.p_w == pytest.approx([1.0, 0, 0], abs=0.01)
    assert odometry.pose.v_w == pytest.approx([2.0, 0, 0], abs=0.01)


def test_samples_repeated_under_a_new_stamp_change_nothing():
    """The real simulator repeats 29 % of its samples; with them or without, the true ones give the same flight."""
    ends = []
    for repeats in (True, False):
        odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
        t = stand(odometry)
        odometry.release()
        for k in range(1, 121):
            true = k if k % 3 else k - 1
            if repeats or k == true:
                s = true / HZ
                odometry.imu(Imu(t + k / HZ, (40 * s, 9 * np.sin(9 * s), -GRAVITY), (3 * np.sin(5 * s), s, 8 * s)))
        odometry.imu(Imu(t + 121 / HZ, (1.0, 2.0, -GRAVITY), (0.5, 0.5, 0.5)))
        ends.append(odometry.pose)
    with_repeats, without = ends
    for a, b in zip(
        (with_repeats.p_w, with_repeats.v_w, with_repeats.q_wb), (without.p_w, without.v_w, without.q_wb), strict=True
    ):
        assert a == pytest.approx(b, abs=1e-12)


def test_readings_that_stand_still_are_believed():
    """Constant for long, then a step: the step does not reach back over the constant time."""
    odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
    t = stand(odometry)
    odometry.release()
    for k in range(1, 121):
        odometry.imu(Imu(t + k / HZ, rest(), (0.0, 0.0, 0.0)))
    odometry.imu(Imu(t + 121 / HZ, (10.0, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
    assert odometry.pose.v_w[0] < 10.0 * 0.05


def test_a_steady_turn_flies_a_circle():
    """Specific force towards the centre, body turning with the velocity: back at the start after one turn."""
    speed, omega = 5.0, 2.0
    odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
    t = stand(odometry)
    odometry.release()
    odometry.pose = type(odometry.pose)(
        t, np.zeros(3), np.array([speed, 0, 0]), np.array(LEVEL), np.array([0, 0, omega])
    )
    turn = 2 * np.pi / omega
    for k in range(1, round(turn * HZ) + 1):
        odometry.imu(Imu(t + k / HZ, (0.0, speed * omega, -GRAVITY), (0.0, 0.0, omega)))
    assert np.linalg.norm(odometry.pose.p_w) < 0.1


def test_attitude_telemetry_draws_a_wrong_attitude_back():
    odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
    t = stand(odometry)
    odometry.release()
    for k in range(1, 61):
        odometry.imu(Imu(t + k / HZ, rest(), (0.02, 0.0, 0.0)))  # a gyro bias that rest has not shown
        odometry.attitude(Attitude(t + k / HZ, LEVEL))
    free = 0.02 * 60 / HZ
    assert abs(odometry.pose.q_wb[1]) < 0.1 * free


def test_the_past_is_interpolated_and_the_far_past_is_not_known():
    odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
    t = stand(odometry)
    odometry.release()
    for k in range(1, 61):
        odometry.imu(Imu(t + k / HZ, (1.0, 0.0, -GRAVITY), (0.0, 0.0, 1.0)))
    past = odometry.at(t + 0.3)
    assert past is not None
    assert past.v_w[0] == pytest.approx(0.3 * np.sinc(0.3 / np.pi / 1), abs=0.02)
    assert odometry.at(t - 2.0) is None and odometry.at(t + 5.0) is None


def test_swifts_filter_is_its_equations():
    """Equations 12 to 14 written out for one axis: F P F' + Q with Q = diag(0.05, 0.1) per step, then the update."""
    drift = DriftFilter(SWIFT_NOISE)
    drift.begin(0.0)
    dt, r = 1 / 30, 0.04
    drift.update(dt, np.array([[0.5, 0.0, 0.0]]), np.array([np.eye(3) * r]))
    P = np.diag([0.05, 0.1])
    K = P[:, 0] / (P[0, 0] + r)
    assert drift.x[[0, 3]] == pytest.approx(K * 0.5)
    assert drift.P[np.ix_([0, 3], [0, 3])] == pytest.approx(P - np.outer(K, P[0]), abs=1e-12)


def test_prediction_composes():
    noise = DriftNoise(acceleration_psd=0.3, first_p=0.1, first_v=0.2)
    drift = DriftFilter(noise)
    drift.begin(0.0)
    whole = drift.at(0.4)[1]
    drift.predict(0.1)
    drift.predict(0.3)
    assert drift.at(0.4)[1] == pytest.approx(whole)


def test_the_drift_filter_is_consistent():
    """NEES over many runs lies in its 95 % band when truth follows the model."""
    rng, dt, nees = np.random.default_rng(3), 1 / 30, []
    for _ in range(60):
        truth = np.concatenate([rng.normal(0, 0.03, 3), rng.normal(0, 0.02, 3)])
        drift = DriftFilter(STRAPDOWN_NOISE)
        drift.begin(0.0)
        L = np.linalg.cholesky(STRAPDOWN_NOISE.covariance(dt) + 1e-15 * np.eye(6))
        for k in range(1, 61):
            truth = np.concatenate([truth[:3] + dt * truth[3:], truth[3:]]) + L @ rng.normal(size=6)
            if k % 3 == 0:
                R = np.diag(rng.uniform(0.01, 0.1, 3) ** 2)
                drift.update(k * dt, (truth[:3] + np.sqrt(np.diag(R)) * rng.normal(size=3))[None], R[None])
        error = drift.at(60 * dt)[0] - truth
        nees.append(error @ np.linalg.solve(drift.at(60 * dt)[1], error))
    low, high = chi2.ppf([0.025, 0.975], 6 * len(nees)) / len(nees)
    assert low < np.mean(nees) < high


def test_between_images_the_estimate_moves_by_the_drift_s_velocity_and_the_filter_stays():
    drift = DriftFilter(SWIFT_NOISE)
    drift.begin(0.0)
    drift.update(1 / 30, np.array([[0.5, 0.0, 0.0]]), np.array([np.eye(3) * 0.04]))
    drift.update(2 / 30, np.array([[0.6, 0.0, 0.0]]), np.array([np.eye(3) * 0.04]))
    before = drift.x.copy()
    assert drift.at(2 / 30 + 0.02)[0][:3] == pytest.approx(before[:3] + 0.02 * before[3:])
    assert drift.at(2 / 30 + 1e-6)[1] == pytest.approx(drift.P, abs=1e-6)  # no step of Q without an image
    assert np.array_equal(drift.x, before) and drift.t == 2 / 30


def test_the_drift_filter_agrees_with_filterpys():
    """One run of stacked updates at uneven times, each filter with its own algebra."""
    rng, ours, t = np.random.default_rng(7), DriftFilter(STRAPDOWN_NOISE), 0.0
    ours.begin(0.0)
    theirs = KalmanFilter(dim_x=6, dim_z=3)
    theirs.x = np.zeros(6)
    theirs.P = np.diag([STRAPDOWN_NOISE.first_p**2] * 3 + [STRAPDOWN_NOISE.first_v**2] * 3)
    for _ in range(100):
        dt, n = rng.uniform(0.02, 0.2), rng.integers(1, 4)
        t += dt
        drifts = rng.normal(0, 0.3, (n, 3))
        covariances = np.array([A @ A.T + 1e-3 * np.eye(3) for A in 0.1 * rng.normal(size=(n, 3, 3))])
        ours.update(t, drifts, covariances)
        F = np.eye(6)
        F[:3, 3:] = dt * np.eye(3)
        theirs.predict(F=F, Q=STRAPDOWN_NOISE.covariance(dt))
        for drift, R in zip(drifts, covariances, strict=True):  # one by one is the same as stacked
            theirs.update(drift, R=R, H=np.eye(3, 6))
        assert ours.x == pytest.approx(theirs.x, abs=1e-9)
        assert pytest.approx(theirs.P, abs=1e-12) == ours.P


def fix(p, sigma):
    """A sighting of which the drift filter uses the position alone."""
    return GateSighting(0.0, 0, np.array(p), np.eye(3) * sigma**2, np.zeros((3, 3)), 1.0, None, None, None, None)


def see(estimator, stamp, fix):
    """Return the number of fixes that an estimator uses of an image with one gate."""
    exposure = estimator.predict(stamp)
    return 0 if exposure is None else estimator.correct(exposure, [fix], 0)


def moving_estimator(drift_velocity):
    """An estimator whose IMU lies: the vehicle really stands still."""
    estimator = DriftEstimator(Start((0.0, 0.0, 0.0), 0.0), STRAPDOWN_NOISE)
    t = stand(estimator.odometry)
    estimator.release()
    for k in range(1, 121):
        estimator.imu(Imu(t + k / HZ, (drift_velocity, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
    return estimator, t + 1.0


def test_gates_take_the_drift_away():
    estimator, t = moving_estimator(0.2)
    assert estimator.state().p_wb[0] > 0.08
    for back in (0.4, 0.2, 0.1, 0.05):
        assert see(estimator, t - back, fix(np.zeros(3), 0.01)) == 1
    assert abs(estimator.state().p_wb[0]) < 0.02


def test_a_late_image_is_used_at_its_own_time():
    """A sighting that agrees with the odometry of then must not move the estimate of now."""
    estimator, t = moving_estimator(0.2)
    past = estimator.odometry.at(t - 0.3)
    before = estimator.state().p_wb
    see(estimator, t - 0.3, fix(past.p_w, 0.01))
    assert estimator.state().p_wb == pytest.approx(before, abs=2e-3)


def test_an_image_older_than_the_last_or_from_the_future_is_counted_and_left():
    estimator, t = moving_estimator(0.0)
    see(estimator, t - 0.1, fix(np.zeros(3), 0.01))
    for when in (t - 0.2, t + 10.0):
        assert see(estimator, when, fix(np.zeros(3), 0.01)) == 0
    assert estimator.health.images_late == 2


def test_the_estimate_is_odometry_minus_drift():
    estimator, _ = moving_estimator(0.0)
    estimator.drift.x = np.array([1.0, 2.0, 3.0, 0.0, 0.0, 0.0])
    assert estimator.state().p_wb == pytest.approx(estimator.odometry.pose.p_w - [1, 2, 3])
