"""The detector by colour: corners to a fraction of a pixel, in any light, of gates of any colour, hidden in part or cut."""

from dataclasses import replace

import numpy as np
import pytest
from drawing import CAMERA, ORANGE, View, render, square_gate

from gate_racer.model.quadrilateral import intersect_lines
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detection
from gate_racer.perception.roi import SearchWindow


@pytest.fixture
def detector():
    return ColourDetector(CAMERA)


def corner_errors_px(detections: list[Detection], truth_px) -> np.ndarray | None:
    """Distances (4,) px of the detection nearest to the true corners, in the best cyclic order, or None beyond 3 px."""
    errors = [np.linalg.norm(np.roll(d.corners_px, k, 0) - truth_px, axis=-1) for d in detections for k in range(4)]
    best = min(errors, key=np.max, default=None)
    return best if best is not None and best.max() < 3.0 else None


def test_a_corner_hidden_by_a_gate_behind_is_restored(detector):
    far = square_gate(x=8.0, y=-2.2, z=-2.2)
    view = View((-5, 0, 0), square_gate(), far)
    hidden_px, overlap_px = view.px()[0], view.px(far, far.outer_m)
    assert (overlap_px.min(0) < hidden_px).all() and (hidden_px < overlap_px.max(0)).all()
    assert np.max(corner_errors_px(detector.detect(view.image(2)), view.px())) < 0.6


def test_visible_corners_of_a_cut_opening_are_measured(detector):
    view = View((-4, 0, 0), square_gate(), off_px=(290.0, 0.0))
    (found,), truth_px = detector.detect(view.image(3)), view.px()
    np.testing.assert_array_equal(found.visible, CAMERA.sees(truth_px))
    np.testing.assert_allclose(found.corners_px[found.visible], truth_px[found.visible], atol=0.5)
    # Of the others only one line is known, and their covariance says so.
    error = found.corners_px - truth_px
    for e, cov in zip(error, found.cov_px, strict=True):
        assert e @ np.linalg.solve(cov, e) < 16.0


@pytest.mark.parametrize("roll_deg", [0.0, 30.0])
def test_the_frames_width_tells_where_cut_sides_are(detector, roll_deg):
    view = View((-5, 0, 0), square_gate(yaw_deg=25.0), off_px=(0.0, -175.0), roll=np.radians(roll_deg))
    (found,), truth_px = detector.detect(view.image(9)), view.px()
    assert 0 < found.visible.sum() < 4
    side_px = np.linalg.norm(truth_px - np.roll(truth_px, 1, 0), axis=-1).mean()
    start = min(range(4), key=lambda k: np.linalg.norm(np.roll(found.corners_px, k, 0) - truth_px))
    error_px = np.linalg.norm(np.roll(found.corners_px, start, 0) - truth_px, axis=-1)
    assert error_px[np.roll(found.visible, start)].max() < 0.6
    assert error_px.max() < 0.4 * side_px


def test_a_side_of_a_gate_behind_is_no_side_of_the_gate(detector):
    far = square_gate(x=4.5, z=1.0)
    view = View((-6, 0, 0), square_gate(), far)
    truth_px, frame = view.px(), view.px(far, far.outer_m)[:, 1]
    below = truth_px[2:, 1]
    assert frame.min() < below.min() - 30 and below.max() < frame.max(), "the frame behind fills the opening's foot"
    found = detector.detect(view.image(10))
    gate = min(found, key=lambda d: np.abs(d.corners_px - truth_px).max())
    np.testing.assert_allclose(gate.corners_px, truth_px, atol=4.0)
    np.testing.assert_allclose(gate.corners_px[gate.visible], truth_px[gate.visible], atol=0.6)


@pytest.mark.parametrize(
    "light",
    [lambda x: 0.4 * x, lambda x: x + 60, lambda x: 255 * (x / 255) ** 0.6, lambda x: x + [10, 30, 50], lambda x: 0.4 * x + 40],
    ids=["dim", "haze", "bright", "warm", "dim haze"],
)  # fmt: skip
def test_gates_are_found_in_any_light(detector, light):
    view = View((-7, 0.5, 0.2), square_gate(yaw_deg=20.0), roll=0.3)
    image = light(view.image(11, corridor=True).astype(float))
    (found,) = detector.detect(np.clip(image, 0, 255).astype(np.uint8))
    assert corner_errors_px([found], view.px()).max() < 1.0


