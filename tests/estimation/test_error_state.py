"""The error-state filter's equations: its Jacobians are those of the differences, and it is consistent."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gate_racer.model import kalman
from gate_racer.model.imu import ImuReading
from gate_racer.model.kalman import FilterState, propagate, update
from gate_racer.model.reprojection import CameraContext, Measured, calibrated, mounted, project, tempered, turns
from gate_racer.model.states import (
    B_A,
    B_G,
    CENTRE,
    DELAY,
    HEADING,
    LEAN,
    MOVING,
    NORTH,
    POSE,
    ROLL,
    THETA,
    TILT,
    YAW,
    N,
    Noise,
    Nominal,
    column,
    pad_attitude,
    varied,
)
from gate_racer.model.strapdown import integrated, propagated, transition
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import conjugate, exp, matrix, normalised, product
from gate_racer.vehicle.statistics import mahalanobis2
from gate_racer.vehicle.uncertainty import Doubt
from tests.estimation.flying import FIRST, HZ, PAD, SURE, assert_consistent, before_gate, corrected, looking, sighted

# Every state by its own prior, and those that have none in the table by one that is usual in flight.
SIGMA = column(
    "prior",
    varied(
        p={"prior": 0.05}, v={"prior": 0.1}, theta={"prior": 0.01},
        edge_px={"prior": 0.5}, gates={"prior": 0.1}, edge_m={"prior": 0.01}, turn={"prior": 0.02},
    ),
)  # fmt: skip


STILL = ImuReading(0.0, np.zeros(3), np.zeros(3))


def placed(x, variance):
    """A filter at x, unsure of its place by `variance` (m^2), and sure of its camera and map."""
    return FilterState(x, np.diag([variance] * 3 + [1e-4 if variance < 1 else 1e-6] * 12 + [0.0] * (N - 15)), STILL)


def differences(f, h=1e-6):
    """Jacobian of f(error) by central differences."""
    return np.stack([(f(h * row) - f(-h * row)) / (2 * h) for row in np.eye(N)], -1)


def some_state(rng):
    """Anywhere, at any attitude, with errors of every kind."""
    x = Nominal.at(0.0, rng.normal(size=3), 10 * rng.normal(size=3), normalised(rng.normal(size=4)))
    return x.plus(SIGMA * rng.normal(size=N))


def readings(rng):
    """Two IMU readings of a vehicle that pushes and turns hard."""
    a = ImuReading(0.0, 20 * rng.normal(size=3), 8 * rng.normal(size=3))
    return a, ImuReading(1 / HZ, a.accel + rng.normal(size=3), a.gyro + rng.normal(size=3), 1 / HZ)


@pytest.mark.parametrize("seed", range(5))
def test_the_transition_is_the_derivative_of_the_integration(seed):
    rng = np.random.default_rng(seed)
    x, (a, b) = some_state(rng), readings(rng)
    end = integrated(x, a, b)
    numeric = differences(lambda e: integrated(x.plus(e), a, b).minus(end))
    F = np.eye(N)
    F[POSE, MOVING] = transition(x, a, b)
    assert pytest.approx(numeric, abs=2e-6) == F


def test_a_force_behind_its_stamp_is_turned_by_the_mean_rate_over_its_age():
    """Rolling from side to side under a thrust that changes, with the accelerometer of `archer`, 22.5 ms late."""
    age_s, steps = 0.0225, 152

    def roll(t):
        return 1.2 * np.sin(7.5 * t)

    def force(t):
        return np.stack([0.0 * t, 0.0 * t, -20.0 - 15.0 * np.sin(4.4 * t)], axis=-1)

    def reading(t):
        return ImuReading(t, force(t - age_s), np.array([9.0 * np.cos(7.5 * t), 0.0, 0.0]), 2.0 / steps)

    x = Nominal.at(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), accel_delay=age_s)
    for a, b in pairwise(np.linspace(0.0, 2.0, steps + 1).tolist()):
        x = integrated(x, reading(a), reading(b))
    fine = np.linspace(0.0, 2.0, 20001)
    down = force(fine)[:, 2]
    true = [np.trapezoid(-np.sin(roll(fine)) * down, fine), np.trapezoid(np.cos(roll(fine)) * down + GRAVITY, fine)]
    assert np.linalg.norm(x.v_w[1:] - true) < 0.15


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_has_the_jacobian_of_its_differences(seed, vq1, dcl):
    rng = np.random.default_rng(seed)
    camera = replace(dcl.camera, p_bc_m=tuple(rng.normal(0, 0.2, 3)), k1=-0.1, k2=0.02)
    context = CameraContext(camera, rng.normal(0, 3, 3), 0.003, SURE, PAD)
    x = before_gate(vq1.gates[0], rng).having(
        yaw=0.03, roll=-0.02, focal=0.02, centre=[3.0, -2.0], radial=[-0.03, 0.01], arm=rng.normal(0, 0.03, 3)
    )
    corners_w = vq1.gates[0].corners()[None]
    numeric = differences(lambda e: project(x.plus(e), context, FIRST, corners_w)[0])
    assert project(x, context, FIRST, corners_w)[1] == pytest.approx(numeric, abs=1e-5)


def test_the_errors_of_the_camera_are_the_cameras(vq1, dcl):
    """A camera with deviations projects as a nominal one with the errors that they are, and is what these calibrate it to."""
    nominal = replace(dcl.camera, yaw_deg=3.0, roll_deg=-2.0, k1=-0.05, p_bc_m=(0.3, -0.1, 0.05))
    mount = {"tilt": 0.01, "yaw": -0.02, "roll": 0.015, "arm": [0.01, 0.02, -0.03]}
    lens = {"focal": 0.02, "centre": [3.0, -2.0], "radial": [-0.03, 0.01]}
    level, corners_w = before_gate(vq1.gates[0], np.random.default_rng(1)), vq1.gates[0].corners()
    x = level.having(delay=0.0, **mount, **lens)
    camera, px = calibrated(nominal, x), project(x, looking(nominal), FIRST, corners_w[None])[0][0]
    p_wc, R_wc = camera.pose(x.p_wb, x.q_wb)
    assert camera.project((corners_w - p_wc) @ R_wc) == pytest.approx(px, abs=1e-6)
    moved = 1.02 * nominal.fx_px, nominal.cx_px + 3.0, -0.08, -0.08
    assert (camera.fx_px, camera.cx_px, camera.k1, camera.p_bc_m[1]) == pytest.approx(moved)
    level_axes = replace(dcl.camera, tilt_deg=dcl.camera.tilt_deg + 1.5, yaw_deg=1.2, roll_deg=-0.8)
    yaw, tilt, roll = np.radians([1.2, 1.5, -0.8])
    assert calibrated(dcl.camera, level.having(yaw=yaw, tilt=tilt, roll=roll)).R_bc == pytest.approx(level_axes.R_bc)


def test_a_turned_camera_is_taken_for_a_turned_body(dcl):
    """Rays of a deviating camera, read by a nominal one on a body turned so, point where they point; to first order."""
    near_axis, h = np.array([[0.02, -0.01, 1.0], [-0.01, 0.02, 1.0]]), 1e-4
    for error in (YAW, TILT, ROLL, CENTRE.start, CENTRE.start + 1):
        step = np.zeros(N)
        step[error] = h * (dcl.camera.fx_px if error in range(CENTRE.start, CENTRE.stop) else 1.0)
        x = Nominal.at(0.0, *np.zeros((2, 3)), [1.0, 0, 0, 0]).plus(step)
        points_b = 10 * near_axis @ mounted(dcl.camera, x)[0]
        turned_b = points_b @ matrix(exp(turns(dcl.camera) @ step))
        nominal = dcl.camera.project(turned_b @ dcl.camera.R_bc)
        assert nominal == pytest.approx(dcl.camera.project(10 * near_axis) + x[CENTRE], abs=1e-3 * h * dcl.camera.fx_px)


@pytest.mark.parametrize("seed", range(3))
def test_a_told_attitude_has_the_jacobian_of_its_differences(seed):
    rng = np.random.default_rng(seed)
    x = some_state(rng)
    north = exp([0.0, 0.0, x[NORTH]])
    measure, _ = kalman.attitude(product(north, product(x.q_wb, exp(x[LEAN]))), 0.0, np.zeros(3))
    assert measure(x)[0] == pytest.approx(np.zeros(3))
    assert measure(x)[1] == pytest.approx(-differences(lambda e: measure(x.plus(e))[0]), abs=1e-5)


def test_the_linear_update_is_kalmans():
    """One update with a linear measurement is the textbook's, and the covariance stays symmetric and positive."""
    rng = np.random.default_rng(2)
    A = rng.normal(size=(N, N))
    known = FilterState(some_state(rng), 1e-4 * A @ A.T, STILL)
    H, z, R = np.zeros((2, N)), np.array([0.01, -0.02]), 1e-4 * np.eye(2)
    H[0, 0], H[1, 4] = 1.0, 2.0
    after = update(known, lambda x: (z - H @ x.minus(known.x), H), R)
    K = known.cov @ H.T @ np.linalg.inv(H @ known.cov @ H.T + R)
    error = after.x.minus(known.x)
    assert error == pytest.approx(K @ z, abs=1e-9)
    P_after = known.cov - K @ H @ known.cov
    others = [i for i in range(N) if i not in range(6, 9)]  # the attitude's error is counted anew
    assert after.cov[np.ix_(others, others)] == pytest.approx(P_after[np.ix_(others, others)], abs=1e-12)
    assert (after.cov == after.cov.T).all() and np.linalg.eigvalsh(after.cov)[0] > -1e-15


