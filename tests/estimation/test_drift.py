"""Odometry integrates what it should; the drift filters are the published ones, consistent, and use late images at their time."""

from dataclasses import replace

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter

from gate_racer.estimation.drift import STRAPDOWN_NOISE, SWIFT_NOISE, DriftEstimator, DriftFilter, PoseFix
from gate_racer.estimation.odometry import InertialOdometry
from gate_racer.link.messages import Imu
from gate_racer.model.reprojection import GateSighting
from gate_racer.model.states import Nominal
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import G_W, GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix, product
from gate_racer.vehicle.statistics import mahalanobis2
from tests.estimation.flying import assert_consistent, sighted

HZ = 120.0
LEVEL = (1.0, 0.0, 0.0, 0.0)


def fed(odometry, t, force=(0.0, 0.0, -GRAVITY), gyro=(0.0, 0.0, 0.0), samples=120):
    """Return the time after samples of the same readings."""
    for k in range(1, samples + 1):
        odometry.imu(Imu(t + k / HZ, tuple(force), gyro))
    return t + samples / HZ


def released_odometry():
    odometry = InertialOdometry(np.zeros(3), np.array(LEVEL))
    t = fed(odometry, 0.0)
    odometry.release()
    return odometry, t


def test_rest_stays_rest_whatever_biases_and_pad():
    q = from_euler(0.0, np.radians(-17.8), np.pi)
    readings = matrix(q).T @ -G_W + [0.1, -0.05, 0.2], (0.01, -0.02, 0.005)
    odometry = InertialOdometry(np.zeros(3), q)
    t = fed(odometry, 0.0, *readings)
    odometry.release()
    fed(odometry, t, *readings, samples=600)
    assert np.abs(odometry.pose.p_w).max() < 1e-9 and np.abs(odometry.pose.v_w).max() < 1e-9


def test_constant_acceleration_gives_the_parabola_and_a_steady_turn_a_circle():
    odometry, t = released_odometry()
    fed(odometry, t, (2.0, 0.0, -GRAVITY))
    assert odometry.pose.p_w == pytest.approx([1.0, 0, 0], abs=0.01)
    assert odometry.pose.v_w == pytest.approx([2.0, 0, 0], abs=0.01)
    # Specific force towards the centre, body turning with the velocity: back at the start after one turn.
    speed, omega, (odometry, t) = 5.0, 2.0, released_odometry()
    odometry.pose = replace(odometry.pose, v_w=np.array([speed, 0, 0]), omega_b=np.array([0, 0, omega]))
    fed(odometry, t, (0.0, speed * omega, -GRAVITY), (0.0, 0.0, omega), round(2 * np.pi / omega * HZ))
    assert np.linalg.norm(odometry.pose.p_w) < 0.1


def test_samples_repeated_under_a_new_stamp_change_nothing():
    """The real simulator repeats 29 % of its samples; with them or without, the true ones give the same flight."""
    ends = []
    for repeats in (True, False):
        odometry, t = released_odometry()
        for k in range(1, 121):
            true = k if k % 3 else k - 1
            if repeats or k == true:
                s = true / HZ
                odometry.imu(Imu(t + k / HZ, (40 * s, 9 * np.sin(9 * s), -GRAVITY), (3 * np.sin(5 * s), s, 8 * s)))
        odometry.imu(Imu(t + 121 / HZ, (1.0, 2.0, -GRAVITY), (0.5, 0.5, 0.5)))
        ends.append(odometry.pose)
    for name in ("p_w", "v_w", "q_wb"):
        assert getattr(ends[0], name) == pytest.approx(getattr(ends[1], name), abs=1e-12)


def test_the_past_is_interpolated_and_the_far_past_is_not_known():
    odometry, t = released_odometry()
    fed(odometry, t, (1.0, 0.0, -GRAVITY), (0.0, 0.0, 1.0), 60)
    past = odometry.pose_at(t + 0.3)
    assert past is not None
    assert past.v_w[0] == pytest.approx(0.3 * np.sinc(0.3 / np.pi / 1), abs=0.02)
    assert odometry.pose_at(t - 2.0) is None and odometry.pose_at(t + 5.0) is None


PUBLISHED = {  # noise, Q of a prediction by dt, variance at the start
    "paper": (SWIFT_NOISE, lambda dt: np.diag([0.05] * 3 + [0.1] * 3), [0.0, 0.0]),
    "strap-down": (STRAPDOWN_NOISE, STRAPDOWN_NOISE.covariance, [0.03**2, 0.02**2]),
}


@pytest.mark.parametrize(("noise", "Q", "first"), PUBLISHED.values(), ids=PUBLISHED)
def test_the_drift_filters_are_filterpys(noise, Q, first):
    """Over images with up to three gates, images without gates, and stretches without images; eq. (13)."""
    rng, ours, theirs = np.random.default_rng(8), DriftFilter(noise), KalmanFilter(dim_x=6, dim_z=3)
    ours.t = 0.0
    theirs.x, theirs.P, last = np.zeros(6), np.kron(np.diag(first), np.eye(3)), 0.0
    for t in np.arange(1, 240) / 30:
        if 3.0 < t < 3.9:  # nothing comes from the camera
            continue
        dt = t - last
        theirs.predict(F=np.kron(np.array([[1.0, dt], [0.0, 1.0]]), np.eye(3)), Q=Q(dt))
        ours.predict(t)
        if not 5.0 < t < 6.2:  # images without gates
            drifts = rng.normal(0, 0.3, (rng.integers(1, 4), 3))
            covariances = np.array([A @ A.T + 1e-3 * np.eye(3) for A in 0.1 * rng.normal(size=(len(drifts), 3, 3))])
            ours.update(t, drifts, covariances)
            for drift, R in zip(drifts, covariances, strict=True):  # one by one is the same as stacked
                theirs.update(drift, R=R, H=np.eye(3, 6))
        last = t
        assert ours.x == pytest.approx(theirs.x, abs=1e-9)
        assert pytest.approx(theirs.P, abs=1e-9) == ours.P


