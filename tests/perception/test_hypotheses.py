"""Unseen sides of an opening are predicted from the others."""

import numpy as np
import pytest
from drawing import CAMERA, View, square_gate

from gate_racer.model.rims import DEPTH_RATIO, GateModel
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.classical.proposals import fourth_sides


def test_three_sides_of_a_square_tell_the_fourth_exactly():
    rng, tried = np.random.default_rng(0), 0
    for _ in range(300):
        gate, p_wb = square_gate(yaw_deg=rng.uniform(-50, 50)), [-rng.uniform(1.0, 8.0), *rng.uniform(-1, 1, 2)]
        view = View(p_wb, gate, off_px=rng.uniform(-200, 200, 2), roll=rng.uniform(-1, 1))
        if ((gate.corners() - p_wb) @ view.R_wc)[:, 2].min() < 0.2:
            continue
        quad, tried = view.px(), tried + 1
        ends = fourth_sides(quad[None], CAMERA)[0]
        truth = np.stack([quad, np.roll(quad, -1, 0)], 1)
        np.testing.assert_allclose(ends, truth, rtol=1e-6, atol=1e-6)
    assert tried > 200


def test_a_quad_tells_how_far_depth_reaches_across_its_sides():
    rng = np.random.default_rng(1)
    for _ in range(100):
        gate, p_wb = square_gate(yaw_deg=rng.uniform(-75, 75)), [-rng.uniform(2.0, 20.0), *rng.uniform(-1, 1, 2)]
        view = View(p_wb, gate, off_px=rng.uniform(-250, 250, 2), roll=rng.uniform(-1, 1))
        quad = view.px()
        near, far = view.project(gate.p_wg + np.outer([-1e-4, 1e-4], gate.R_wg[:, 0]))
        along = np.roll(quad, -1, 0) - quad
        normal = np.stack([along[:, 1], -along[:, 0]], -1) / np.linalg.norm(along, axis=-1, keepdims=True)
        depth_px = np.abs(normal @ (far - near)) / 2e-4 * DEPTH_RATIO * gate.opening_m
        at_px = rng.uniform(-9, 9, 2)
        extent_px = GateModel(CAMERA, at_px, 1.8).depth_extent_px((quad - at_px)[None])[0]
        np.testing.assert_allclose(extent_px, depth_px, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("yaw_deg", [0.0, 30.0, 60.0])
def test_the_silhouette_is_what_both_faces_cover(yaw_deg):
    gate = square_gate(yaw_deg=yaw_deg)
    view = View([-40.0, 0.0, 0.0], gate)
    out_m = np.outer([-0.5, 0.5], gate.R_wg[:, 0]) * DEPTH_RATIO * gate.opening_m
    (h0, h1), (s0, s1) = ([view.project(gate.corners(side) + move) for move in out_m] for side in (1.5, 2.7))
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    hole, silhouette = (np.minimum(signs * h0, signs * h1) * signs, np.maximum(signs * s0, signs * s1) * signs)
    model = GateModel(CAMERA, np.zeros(2), 1.8)
    expected = model.silhouettes(hole[None], model.depth_extent_px(hole[None]))[0]
    np.testing.assert_allclose(expected, silhouette, atol=0.25)  # the depth is 1.3 px


@pytest.mark.parametrize(("range_m", "roll_deg"), [(1.3, 25.0), (2.4, 0.0)])
def test_a_gate_is_seen_until_it_is_passed(range_m, roll_deg):
    """A gate that extends beyond the image is measured by its visible part, with no outer edge of its frame in view."""
    view = View([-range_m, 0.1, -0.1], square_gate(yaw_deg=8.0), off_px=(20.0, -90.0), roll=np.radians(roll_deg))
    (found,) = ColourDetector(CAMERA).detect(view.image(3))
    assert found.visible.sum() >= 2
    off = np.linalg.norm(found.corners_px[found.visible][:, None] - view.px(), axis=-1).min(1)
    assert off.max() < 1.0