def test_a_far_prior_is_brought_home_by_one_gate(vq1, dcl):
    """The iteration finds the place that a single linearisation misses, two metres off at eight metres of range."""
    gate = vq1.gates[0]
    true = before_gate(gate, np.random.default_rng(4)).having(delay=0.0, tilt=0.0)
    prior = true.having(p=true.p_wb + gate.R_wg @ [1.5, 1.0, -1.0])
    after = corrected(placed(prior, 4.0), sighted(gate, true, dcl.camera, sigma=0.1), looking(dcl.camera))
    assert np.linalg.norm(after.x.p_wb - true.p_wb) < 0.02


def test_the_filter_is_consistent(vq1, dcl):
    """The mean NEES of all states lies in its 95 % band when truth follows the model: readings, corners and all."""
    rng, gate, noise, nees = np.random.default_rng(5), vq1.gates[0], Noise(dcl.imu, known=Doubt(between=1e-9)), []
    for _ in range(40):
        true = before_gate(gate, rng).having(v=gate.R_wg @ [4.0, 0.0, 0.0], tilt=0.0, delay=0.0)
        x = true.plus(-SIGMA * rng.normal(size=N))
        still = ImuReading(0.0, matrix(true.q_wb).T @ [0, 0, -GRAVITY], np.zeros(3))
        known = FilterState(x, np.diag(SIGMA**2), still)
        for k in range(1, 25):
            a, b = replace(still, t=(k - 1) / HZ), replace(still, t=k / HZ)
            Q = noise.growth(a, b)
            unbiased = true.having(b_a=0.0, b_g=0.0)
            moved = integrated(unbiased, a, b)
            # The true biases add to both readings; what the walks did shows in the state.
            true = moved.having(b_a=true[B_A], b_g=true[B_G]).plus(np.sqrt(Q) * rng.normal(size=N))
            a, b = (ImuReading(r.t, r.accel + true[B_A], r.gyro + true[B_G]) for r in (a, b))
            known = FilterState(known.x, known.cov, a)
            known = propagate(known, integrated(known.x, a, b), b, Q)
            if k % 6 == 0:
                # Where the true delay shows as a motion.
                at = looking(dcl.camera, known.x[DELAY])
                seen = project(true, at, FIRST, gate.corners()[None])[0][0] + rng.normal(0, 0.3, (4, 2))
                known = corrected(known, replace(sighted(gate, true, dcl.camera), corners_px=seen), at)
        nees.append(mahalanobis2(true.minus(known.x), known.cov))
    assert_consistent(nees, N)