def test_the_drift_filter_is_consistent():
    """NEES over many runs lies in its 95 % band when truth follows the model."""
    rng, dt, nees = np.random.default_rng(3), 1 / 30, []
    for _ in range(60):
        truth = np.concatenate([rng.normal(0, 0.03, 3), rng.normal(0, 0.02, 3)])
        drift = DriftFilter(STRAPDOWN_NOISE)
        drift.t = 0.0
        L = np.linalg.cholesky(STRAPDOWN_NOISE.covariance(dt) + 1e-15 * np.eye(6))
        for k in range(1, 61):
            truth = np.concatenate([truth[:3] + dt * truth[3:], truth[3:]]) + L @ rng.normal(size=6)
            if k % 3 == 0:
                R = np.diag(rng.uniform(0.01, 0.1, 3) ** 2)
                drift.update(k * dt, (truth[:3] + np.sqrt(np.diag(R)) * rng.normal(size=3))[None], R[None])
        x, cov = drift.at(60 * dt)
        nees.append(mahalanobis2(x - truth, cov))
    assert_consistent(nees, 6)


def test_between_images_the_drift_moves_by_its_velocity():
    drift = DriftFilter(SWIFT_NOISE)
    drift.t = 0.0
    drift.update(1 / 30, np.array([[0.5, 0.0, 0.0]]), np.array([np.eye(3) * 0.04]))
    drift.update(2 / 30, np.array([[0.6, 0.0, 0.0]]), np.array([np.eye(3) * 0.04]))
    before = drift.x.copy()
    assert drift.at(2 / 30 + 0.02)[0][:3] == pytest.approx(before[:3] + 0.02 * before[3:])
    assert drift.at(2 / 30 + 1e-6)[1] == pytest.approx(drift.P, abs=1e-6)  # no step of Q without an image
    assert np.array_equal(drift.x, before) and drift.t == 2 / 30


def fix(p, sigma):
    """A sighting of which the drift filter uses the position alone."""
    return GateSighting(0.0, 0, np.array(p), np.eye(3) * sigma**2, np.zeros((3, 3)), 1.0, None, None, None, None)


def see(estimator, stamp, fix):
    """Return the number of fixes that an estimator uses of an image with one gate."""
    exposure = estimator.predict(stamp)
    return 0 if exposure is None else estimator.correct(exposure, [fix], 0)


def moving_estimator(force):
    """An estimator whose IMU lies: the vehicle really stands still."""
    estimator = DriftEstimator(Start((0.0, 0.0, 0.0), 0.0), STRAPDOWN_NOISE)
    t = fed(estimator, 0.0)
    estimator.release()
    return estimator, fed(estimator, t, (force, 0.0, -GRAVITY))


def test_gates_take_the_drift_away():
    estimator, t = moving_estimator(0.2)
    assert estimator.state().p_wb[0] > 0.08
    for back in (0.4, 0.2, 0.1, 0.05):
        assert see(estimator, t - back, fix(np.zeros(3), 0.01)) == 1
    assert abs(estimator.state().p_wb[0]) < 0.02


def test_a_late_image_is_used_at_its_own_time():
    """A sighting that agrees with the odometry of then must not move the estimate of now."""
    estimator, t = moving_estimator(0.2)
    past = estimator.pose_at(t - 0.3)
    before = estimator.state().p_wb
    see(estimator, t - 0.3, fix(past.p_w, 0.01))
    assert estimator.state().p_wb == pytest.approx(before, abs=2e-3)


def placed(p_wb, q_wb):
    return Nominal.at(0.0, p_wb, np.zeros(3), q_wb)


@pytest.mark.parametrize(
    "lens", [{}, {"k1": -0.1}, {"k1": -0.2, "k3": -0.01, "p1": 1e-3}, {"lens_model": "equidistant"}]
)
def test_a_pose_fix_is_where_all_four_corners_are_seen_from(vq1, dcl, lens):
    camera, gate = replace(dcl.camera, **lens), vq1.gates[0]
    p_wb, q_wb = gate.p_wg + gate.R_wg @ [-7.0, 1.0, 0.5], product(gate.q_wg, from_euler(0.2, -0.3, 0.1))
    sighting, fix = sighted(gate, placed(p_wb, q_wb), camera), PoseFix(camera, np.random.default_rng(0))
    assert fix(sighting, q_wb)[0] == pytest.approx(p_wb, abs=1e-3)
    assert fix(replace(sighting, visible=np.array([True, True, True, False])), q_wb) is None


def test_a_pose_fix_errs_as_its_sampled_covariance_says(vq1, dcl):
    camera, gate, rng = dcl.camera, vq1.gates[0], np.random.default_rng(5)
    fix, nees = PoseFix(camera, np.random.default_rng(0)), []
    for _ in range(300):
        p_wb = gate.p_wg + gate.R_wg @ (np.array([-6.0, 0.0, 0.0]) + rng.uniform(-1, 1, 3))
        q_wb = product(gate.q_wg, from_euler(*rng.normal(0, 0.1, 3)))
        found, cov = fix(sighted(gate, placed(p_wb, q_wb), camera, rng, 0.4), q_wb)
        nees.append(mahalanobis2(found - p_wb, cov) / 3)
    assert 0.7 < np.mean(nees) < 1.3
