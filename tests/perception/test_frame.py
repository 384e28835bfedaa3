"""What is not seen of an opening follows from the rest."""

import numpy as np
import pytest
from drawing import CAMERA, corners_px, looking_at, picture, square_gate

from perception.detector import ColourDetector
from perception.frame import _fourth_sides
from vehicle.rotation import matrix


def test_three_sides_of_a_square_tell_the_fourth_exactly():
    rng, tried = np.random.default_rng(0), 0
    for _ in range(300):
        gate = square_gate(yaw_deg=rng.uniform(-50, 50))
        p_wb = np.array([-rng.uniform(1.0, 8.0), *rng.uniform(-1, 1, 2)])
        q_wb = looking_at(p_wb, gate, rng.uniform(-200, 200, 2), rng.uniform(-1, 1))
        if ((gate.corners() - p_wb) @ matrix(q_wb) @ CAMERA.R_bc)[:, 2].min() < 0.2:
            continue
        quad, tried = corners_px(gate, p_wb, q_wb), tried + 1
        ends = _fourth_sides(quad[None], CAMERA)[0]
        truth = np.stack([quad, np.roll(quad, -1, 0)], 1)
        np.testing.assert_allclose(ends, truth, rtol=1e-6, atol=1e-6)
    assert tried > 200


@pytest.mark.parametrize("range_m", [1.3, 1.8, 2.4])
@pytest.mark.parametrize("roll_deg", [0.0, 25.0])
def test_a_gate_is_seen_until_it_is_passed(range_m, roll_deg):
    """Of a gate that has grown over the picture's edge what is left is measured, with no edge of its frame in view."""
    rng, gate = np.random.default_rng(3), square_gate(yaw_deg=8.0)
    p_wb = np.array([-range_m, 0.1, -0.1])
    q_wb = looking_at(p_wb, gate, (20.0, -90.0), np.radians(roll_deg))
    found = ColourDetector(CAMERA).detect(picture([gate], p_wb, q_wb, rng))
    truth = corners_px(gate, p_wb, q_wb)
    assert len(found) == 1 and found[0].visible.sum() >= 2
    off = np.linalg.norm(found[0].corners_px[found[0].visible][:, None] - truth, axis=-1).min(1)
    assert off.max() < 1.0