def corners_of_one_gate(r, sigma_px):
    """Its eight coordinates, each of which measures one state."""
    every = np.ones((1, 4), bool)
    return Measured(
        FIRST, np.zeros((1, 4, 2)), np.zeros((1, 4, 3)), every, sigma_px**2 * np.eye(8), None, r, np.eye(8, N)
    )


@pytest.mark.parametrize("sigma, wrong", [(3.0, 4.0), (1.0, 1.2)], ids=["a first sighting", "a later one"])
def test_the_filter_is_consistent_where_some_sightings_are_grossly_wrong(sigma, wrong):
    """One in 25 gates errs by 2 px and all others by 0.2 px; `wrong` is the least NEES of who takes all for good."""
    rng, cov, squares, naive = np.random.default_rng(0), sigma**2 * np.eye(N), [], []
    for gross in rng.random(2000) < 0.04:
        true = rng.normal(0, sigma, 8)
        seen = corners_of_one_gate(true + rng.normal(0, np.hypot(0.2, 2.0 * gross), 8), 0.2)
        for R, into in ((tempered(cov, seen, 0.04, 2.0).R, squares), (seen.R, naive)):
            gain = sigma**2 * np.linalg.inv(sigma**2 * np.eye(8) + R)
            error = true - gain @ seen.r
            into.append(error @ np.linalg.solve((np.eye(8) - gain) * sigma**2, error) / 8)
    assert 0.8 < np.mean(squares) < 1.2 and np.mean(naive) > wrong


