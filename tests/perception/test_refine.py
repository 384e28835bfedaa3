"""Near a gate the rim of its near face is measured where its outline is seen; without an outline the hole is."""

import cv2
import numpy as np
import pytest
from drawing import CAMERA, looking_at, render, square_gate

from perception.association import Associator
from perception.classical.detector import ColourDetector
from perception.classical.refine import rim_gaps_px
from perception.rims import GateAppearance, GateRims
from vehicle.rotation import matrix

SIGMA_RAD = 1e-3
FACE, OUTLINE, WALL = (5, 50, 255), (20, 100, 255), (5, 58, 232)  # BGR, as in real frames
OUTLINE_M, DEPTH_M, OVER = 0.02, 0.16, 4


def deep_gate(gate, p_wb, q_wb, outline=OUTLINE):
    """An image of a gate with two faces, walls between them and an outline on both rims, by painting squares back to front."""
    R_wc = matrix(q_wb) @ CAMERA.R_bc

    def px(side_m, x_m):
        corners_w = gate.corners(side_m) + x_m * gate.R_wg[:, 0]
        return np.round(((CAMERA.project((corners_w - p_wb) @ R_wc) + 0.5) * OVER - 0.5) * 16).astype(np.int32)

    def fill(image, quads, bgr):
        for quad in quads:
            cv2.fillConvexPoly(image, quad, bgr, cv2.LINE_8, 4)

    image = np.full((CAMERA.height_px * OVER, CAMERA.width_px * OVER, 3), 10, np.uint8)
    half, inner = DEPTH_M / 2, gate.opening_m - OUTLINE_M
    fill(image, [px(gate.outer_m, -half)], FACE)
    fill(image, [px(gate.opening_m + OUTLINE_M, -half)], outline)
    fill(image, [px(inner, -half)], WALL)
    far = np.zeros(image.shape[:2], np.uint8)  # what is seen through both faces
    both = []
    for x_m in (-half, half):
        mask = far.copy()
        cv2.fillConvexPoly(mask, px(inner, x_m), 255, cv2.LINE_8, 4)
        both.append(mask)
    image[(both[0] & both[1]) > 0] = 10
    image = cv2.resize(image, (CAMERA.width_px, CAMERA.height_px), interpolation=cv2.INTER_AREA)
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1], cv2.IMREAD_COLOR)


def face_px(gate, p_wb, q_wb):
    rims = GateRims([gate], GateAppearance(depth_m=DEPTH_M))
    corners_w = rims.near_face(np.array([0]), p_wb[None])[0]
    return CAMERA.project((corners_w - p_wb) @ matrix(q_wb) @ CAMERA.R_bc)


@pytest.mark.parametrize("range_m", [3.5, 4.5, 5.5])
@pytest.mark.parametrize("yaw_deg", [-25.0, 0.0, 15.0])
def test_the_near_face_is_measured_where_its_outline_is_seen(range_m, yaw_deg):
    gate, p_wb = square_gate(yaw_deg=yaw_deg), np.array([-range_m, 0.1, -0.1])
    q_wb = looking_at(p_wb, gate, roll=0.1)
    (found,) = ColourDetector(CAMERA).detect(deep_gate(gate, p_wb, q_wb))
    error = found.corners_px - face_px(gate, p_wb, q_wb)
    assert found.near_face and found.visible.all()
    assert np.linalg.norm(error, axis=-1).max() < 0.8
    assert (error * np.linalg.solve(found.cov_px, error[..., None])[..., 0]).sum(-1).max() < 16.0


@pytest.mark.parametrize("range_m", [4.0, 7.5])
def test_without_an_outline_the_hole_is_reported(range_m):
    gate, p_wb = square_gate(yaw_deg=10.0), np.array([-range_m, 0.1, -0.1])
    q_wb = looking_at(p_wb, gate)
    (plain,) = ColourDetector(CAMERA).detect(deep_gate(gate, p_wb, q_wb, outline=FACE))
    (flat,) = ColourDetector(CAMERA).detect(render([gate], p_wb, q_wb, np.random.default_rng(0)))
    assert not plain.near_face and not flat.near_face


def test_either_edge_fixes_the_position_without_a_bias():
    """As deep as drawn, a gate places the camera as well by its hole as by its near face."""
    gate, p_wb = square_gate(yaw_deg=10.0), np.array([-4.5, 0.2, -0.1])
    q_wb = looking_at(p_wb, gate)
    for outline in (OUTLINE, FACE):
        found = ColourDetector(CAMERA).detect(deep_gate(gate, p_wb, q_wb, outline))
        prior = p_wb + [0.2, -0.1, 0.1]
        (fix,), _ = Associator([gate], CAMERA).associate(0.0, found, prior, 0.09 * np.eye(3), q_wb, SIGMA_RAD)
        assert np.linalg.norm(fix.p_wb - p_wb) < 0.05, found[0].near_face


def test_from_straight_ahead_the_rims_are_apart_by_their_perspective():
    """Shift of a rim at half-side h and range r between faces d apart: f h d / r^2, to first order."""
    gate, p_wb = square_gate(), np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate)
    hole_px = CAMERA.project((gate.corners() - p_wb) @ matrix(q_wb) @ CAMERA.R_bc)
    gap_px = CAMERA.fx_px * 0.75 * DEPTH_M / 5.0**2
    np.testing.assert_allclose(rim_gaps_px(hole_px[None], CAMERA), gap_px, rtol=0.05)
