"""Unseen sides of an opening are predicted from the others."""

import numpy as np
import pytest
from drawing import CAMERA, corners_px, looking_at, render, square_gate

from gate_racer.model.rims import DRAWN_GATE, GateModel
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.classical.proposals import fourth_sides
from gate_racer.vehicle.rotation import matrix


def test_three_sides_of_a_square_tell_the_fourth_exactly():
    rng, tried = np.random.default_rng(0), 0
    for _ in range(300):
        gate = square_gate(yaw_deg=rng.uniform(-50, 50))
        p_wb = np.array([-rng.uniform(1.0, 8.0), *rng.uniform(-1, 1, 2)])
        q_wb = looking_at(p_wb, gate, rng.uniform(-200, 200, 2), rng.uniform(-1, 1))
        if ((gate.corners() - p_wb) @ matrix(q_wb) @ CAMERA.R_bc)[:, 2].min() < 0.2:
            continue
        quad, tried = corners_px(gate, p_wb, q_wb), tried + 1
        ends = fourth_sides(quad[None], CAMERA)[0]
        truth = np.stack([quad, np.roll(quad, -1, 0)], 1)
        np.testing.assert_allclose(ends, truth, rtol=1e-6, atol=1e-6)
    assert tried > 200


def test_a_quad_tells_how_far_depth_reaches_across_its_sides():
    rng = np.random.default_rng(1)
    for _ in range(100):
        gate = square_gate(yaw_deg=rng.uniform(-75, 75))
        p_wb = np.array([-rng.uniform(2.0, 20.0), *rng.uniform(-1, 1, 2)])
        q_wb = looking_at(p_wb, gate, rng.uniform(-250, 250, 2), rng.uniform(-1, 1))
        quad, R_wc = corners_px(gate, p_wb, q_wb), matrix(q_wb) @ CAMERA.R_bc
        near, far = CAMERA.project((gate.p_wg + np.outer([-1e-4, 1e-4], gate.R_wg[:, 0]) - p_wb) @ R_wc)
        along = np.roll(quad, -1, 0) - quad
        normal = np.stack([along[:, 1], -along[:, 0]], -1) / np.linalg.norm(along, axis=-1, keepdims=True)
        depth_px = np.abs(normal @ (far - near)) / 2e-4 * DRAWN_GATE.depth_ratio * gate.opening_m
        at_px = rng.uniform(-9, 9, 2)
        extent_px = GateModel(CAMERA, at_px, 1.8).depth_extent_px((quad - at_px)[None])[0]
        np.testing.assert_allclose(extent_px, depth_px, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("yaw_deg", [0.0, 30.0, 60.0])
def test_the_silhouette_is_what_both_faces_cover(yaw_deg):
    gate, p_wb = square_gate(yaw_deg=yaw_deg), np.array([-40.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate)
    out_m = np.outer([-0.5, 0.5], gate.R_wg[:, 0]) * DRAWN_GATE.depth_ratio * gate.opening_m
    R_wc = matrix(q_wb) @ CAMERA.R_bc
    (h0, h1), (s0, s1) = (
        [CAMERA.project((gate.corners(side) + move - p_wb) @ R_wc) for move in out_m] for side in (1.5, 2.7)
    )
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    hole, silhouette = (np.minimum(signs * h0, signs * h1) * signs, np.maximum(signs * s0, signs * s1) * signs)
    model = GateModel(CAMERA, np.zeros(2), 1.8)
    expected = model.silhouettes(hole[None], model.depth_extent_px(hole[None]))[0]
    np.testing.assert_allclose(expected, silhouette, atol=0.25)  # the depth is 1.3 px


@pytest.mark.parametrize("range_m", [1.3, 1.8, 2.4])
@pytest.mark.parametrize("roll_deg", [0.0, 25.0])
def test_a_gate_is_seen_until_it_is_passed(range_m, roll_deg):
    """A gate that extends beyond the image is measured by its visible part, with no outer edge of its frame in view."""
    rng, gate = np.random.default_rng(3), square_gate(yaw_deg=8.0)
    p_wb = np.array([-range_m, 0.1, -0.1])
    q_wb = looking_at(p_wb, gate, (20.0, -90.0), np.radians(roll_deg))
    found = ColourDetector(CAMERA).detect(render([gate], p_wb, q_wb, rng))
    truth = corners_px(gate, p_wb, q_wb)
    assert len(found) == 1 and found[0].visible.sum() >= 2
    off = np.linalg.norm(found[0].corners_px[found[0].visible][:, None] - truth, axis=-1).min(1)
    assert off.max() < 1.0
