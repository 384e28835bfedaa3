"""Detectors by a network, shipped and taught: they find drawn gates, say what they do not see, and survive any image.

`orange.onnx` was taught by `train-detector` on drawn frames of the simulator's gates.
"""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from drawing import CAMERA, corners_px, looking_at, render, square_gate

from gate_racer.perception.detection import Detector
from gate_racer.perception.learned.config import GroupMeasurementConfig
from gate_racer.perception.learned.detector import LearnedDetector, completed
from gate_racer.perception.learned.network import NET
from gate_racer.perception.roi import SearchWindow
from gate_racer.perception.taught.detector import TaughtDetector
from gate_racer.vehicle.camera import Camera

SHAPE = (CAMERA.height_px, CAMERA.width_px, 3)


TAUGHT = Path(__file__).parent / "orange.onnx"
OPENED = {"learned": LearnedDetector, "taught": lambda camera: TaughtDetector(camera, TAUGHT)}
by_the_shipped_one = pytest.mark.parametrize("opened", ["learned"], indirect=True)  # the other was taught too briefly


@pytest.fixture(scope="module", params=OPENED)
def opened(request):
    return OPENED[request.param]


@pytest.fixture(scope="module")
def detector(opened) -> Detector:
    return opened(CAMERA)


def clockwise(px) -> bool:
    u, v = px[2] - px[0], px[3] - px[1]
    return bool(u[0] * v[1] > u[1] * v[0])


def test_the_file_is_small():
    assert NET.stat().st_size < 1_000_000


@pytest.mark.parametrize("range_m", [4.0, 7.0, 12.0, 17.0])
@pytest.mark.parametrize("yaw_deg", [-30.0, 10.0])
def test_gates_are_found_to_a_fraction_of_a_pixel(detector, range_m, yaw_deg):
    rng, gate = np.random.default_rng(round(range_m)), square_gate(yaw_deg=yaw_deg)
    p_wb = np.array([-range_m, *rng.uniform(-0.1, 0.1, 2) * range_m])
    q_wb = looking_at(p_wb, gate, rng.uniform(-15, 15, 2), roll=rng.uniform(-0.5, 0.5))
    truth = corners_px(gate, p_wb, q_wb)
    found = detector.detect(render([gate], p_wb, q_wb, rng))[0]
    assert np.linalg.norm(found.corners_px - truth, axis=-1).max() < 2.0
    assert found.visible.all() and clockwise(found.corners_px)
    assert found.corners_px.sum(-1).argmin() == 0, "the first corner is the one nearest to the top left"
    assert (np.linalg.eigvalsh(found.cov_px) > 0).all()
    assert 0 < found.score <= 1


