"""Gates cut by the image's border give consistent fixes of the right gate and side."""

from dataclasses import replace

import numpy as np
import pytest
from detections import FLAT, NEES_BAND, SIGMA_RAD, seen
from drawing import CAMERA, looking_at, square_gate

from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.rotation import exp, product


def cut(detection, hidden, sigma_px=0.3):
    """The detection without its hidden corners (k,): of those only one line is known, along which the corner is a guess."""
    px, cov, visible = detection.corners_px.copy(), detection.cov_px.copy(), np.ones(4, bool)
    for k in hidden:
        neighbour = next((n for n in ((k + 1) % 4, (k - 1) % 4) if n not in hidden), None)
        along = px[k] - px[neighbour]
        along = along / np.linalg.norm(along)
        px[k], visible[k] = px[k] + 20.0 * along, False
        cov[k] = sigma_px**2 * np.eye(2) + 60.0**2 * np.outer(along, along)
    return Detection(px, cov, visible, 1.0)


@pytest.mark.parametrize("hidden", [(0,), (0, 1), (1, 2), (3,)])
def test_the_visible_part_of_a_cut_gate_gives_a_consistent_fix(hidden):
    rng = np.random.default_rng(11)
    gate, nees = square_gate(), []
    associator = Associator([gate], CAMERA, FLAT)
    for _ in range(150):
        p_wb = np.array([-rng.uniform(3, 7), rng.uniform(-1, 1), rng.uniform(-1, 1)])
        q_true = looking_at(p_wb, gate, roll=rng.uniform(-0.5, 0.5))
        q_wb = product(q_true, exp(rng.normal(0, SIGMA_RAD, 3)))
        (whole,), _ = seen([gate], p_wb, q_true, rng)
        prior = p_wb + rng.normal(0, 0.2, 3)
        fixes, _ = associator.associate(0.0, [cut(whole, hidden)], prior, 0.04 * np.eye(3), q_wb, SIGMA_RAD)
        for fix in fixes:
            assert fix.visible.sum() == 4 - len(hidden)
            error = fix.p_wb - p_wb
            nees.append(error @ np.linalg.solve(fix.cov, error))
    assert len(nees) > 120
    assert NEES_BAND[0] < np.mean(nees) < NEES_BAND[1] + 0.3


def test_a_corner_of_a_gate_too_near_to_be_believed_is_no_farther_gates():
    rng, near, far = np.random.default_rng(14), square_gate(x=-2.6), square_gate(x=-1.0)
    p_wb = np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, far)
    cov_px = np.array([0.3, 60.0, 60.0, 60.0])[:, None, None] ** 2 * np.eye(2)
    of_near, of_far = (
        replace(detection, cov_px=cov_px, visible=np.arange(4) == 0)
        for detection in seen([near, far], p_wb, q_wb, rng)[0]
    )
    for detection, variance, named in ((of_near, 0.4, []), (of_far, 0.01, [1])):
        prior = variance * np.eye(3)
        fixes, _ = Associator([near, far], CAMERA, FLAT).associate(0.0, [detection], p_wb, prior, q_wb, SIGMA_RAD)
        assert [fix.gate for fix in fixes] == named


@pytest.mark.parametrize(("hidden", "behind"), [((1, 2), False), ((0, 3), False), ((0, 3), True)])
def test_a_side_is_never_the_opposite_one_however_much_nearer_the_prior(hidden, behind):
    rng, gate, fixed = np.random.default_rng(13), square_gate(), 0
    associator = Associator([gate], CAMERA, FLAT)
    for aside in np.linspace(-1.4, 1.4, 30):
        p_wb = np.array([rng.uniform(4, 7) * (1 if behind else -1), rng.uniform(-1, 1), rng.uniform(-1, 1)])
        q_wb = looking_at(p_wb, gate, roll=rng.uniform(-0.5, 0.5))
        (whole,), _ = seen([gate], p_wb, q_wb, rng)
        prior = p_wb + [0.0, aside, 0.0]
        for fix in associator.associate(0.0, [cut(whole, hidden)], prior, 0.2 * np.eye(3), q_wb, SIGMA_RAD)[0]:
            assert np.abs(fix.p_wb - p_wb).max() < 0.5
            fixed += 1
    assert fixed > 20
