"""The detector: corners to a fraction of a pixel, no gate missed, none invented, no picture that breaks it."""

import cv2
import numpy as np
import pytest
from drawing import CAMERA, corners_px, looking_at, picture, square_gate
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.detection import Detection, decode
from perception.detector import ColourDetector

SHAPE = (CAMERA.height_px, CAMERA.width_px, 3)


@pytest.fixture
def detector():
    return ColourDetector(CAMERA)


def corner_errors_px(detections: list[Detection], truth_px) -> np.ndarray | None:
    """Distances (4,) px of the detection nearest to the true corners, in the best cyclic order, or None beyond 3 px."""
    errors = [np.linalg.norm(np.roll(d.corners_px, k, 0) - truth_px, axis=-1) for d in detections for k in range(4)]
    best = min(errors, key=np.max, default=None)
    return best if best is not None and best.max() < 3.0 else None


@pytest.mark.parametrize("corridor", [False, True])
@pytest.mark.parametrize("range_m", [4.0, 7.0, 12.0, 17.0])
def test_corners_are_found_to_a_fraction_of_a_pixel(detector, range_m, corridor):
    rng = np.random.default_rng(round(10 * range_m))
    errors = []
    for _ in range(6):
        gate = square_gate(yaw_deg=rng.uniform(-35, 35))
        p_wb = np.array([-range_m, *rng.uniform(-0.1, 0.1, 2) * range_m])
        q_wb = looking_at(p_wb, gate, rng.uniform(-15, 15, 2), roll=rng.uniform(-0.7, 0.7))
        found = detector.detect(picture([gate], p_wb, q_wb, rng, corridor))
        error_px = corner_errors_px(found, corners_px(gate, p_wb, q_wb))
        assert error_px is not None, f"missed at {p_wb}"
        errors.append(error_px)
    assert np.median(errors) < 0.4
    assert np.max(errors) < 1.5


def test_a_gate_behind_a_gate_is_found_as_well(detector):
    near, far = square_gate(), square_gate(x=6.0, y=0.1)
    p_wb = np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, near)
    found = detector.detect(picture([near, far], p_wb, q_wb, np.random.default_rng(1)))
    assert len(found) == 2
    for gate in (near, far):
        assert np.median(corner_errors_px(found, corners_px(gate, p_wb, q_wb))) < 0.4


def test_a_corner_hidden_by_a_gate_behind_is_restored(detector):
    near, far = square_gate(), square_gate(x=8.0, y=-2.2, z=-2.2)
    p_wb = np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, near)
    hidden_px, overlap_px = corners_px(near, p_wb, q_wb)[0], corners_px(far, p_wb, q_wb, far.outer_m)
    assert (overlap_px.min(0) < hidden_px).all() and (hidden_px < overlap_px.max(0)).all()
    found = detector.detect(picture([near, far], p_wb, q_wb, np.random.default_rng(2)))
    assert np.max(corner_errors_px(found, corners_px(near, p_wb, q_wb))) < 0.6


def test_of_an_opening_cut_by_the_edge_of_the_picture_the_seen_corners_are_measured(detector):
    gate, p_wb = square_gate(), np.array([-4.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, off_px=(290.0, 0.0))
    (found,) = detector.detect(picture([gate], p_wb, q_wb, np.random.default_rng(3)))
    truth_px = corners_px(gate, p_wb, q_wb)
    np.testing.assert_array_equal(found.visible, CAMERA.sees(truth_px))
    np.testing.assert_allclose(found.corners_px[found.visible], truth_px[found.visible], atol=0.5)
    # Of the others only one line is known, and their covariance says so.
    error = found.corners_px - truth_px
    for e, cov in zip(error, found.cov_px, strict=True):
        assert e @ np.linalg.solve(cov, e) < 16.0


def test_corners_run_clockwise_from_the_top_left(detector):
    gate, p_wb = square_gate(), np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, roll=0.2)
    (found,) = detector.detect(picture([gate], p_wb, q_wb, np.random.default_rng(4)))
    np.testing.assert_allclose(found.corners_px, corners_px(gate, p_wb, q_wb), atol=1.0)
    assert 0 < found.score <= 1 and found.sigma_px > 0


@pytest.mark.parametrize("roll_deg", [44.0, 45.0, 46.0])
def test_a_gate_on_its_corner_is_one_gate(detector, roll_deg):
    gate, p_wb = square_gate(), np.array([-6.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, roll=np.radians(roll_deg))
    found = detector.detect(picture([gate], p_wb, q_wb, np.random.default_rng(5), corridor=True))
    assert len(found) == 1


def lamps():
    image = np.zeros(SHAPE, np.uint8)
    for k, side in enumerate((12, 20, 40, 80)):
        cv2.rectangle(image, (30 + 150 * k, 60), (30 + 150 * k + side, 60 + side), (255, 255, 255), max(2, side // 4))
    cv2.circle(image, (100, 250), 20, (0, 0, 160), -1)
    return image


def orange_rings_without_hole():
    image = np.zeros(SHAPE, np.uint8)
    cv2.rectangle(image, (100, 100), (200, 200), (25, 60, 245), -1)
    cv2.line(image, (300, 50), (500, 300), (25, 60, 245), 12)
    return image


@pytest.mark.parametrize(
    "image",
    [
        np.zeros(SHAPE, np.uint8),
        np.full(SHAPE, 255, np.uint8),
        np.random.default_rng(5).integers(0, 256, SHAPE, np.uint8),
        cv2.blur(np.random.default_rng(6).integers(0, 256, SHAPE, np.uint8), (9, 9)),
        lamps(),
        orange_rings_without_hole(),
    ],
    ids=["black", "white", "noise", "soft noise", "lamps", "full squares"],
)
def test_no_gate_is_invented(detector, image):
    assert detector.detect(image) == []
    assert detector.refused == 0


def test_many_false_holes_do_not_break_it(detector):
    u, v = np.meshgrid(np.arange(CAMERA.width_px), np.arange(CAMERA.height_px))
    frames = (np.minimum(u % 26, v % 26) < 8)[..., None]
    detector.detect(np.where(frames, np.array([25, 60, 245], np.uint8), np.uint8(0)))


@pytest.mark.parametrize(
    "image", [None, np.zeros((10, 10, 3), np.uint8), np.zeros(SHAPE[:2], np.uint8), np.zeros(SHAPE)]
)
def test_a_picture_of_the_wrong_form_is_refused_and_counted(detector, image):
    assert detector.detect(image) == []
    assert detector.refused == 1


@given(st.binary(max_size=400))
@settings(max_examples=50, deadline=None)
def test_any_bytes_decode_to_a_picture_or_nothing(jpeg):
    detector = ColourDetector(CAMERA)
    assert detector.detect(decode(jpeg)) == []


@given(st.integers(0, 20_000), st.integers(0, 255))
@settings(max_examples=30, deadline=None)
def test_a_damaged_picture_is_survived(at, value):
    image = np.full(SHAPE, 25, np.uint8)
    cv2.rectangle(image, (200, 100), (300, 200), (25, 60, 245), 30)
    jpeg = bytearray(cv2.imencode(".jpg", image)[1].tobytes())
    jpeg[at % len(jpeg)] = value
    detector = ColourDetector(CAMERA)
    detector.detect(decode(bytes(jpeg)))
    detector.detect(decode(bytes(jpeg[: at % len(jpeg)])))
