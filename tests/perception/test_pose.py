"""Laws of the pose: exact in, exact out; the covariance tells the truth; the Jacobians are the derivatives."""

import cv2
import numpy as np
import pytest
from detections import NEES_BAND, nees
from drawing import CAMERA, View, corners_px, square_gate
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.perception.pose import both_poses, gate_pose, ippe, locate_camera, ray_fit, rays, residual
from gate_racer.vehicle.rotation import exp, matrix, product
from tests.estimation.flying import assert_consistent

RANGES = st.floats(2.5, 40.0)
ANGLES = st.floats(-40.0, 40.0)


def scene(range_m, yaw_deg, roll=0.0):
    """Gate, p_wb, q_wb, R_wc and the exact corners of an opening straight ahead."""
    gate = square_gate(x=1.0, y=-2.0, z=3.0, yaw_deg=yaw_deg)
    view = View(gate.p_wg - np.array([range_m, 0.1 * range_m, -0.05 * range_m]), gate, roll=roll)
    return gate, *view.pose, view.R_wc, view.px()


def located(px, sigma_px, gate, R_wc, prior, sigma_rad=0.0):
    """The camera's position by the attitude, of four corners with a standard deviation of sigma_px."""
    cov_px = np.tile(sigma_px**2 * np.eye(2), (4, 1, 1))
    return locate_camera(px, cov_px, gate.corners(), R_wc, prior, np.float64(0.0), sigma_rad, CAMERA)


def nearest(px, gate, R_cg):
    """The pose of an opening whose rotation is the nearer of both to R_cg."""
    poses = both_poses(px, gate.opening_m, CAMERA)
    return max(poses, key=lambda pose: np.trace(R_cg.T @ pose.R_cg))


@given(RANGES, ANGLES, st.floats(-1.0, 1.0))
def test_exact_corners_give_the_exact_pose_and_with_the_attitude_the_exact_position(range_m, yaw_deg, roll):
    gate, p_wb, _, R_wc, px = scene(range_m, yaw_deg, roll)
    R_cg = R_wc.T @ gate.R_wg
    pose = nearest(px, gate, R_cg)
    np.testing.assert_allclose(pose.p_cg, R_wc.T @ (gate.p_wg - p_wb), atol=1e-5)
    np.testing.assert_allclose(pose.R_cg, R_cg, atol=1e-3)  # the tilt of a distant square is nearly free
    assert pose.reprojection_px < 1e-4
    gate, p_wb, _, R_wc, px = scene(range_m, yaw_deg, roll)
    start, miss = ray_fit(rays(px, CAMERA) @ R_wc.T, gate.corners(), np.ones(4))
    np.testing.assert_allclose(start, p_wb, atol=1e-6)
    assert miss < 1e-7
    np.testing.assert_allclose(located(px, 0.3, gate, R_wc, p_wb + 0.05).p_wc, p_wb, atol=1e-6)


def test_the_jacobians_are_the_derivatives():
    gate, p_wb, _, R_wc, px = scene(6.0, 25.0)
    _, J_p, J_theta = residual(px, gate.corners(), R_wc, p_wb, CAMERA)
    for k, step in enumerate(1e-6 * np.eye(3)):
        moved = residual(px, gate.corners(), R_wc, p_wb + step, CAMERA)[0]
        turned = residual(px, gate.corners(), R_wc @ matrix(exp(step)), p_wb, CAMERA)[0]
        np.testing.assert_allclose(-moved / 1e-6, J_p[:, k], atol=1e-3)
        np.testing.assert_allclose(-turned / 1e-6, J_theta[:, k], atol=1e-3)


def test_the_covariance_of_a_gate_pose_is_consistent():
    rng, sigma_px, errors = np.random.default_rng(4), 0.2, []
    for _ in range(400):
        gate = square_gate(yaw_deg=rng.uniform(-40, 40))
        p_wb = gate.p_wg - [rng.uniform(4, 12), *rng.uniform(-1, 1, 2)]
        view = View(p_wb, gate, roll=rng.uniform(-0.5, 0.5))
        px = view.px() + rng.normal(0, sigma_px, (4, 2))
        cov_p = gate_pose(px, sigma_px, gate.opening_m, CAMERA, rng).cov_p
        pose = nearest(px, gate, view.R_wc.T @ gate.R_wg)
        errors.append(nees(pose.p_cg - view.R_wc.T @ (gate.p_wg - p_wb), cov_p))
    assert_consistent(errors, 3)


def test_ippe_agrees_with_opencv():
    square = 0.75 * np.array([[-1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])
    rng = np.random.default_rng(5)
    for _ in range(20):
        _, _, _, _, px = scene(rng.uniform(3, 20), rng.uniform(-40, 40), rng.uniform(-1, 1))
        px = px + rng.normal(0, 0.5, (4, 2))
        _, _turns, centres, _ = cv2.solvePnPGeneric(square, px, CAMERA.K, None, flags=cv2.SOLVEPNP_IPPE_SQUARE)
        ours = ippe(px, 1.5, CAMERA)[1]
        for centre in centres:
            assert min(np.linalg.norm(p - centre.ravel()) for p in ours) < 1e-4


@given(st.lists(st.floats(-2000, 2000), min_size=8, max_size=8))
def test_no_corners_break_the_pose(values):
    gate_pose(np.array(values).reshape(4, 2), 0.3, 1.5, CAMERA, np.random.default_rng(3))


@pytest.mark.parametrize(("range_m", "yaw_deg"), [(4.0, 35.0), (10.0, 0.0), (20.0, 35.0)])
def test_the_covariance_of_a_position_is_consistent(range_m, yaw_deg):
    rng = np.random.default_rng(2)
    sigma_px, sigma_rad, errors = 0.4, 0.01, []
    gate, p_wb, q_wb, R_wc, _ = scene(range_m, yaw_deg)
    for _ in range(400):
        q_true = product(q_wb, exp(rng.normal(0, sigma_rad, 3)))
        px = corners_px(gate, p_wb, q_true) + rng.normal(0, sigma_px, (4, 2))
        fix = located(px, sigma_px, gate, R_wc, p_wb, sigma_rad)
        errors.append(nees(fix.p_wc - p_wb, fix.cov))
    assert NEES_BAND[0] < np.mean(errors) < NEES_BAND[1]