def test_the_glow_under_a_gate_is_not_its_frame(detector):
    gate = square_gate()
    view = View((-8, 0, 0), gate)
    image, frame_px = view.image(12), view.px(gate, gate.outer_m)
    left, foot, right = int(frame_px[3, 0]), round(frame_px[2, 1]) + 1, int(frame_px[2, 0])
    image[foot : foot + 8, left:right] = (40, 245, 255)
    (found,) = detector.detect(image)
    np.testing.assert_allclose(found.outer_px, frame_px, atol=1.0)


PAINTS = {  # BGR, outer size, m
    "red": ((40, 20, 230), 2.0),
    "blue": ((240, 80, 20), 2.7),
    "green": ((40, 210, 30), 2.0),
    "magenta": ((210, 30, 220), 2.7),
    "yellow": ((20, 200, 230), 2.0),
    "dark blue": ((90, 25, 15), 2.7),
}


@pytest.mark.parametrize(("paint", "outer_m"), PAINTS.values(), ids=PAINTS)
def test_gates_of_any_colour_and_proportion_are_found(detector, paint, outer_m):
    gates = [square_gate(yaw_deg=15.0, outer_m=outer_m), square_gate(x=7.0, y=4.0, yaw_deg=-10.0, outer_m=outer_m)]
    view = View((-6, 0.5, 0), *gates)
    found = detector.detect(view.image(8, paint=paint))
    assert len(found) == len(gates)
    for gate in gates:
        errors = corner_errors_px(found, view.px(gate))
        assert errors is not None and errors.max() < 1.0


def test_the_colour_once_learned_stays_until_it_is_seen_no_more(detector):
    """Far gates alone do not tell their colour; those of another course do."""
    rng, blue = np.random.default_rng(9), (240, 80, 20)
    far, near = (View((-range_m, 0, 0), square_gate()) for range_m in (22, 7))

    def seen(view, paint):
        return len(detector.detect(view.image(rng, paint=paint)))

    assert [seen(near, blue), seen(far, blue), seen(near, ORANGE), seen(near, blue)] == [1, 1, 1, 1]


@pytest.mark.parametrize("yaw_deg", [-60.0, 0.0, 45.0])
def test_a_thin_frame_at_a_slant_is_found(detector, yaw_deg):
    gate = square_gate(yaw_deg=yaw_deg, outer_m=2.0)
    slices = [replace(gate, centre_m=tuple(gate.p_wg + x * gate.R_wg[:, 0])) for x in np.linspace(-0.08, 0.08, 9)]
    view = View((-7, 0.3, -0.2), gate, roll=0.2)
    image = render(slices, view.p_wb, view.q_wb, np.random.default_rng(13))
    (found,) = detector.detect(image, SearchWindow(2.0 / 1.5))
    faces = np.array([view.px(face) for face in (slices[0], slices[-1])])
    along, k = np.roll(faces, -1, 1) - faces, range(4)
    inward = np.stack([-along[..., 1], along[..., 0]], -1).mean(0)
    face = (faces * inward).sum(-1).argmax(0)  # that which reaches further in makes the side of the hole
    hole = intersect_lines(faces[face, k][None], along[face, k][None])[0]
    assert corner_errors_px([found], hole).max() < 1.0


@pytest.mark.parametrize("roll_deg", [44.0, 46.0])
def test_a_gate_on_its_corner_is_one_gate(detector, roll_deg):
    view = View((-6, 0, 0), square_gate(), roll=np.radians(roll_deg))
    assert len(detector.detect(view.image(5, corridor=True))) == 1


def test_many_false_holes_do_not_break_it(detector):
    u, v = np.meshgrid(np.arange(CAMERA.width_px), np.arange(CAMERA.height_px))
    frames = (np.minimum(u % 26, v % 26) < 8)[..., None]
    detector.detect(np.where(frames, np.array([25, 60, 245], np.uint8), np.uint8(0)))