def test_a_sighting_as_expected_keeps_its_covariance_and_a_gross_one_counts_little():
    cov = 0.01**2 * np.eye(N)
    expected, gross = (tempered(cov, corners_of_one_gate(r * np.ones(8), 0.2), 0.04, 2.0).R for r in (0.1, 3.0))
    assert expected == pytest.approx(0.2**2 * np.eye(8), rel=1e-6) and gross == pytest.approx(4.04 * np.eye(8))


def test_the_covariance_is_carried_as_by_the_whole_transition():
    """F P F' + Q with the dense F (N, N), to rounding."""
    rng = np.random.default_rng(7)
    x, A, (a, b) = some_state(rng), rng.normal(size=(N, N)), readings(rng)
    cov, q, F = A @ A.T, rng.random(N), np.eye(N)
    F[POSE, MOVING] = transition(x, a, b)
    assert propagated(transition(x, a, b), cov, q) == pytest.approx(F @ cov @ F.T + np.diag(q), rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("shares", [(0.5,), (0.1,), (0.2, 0.3, 0.9)], ids=str)
def test_the_noise_of_an_interval_does_not_depend_on_cuts(dcl, shares):
    """An image exposed between two samples adds no information about the IMU, and takes none."""
    noise, (a, b) = Noise(dcl.imu), readings(np.random.default_rng(3))
    cuts = [a, *(a.until(b, share * b.t) for share in shares), b]
    parts = sum(noise.growth(*pair) for pair in pairwise(cuts))
    assert parts == pytest.approx(noise.growth(a, b), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_pads_covariance_is_of_the_world_at_any_attitude(dcl, seed):
    """Yaw is as uncertain about the vertical, and tilt about the level axes, as the pad is, on any slope."""
    q_wb = normalised(np.random.default_rng(seed).normal(size=4))
    noise = Noise(dcl.imu, known=Doubt(misaligned=1e-9))
    cov = pad_attitude(np.zeros((N, N)), noise, q_wb)
    cov_b = cov[THETA, THETA]
    for axis, sigma in zip(np.eye(3), (noise.known.pad_lean, noise.known.pad_lean, noise.known.pad_yaw), strict=True):
        turned = product(product(conjugate(q_wb), exp(1e-3 * axis)), q_wb)  # that turn of the world, about the own axes
        axis_b = 2e3 * np.array(turned[1:])
        assert axis_b @ cov_b @ axis_b == pytest.approx(sigma**2, rel=1e-5)
    of_heading = axis_b @ cov[THETA, HEADING]
    assert of_heading == pytest.approx(cov[HEADING, HEADING], rel=1e-5), "an error of yaw is one of heading"


def test_a_lens_that_folds_the_image_is_not_calibrated(dcl):
    x = Nominal.at(0.0, *np.zeros((2, 3)), [1.0, 0, 0, 0], radial=[-0.6, 0.0], focal=0.01)
    camera = calibrated(dcl.camera, x)
    assert (camera.k1, camera.k2) == (dcl.camera.k1, dcl.camera.k2)
    assert camera.fx_px == pytest.approx(1.01 * dcl.camera.fx_px)
