"""The detector: corners to a fraction of a pixel, no gate missed, none invented, no image that breaks it."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from drawing import CAMERA, ORANGE, corners_px, looking_at, render, square_gate
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.model.quadrilateral import intersect_lines
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detection, decode
from gate_racer.perception.roi import SearchWindow

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
        found = detector.detect(render([gate], p_wb, q_wb, rng, corridor))
        error_px = corner_errors_px(found, corners_px(gate, p_wb, q_wb))
        assert error_px is not None, f"missed at {p_wb}"
        errors.append(error_px)
    assert np.median(errors) < 0.4
    assert np.max(errors) < 1.5


def test_a_gate_behind_a_gate_is_found_as_well(detector):
    near, far = square_gate(), square_gate(x=6.0, y=0.1)
    p_wb = np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, near)
    found = detector.detect(render([near, far], p_wb, q_wb, np.random.default_rng(1)))
    assert len(found) == 2
    for gate in (near, far):
        assert np.median(corner_errors_px(found, corners_px(gate, p_wb, q_wb))) < 0.4


def test_a_corner_hidden_by_a_gate_behind_is_restored(detector):
    near, far = square_gate(), square_gate(x=8.0, y=-2.2, z=-2.2)
    p_wb = np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, near)
    hidden_px, overlap_px = corners_px(near, p_wb, q_wb)[0], corners_px(far, p_wb, q_wb, far.outer_m)
    assert (overlap_px.min(0) < hidden_px).all() and (hidden_px < overlap_px.max(0)).all()
    found = detector.detect(render([near, far], p_wb, q_wb, np.random.default_rng(2)))
    assert np.max(corner_errors_px(found, corners_px(near, p_wb, q_wb))) < 0.6


def test_visible_corners_of_an_opening_cut_by_the_image_are_measured(detector):
    gate, p_wb = square_gate(), np.array([-4.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, off_px=(290.0, 0.0))
    (found,) = detector.detect(render([gate], p_wb, q_wb, np.random.default_rng(3)))
    truth_px = corners_px(gate, p_wb, q_wb)
    np.testing.assert_array_equal(found.visible, CAMERA.sees(truth_px))
    np.testing.assert_allclose(found.corners_px[found.visible], truth_px[found.visible], atol=0.5)
    # Of the others only one line is known, and their covariance says so.
    error = found.corners_px - truth_px
    for e, cov in zip(error, found.cov_px, strict=True):
        assert e @ np.linalg.solve(cov, e) < 16.0


@pytest.mark.parametrize("roll_deg", [0.0, 30.0])
def test_the_frame_s_width_tells_where_the_sides_are_that_the_image_cuts(detector, roll_deg):
    gate, p_wb = square_gate(yaw_deg=25.0), np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, off_px=(0.0, -175.0), roll=np.radians(roll_deg))
    truth_px = corners_px(gate, p_wb, q_wb)
    (found,) = detector.detect(render([gate], p_wb, q_wb, np.random.default_rng(9)))
    assert 0 < found.visible.sum() < 4
    side_px = np.linalg.norm(truth_px - np.roll(truth_px, 1, 0), axis=-1).mean()
    start = min(range(4), key=lambda k: np.linalg.norm(np.roll(found.corners_px, k, 0) - truth_px))
    error_px = np.linalg.norm(np.roll(found.corners_px, start, 0) - truth_px, axis=-1)
    assert error_px[np.roll(found.visible, start)].max() < 0.6
    assert error_px.max() < 0.4 * side_px


def test_a_side_that_a_gate_behind_covers_is_not_taken_for_one_of_the_gate(detector):
    near, far = square_gate(), square_gate(x=4.5, z=1.0)
    p_wb = np.array([-6.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, near)
    below, frame = corners_px(near, p_wb, q_wb)[2:, 1], corners_px(far, p_wb, q_wb, far.outer_m)[:, 1]
    assert frame.min() < below.min() - 30 and below.max() < frame.max(), (
        "the frame behind fills the foot of the opening"
    )
    truth_px = corners_px(near, p_wb, q_wb)
    found = detector.detect(render([near, far], p_wb, q_wb, np.random.default_rng(10)))
    gate = min(found, key=lambda d: np.abs(d.corners_px - truth_px).max())
    np.testing.assert_allclose(gate.corners_px, truth_px, atol=4.0)
    np.testing.assert_allclose(gate.corners_px[gate.visible], truth_px[gate.visible], atol=0.6)


@pytest.mark.parametrize(
    "light",
    [lambda x: 0.4 * x, lambda x: x + 60, lambda x: 255 * (x / 255) ** 0.6, lambda x: x + [10, 30, 50], lambda x: 0.4 * x + 40],
    ids=["dim", "haze", "bright", "warm", "dim haze"],
)  # fmt: skip
def test_gates_are_found_in_any_light(detector, light):
    gate, p_wb = square_gate(yaw_deg=20.0), np.array([-7.0, 0.5, 0.2])
    q_wb = looking_at(p_wb, gate, roll=0.3)
    image = render([gate], p_wb, q_wb, np.random.default_rng(11), corridor=True)
    image = np.clip(light(image.astype(float)), 0, 255).astype(np.uint8)
    (found,) = detector.detect(image)
    assert corner_errors_px([found], corners_px(gate, p_wb, q_wb)).max() < 1.0


def test_the_glow_under_a_gate_is_not_its_frame(detector):
    gate, p_wb = square_gate(), np.array([-8.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate)
    image = render([gate], p_wb, q_wb, np.random.default_rng(12))
    frame_px = corners_px(gate, p_wb, q_wb, gate.outer_m)
    left, foot, right = int(frame_px[3, 0]), round(frame_px[2, 1]) + 1, int(frame_px[2, 0])
    image[foot : foot + 8, left:right] = (40, 245, 255)
    (found,) = detector.detect(image)
    np.testing.assert_allclose(found.outer_px, frame_px, atol=1.0)


def test_corners_run_clockwise_from_the_top_left(detector):
    gate, p_wb = square_gate(), np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, roll=0.2)
    (found,) = detector.detect(render([gate], p_wb, q_wb, np.random.default_rng(4)))
    np.testing.assert_allclose(found.corners_px, corners_px(gate, p_wb, q_wb), atol=1.0)
    assert 0 < found.score <= 1 and found.sigma_px > 0


@pytest.mark.parametrize("outer_m", [2.0, 2.7])
@pytest.mark.parametrize(
    "paint",
    [(40, 20, 230), (240, 80, 20), (40, 210, 30), (210, 30, 220), (20, 200, 230), (90, 25, 15)],
    ids=["red", "blue", "green", "magenta", "yellow", "dark blue"],
)
def test_gates_of_any_colour_and_proportion_are_found_without_being_told(detector, paint, outer_m):
    gates = [square_gate(yaw_deg=15.0, outer_m=outer_m), square_gate(x=7.0, y=4.0, yaw_deg=-10.0, outer_m=outer_m)]
    p_wb = np.array([-6.0, 0.5, 0.0])
    q_wb = looking_at(p_wb, gates[0])
    found = detector.detect(render(gates, p_wb, q_wb, np.random.default_rng(8), paint=paint))
    assert len(found) == len(gates)
    for gate in gates:
        errors = corner_errors_px(found, corners_px(gate, p_wb, q_wb))
        assert errors is not None and errors.max() < 1.0


def test_the_colour_once_learned_stays_until_it_is_seen_no_more(detector):
    """Far gates alone do not tell their colour; those of another course do."""
    rng, blue, far, near = (
        np.random.default_rng(9),
        (240, 80, 20),
        np.array([-22.0, 0.0, 0.0]),
        np.array([-7.0, 0.0, 0.0]),
    )
    gate = square_gate()

    def seen(p_wb, paint):
        return len(detector.detect(render([gate], p_wb, looking_at(p_wb, gate), rng, paint=paint)))

    assert [seen(near, blue), seen(far, blue), seen(near, ORANGE), seen(near, blue)] == [1, 1, 1, 1]


@pytest.mark.parametrize("yaw_deg", [-60.0, -45.0, 0.0, 45.0, 60.0])
def test_a_thin_frame_at_a_slant_is_found_though_it_is_nearly_as_deep_as_wide(detector, yaw_deg):
    gate, p_wb = square_gate(yaw_deg=yaw_deg, outer_m=2.0), np.array([-7.0, 0.3, -0.2])
    slices = [replace(gate, centre_m=tuple(gate.p_wg + x * gate.R_wg[:, 0])) for x in np.linspace(-0.08, 0.08, 9)]
    q_wb = looking_at(p_wb, gate, roll=0.2)
    image = render(slices, p_wb, q_wb, np.random.default_rng(13))
    (found,) = detector.detect(image, SearchWindow(2.0 / 1.5))
    faces = np.array([corners_px(face, p_wb, q_wb) for face in (slices[0], slices[-1])])
    along, k = np.roll(faces, -1, 1) - faces, range(4)
    inward = np.stack([-along[..., 1], along[..., 0]], -1).mean(0)
    face = (faces * inward).sum(-1).argmax(0)  # that which reaches further in makes the side of the hole
    hole = intersect_lines(faces[face, k][None], along[face, k][None])[0]
    assert corner_errors_px([found], hole).max() < 1.0


@pytest.mark.parametrize("roll_deg", [44.0, 45.0, 46.0])
def test_a_gate_on_its_corner_is_one_gate(detector, roll_deg):
    gate, p_wb = square_gate(), np.array([-6.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate, roll=np.radians(roll_deg))
    found = detector.detect(render([gate], p_wb, q_wb, np.random.default_rng(5), corridor=True))
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
    "image",
    [
        None,
        np.zeros((0, 0, 3), np.uint8),
        np.zeros((1, 1, 3), np.uint8),
        np.zeros((10, 10, 3), np.uint8),
        np.zeros((2160, 3840, 3), np.uint8),
        np.zeros(SHAPE[:2], np.uint8),
        np.zeros((*SHAPE[:2], 4), np.uint8),
        np.zeros(SHAPE),
        np.full(SHAPE, np.nan),
    ],
    ids=["none", "no pixel", "one pixel", "small", "huge", "grey", "four channels", "floats", "not finite"],
)
def test_an_image_of_the_wrong_form_is_refused_and_counted(detector, image):
    assert detector.detect(image) == []
    assert detector.refused == 1


@given(st.binary(max_size=400))
@settings(max_examples=50, deadline=None)
def test_any_bytes_decode_to_an_image_or_nothing(jpeg):
    detector = ColourDetector(CAMERA)
    assert detector.detect(decode(jpeg, CAMERA)) == []


@given(st.integers(0, 20_000), st.integers(0, 255))
@settings(max_examples=30, deadline=None)
def test_a_damaged_image_is_survived(at, value):
    image = np.full(SHAPE, 25, np.uint8)
    cv2.rectangle(image, (200, 100), (300, 200), (25, 60, 245), 30)
    jpeg = bytearray(cv2.imencode(".jpg", image)[1].tobytes())
    jpeg[at % len(jpeg)] = value
    detector = ColourDetector(CAMERA)
    detector.detect(decode(bytes(jpeg), CAMERA))
    detector.detect(decode(bytes(jpeg[: at % len(jpeg)]), CAMERA))
