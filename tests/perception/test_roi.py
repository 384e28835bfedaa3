"""Windows: they show what the camera sees of a course as long as the pose is as good as it says, and nothing is lost in them."""

import numpy as np
import pytest
from drawing import CAMERA, View, square_gate

from gate_racer.model.states import State
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.roi import RoiPredictor, SearchWindow
from gate_racer.vehicle.rotation import exp, product

GATES = [square_gate(yaw_deg=10.0), square_gate(12.0, 6.0, -2.0), square_gate(25.0, -9.0, 1.0, -20.0)]
STILL = np.zeros(3), np.zeros(3)
SURE = 1e-4 * np.eye(3), 1e-3


def predicted(roi, p_wb, q_wb, rates=STILL, sigmas=SURE) -> SearchWindow:
    return roi.predict(state(p_wb, q_wb, rates, sigmas))


def state(p_wb, q_wb, rates=STILL, sigmas=SURE, t=0.0) -> State:
    cov = np.diag(np.full(9, sigmas[1] ** 2))
    cov[:3, :3] = sigmas[0]
    return State(t, np.asarray(p_wb), q_wb, *rates, cov)


def test_visible_gates_are_in_the_window_within_told_errors():
    rng, roi, smaller = np.random.default_rng(0), RoiPredictor(GATES, CAMERA), 0
    for _ in range(300):
        p_wb, gate = [rng.uniform(-15, -4), *rng.uniform(-3, 3, 2)], GATES[rng.integers(3)]
        view = View(p_wb, gate, off_px=rng.uniform(-150, 150, 2), roll=rng.uniform(-0.5, 0.5))
        sigma_m, sigma_rad = rng.uniform(0, 0.3), rng.uniform(0, 0.02)
        off_m, off_rad = (
            2.0 * sigma * x / np.linalg.norm(x)
            for sigma, x in zip((sigma_m, sigma_rad), rng.normal(size=(2, 3)), strict=True)
        )
        prior = view.p_wb + off_m, np.array(product(view.q_wb, exp(off_rad)))
        window = predicted(roi, *prior, sigmas=(sigma_m**2 * np.eye(3), sigma_rad)).region
        if window is None:
            continue
        rows, columns = window
        smaller += (rows.stop - rows.start) * (columns.stop - columns.start) < CAMERA.width_px * CAMERA.height_px / 2
        for gate in GATES:
            corners_c = (gate.corners(gate.outer_m) - view.p_wb) @ view.R_wc
            px = CAMERA.project(corners_c[corners_c[:, 2] > 0.3])
            u, v = px[CAMERA.sees(px)].T
            assert ((columns.start <= u) & (u < columns.stop) & (rows.start <= v) & (v < rows.stop)).all()
    assert smaller > 100  # and they do save something


def test_in_a_window_the_same_is_found_as_in_the_whole_image():
    view = View([-8.0, 0.0, 0.0], GATES[0], square_gate(4.0, 9.0))
    image, detector, roi = view.image(1, corridor=True), ColourDetector(CAMERA), RoiPredictor(GATES[:1], CAMERA)
    whole = detector.detect(image, roi.whole_image)
    (found,) = detector.detect(image, predicted(roi, *view.pose))
    assert len(whole) == 2
    assert min(np.abs(found.corners_px - one.corners_px).max() for one in whole) < 0.1


def test_a_window_cuts_a_gate_as_the_images_edge_would():
    image, detector = View([-5.0, 0.0, 0.0], GATES[0]).image(2), ColourDetector(CAMERA)
    (whole,) = detector.detect(image)
    middle = int(whole.corners_px[:, 0].mean())
    (cut,) = detector.detect(image, SearchWindow(1.8, 0, 0, middle, CAMERA.height_px))
    assert 0 < cut.visible.sum() < 4
    for corner, visible in zip(cut.corners_px, cut.visible, strict=True):
        assert not visible or np.linalg.norm(whole.corners_px - corner, axis=-1).min() < 0.5


@pytest.mark.parametrize(
    ("t", "unseen_s", "whole"),
    [(10.2, 0.0, False), (10.2, 0.2, False), (10.2, 1.0, True), (10.51, 0.0, True), (10.2, np.inf, True)],
    ids=["a gate was just seen", "a moment ago", "long ago", "it is time", "never"],
)
def test_whole_images_are_looked_at_at_intervals_and_after_a_loss(t, unseen_s, whole):
    pose = View([-9.0, 0.0, 0.0], GATES[0]).pose
    window = RoiPredictor(GATES[:1], CAMERA).next_window(state(*pose, t=t), unseen_s)
    assert (window.region is None) == whole


@pytest.mark.parametrize("window", [(0, 0, 1, 1), (630, 350, 640, 360), (300, 0, 303, 360), (0, 100, 640, 102)])
def test_a_window_of_any_size_is_survived(window):
    image = np.full((CAMERA.height_px, CAMERA.width_px, 3), (25, 60, 245), np.uint8)
    assert ColourDetector(CAMERA).detect(image, SearchWindow(1.8, *window)) == []


def test_the_expected_frame_is_the_courses_most_frequent():
    mostly_thin = [square_gate(outer_m=2.1), square_gate(outer_m=2.1), square_gate()]
    assert RoiPredictor(mostly_thin, CAMERA).whole_image.frame_ratio == 2.1 / 1.5
    assert RoiPredictor([], CAMERA).whole_image == SearchWindow(0.0)
    assert predicted(RoiPredictor([], CAMERA), np.zeros(3), np.array([1.0, 0, 0, 0])).region is None