@by_the_shipped_one
def test_a_gate_within_a_gate_is_another_gate(detector):
    near, far, p_wb = square_gate(), square_gate(x=6.0, y=0.1), np.array([-5.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, near)
    found = detector.detect(render([near, far], p_wb, q_wb, np.random.default_rng(1)))
    for gate in (near, far):
        truth = corners_px(gate, p_wb, q_wb)
        assert min(np.abs(d.corners_px - truth).max() for d in found) < 2.0


def test_in_a_window_only_its_gates_are_looked_for(detector):
    one, other, p_wb = square_gate(y=-3.0), square_gate(y=3.0), np.array([-8.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, square_gate())
    image = render([one, other], p_wb, q_wb, np.random.default_rng(2))
    assert len(detector.detect(image)) == 2
    (found,) = detector.detect(image, SearchWindow(1.8, 331, 61, 641, 301))
    assert np.abs(found.corners_px - corners_px(other, p_wb, q_wb)).max() < 2.0


def test_an_opening_that_a_nearer_gate_cuts_is_not_called_whole(detector):
    near, far, p_wb = square_gate(x=-3.0, y=1.35), square_gate(x=3.0), np.array([-6.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, far)
    truth = corners_px(far, p_wb, q_wb)
    found = detector.detect(render([near, far], p_wb, q_wb, np.random.default_rng(2)))
    assert any(np.abs(d.corners_px - corners_px(near, p_wb, q_wb)).max() < 2.0 for d in found)
    for d in found:
        of_far = np.linalg.norm(d.corners_px.mean(0) - truth.mean(0)) < 20
        assert not (of_far and d.visible.all())


def test_a_gate_cut_by_the_edge_of_the_image_is_never_called_whole(detector):
    gate, p_wb = square_gate(), np.array([-4.0, 0.0, 0.0])
    for off_px in (280.0, 300.0, 310.0):
        q_wb = looking_at(p_wb, gate, off_px=(off_px, 0.0))
        truth = corners_px(gate, p_wb, q_wb)
        assert CAMERA.sees(truth).tolist() == [True, False, False, True]
        for found in detector.detect(render([gate], p_wb, q_wb, np.random.default_rng(3))):
            assert not found.visible.all()
            assert CAMERA.sees(found.corners_px)[found.visible].all()


@pytest.mark.parametrize(
    "image",
    [
        None,
        "image",
        np.zeros((180, 320, 3), np.uint8),
        np.zeros((0, 0, 3), np.uint8),
        np.zeros(SHAPE[:2], np.uint8),
        np.zeros(SHAPE),
    ],
    ids=["none", "text", "small", "empty", "grey", "float"],
)
def test_images_of_another_form_are_refused_and_counted(detector, image):
    before = detector.refused
    assert detector.detect(image) == []
    assert detector.refused == before + 1


@pytest.mark.parametrize("level", [0, 128, 255])
def test_plain_images_hold_no_gates(detector, level):
    before = detector.refused
    assert detector.detect(np.full(SHAPE, level, np.uint8)) == []
    assert detector.refused == before


def test_noise_holds_no_gates_and_breaks_nothing(detector):
    rng = np.random.default_rng(5)
    for blur in (0, 3, 9):
        noise = rng.integers(0, 256, SHAPE, dtype=np.uint8)
        assert detector.detect(cv2.GaussianBlur(noise, (0, 0), blur) if blur else noise) == []


def test_the_same_image_gives_the_same_gates(detector, opened):
    gate, p_wb = square_gate(), np.array([-6.0, 0.0, 0.0])
    image = render([gate], p_wb, looking_at(p_wb, gate), np.random.default_rng(1))
    a, b = detector.detect(image)[0], opened(CAMERA).detect(image)[0]
    np.testing.assert_array_equal(a.corners_px, b.corners_px)


def test_a_camera_of_another_size_finds_them_as_well():
    camera, gate, p_wb = Camera(514, 482, 300.0, 300.0, 257.0, 241.0, 0.0), square_gate(), np.array([-6.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate)
    image = cv2.resize(render([gate], p_wb, q_wb, np.random.default_rng(1)), (514, 482))
    found = LearnedDetector(camera).detect(image)[0]
    truth = (corners_px(gate, p_wb, q_wb) + 0.5) * [514 / 640, 482 / 360] - 0.5
    assert np.linalg.norm(found.corners_px - truth, axis=-1).max() < 2.0


@pytest.mark.parametrize("size", [(360, 360), (345, 345), (640, 352)])
def test_images_of_any_size_are_searched(size):
    width, height = size
    gate, p_wb = square_gate(), np.array([-6.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, gate)
    u, v = (640 - width) // 2, (360 - height) // 2
    image = render([gate], p_wb, q_wb, np.random.default_rng(1))[v : v + height, u : u + width]
    found = TaughtDetector(replace(CAMERA, width_px=width, height_px=height), TAUGHT).detect(image)[0]
    assert np.linalg.norm(found.corners_px + [u, v] - corners_px(gate, p_wb, q_wb), axis=-1).max() < 2.0


@pytest.mark.parametrize("missing", [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (3, 0)])
def test_a_square_is_completed_to_itself(missing):
    square = np.array([[100.0, 50], [140, 60], [130, 100], [90, 90]])
    part = square.copy()
    part[list(missing)] = np.nan
    px, sigma_px = completed(part, GroupMeasurementConfig())
    np.testing.assert_allclose(px, square, atol=1e-9)
    assert sigma_px > 10
