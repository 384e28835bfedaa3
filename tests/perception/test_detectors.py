"""What every detector holds to, and the windows that it is told to look into."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from drawing import CAMERA, View, corners_px, looking_at, render, square_gate

from gate_racer.model.states import State
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detector
from gate_racer.perception.registry import open_detector
from gate_racer.perception.roi import RoiPredictor, SearchWindow
from gate_racer.perception.taught import detector as taught
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import exp, product

SHAPE = (CAMERA.height_px, CAMERA.width_px, 3)

OPENED = {
    "classical": ColourDetector,
    "learned": lambda camera: open_detector("learned", camera),
    "taught": lambda camera: taught.TaughtDetector(camera, taught.SHIPPED),
}


@pytest.fixture(scope="module", params=OPENED)
def opened(request):
    return OPENED[request.param]


@pytest.fixture(scope="module")
def detector(opened) -> Detector:
    return opened(CAMERA)


def clockwise(px) -> bool:
    u, v = px[2] - px[0], px[3] - px[1]
    return bool(u[0] * v[1] > u[1] * v[0])


@pytest.mark.parametrize(("range_m", "yaw_deg"), [(4.0, -30.0), (7.0, 10.0), (12.0, -30.0), (17.0, 10.0)])
def test_gates_are_found_to_a_fraction_of_a_pixel(detector, opened, range_m, yaw_deg):
    rng, gate = np.random.default_rng(round(range_m)), square_gate(yaw_deg=yaw_deg)
    p_wb = [-range_m, *rng.uniform(-0.1, 0.1, 2) * range_m]
    view = View(p_wb, gate, off_px=rng.uniform(-15, 15, 2), roll=rng.uniform(-0.5, 0.5))
    found = detector.detect(view.image(rng, corridor=range_m < 5))[0]
    assert np.linalg.norm(found.corners_px - view.px(), axis=-1).max() < (2.0 if opened is OPENED["taught"] else 1.0)
    assert found.visible.all() and clockwise(found.corners_px)
    assert found.corners_px.sum(-1).argmin() == 0, "the first corner is the one nearest to the top left"
    assert (np.linalg.eigvalsh(found.cov_px) > 0).all()
    assert 0 < found.score <= 1


def test_a_gate_within_a_gate_is_another_gate(detector):
    view = View((-5, 0, 0), square_gate(), square_gate(x=6.0, y=0.1))
    found = detector.detect(view.image(1))
    for gate in view.gates:
        assert min(np.abs(d.corners_px - view.px(gate)).max() for d in found) < 2.0


def test_in_a_window_only_its_gates_are_looked_for(detector):
    one, other, p_wb = square_gate(y=-3.0), square_gate(y=3.0), np.array([-8.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, square_gate())
    image = render([one, other], p_wb, q_wb, np.random.default_rng(2))
    assert len(detector.detect(image)) == 2
    (found,) = detector.detect(image, SearchWindow(1.8, 331, 61, 641, 301))
    assert np.abs(found.corners_px - corners_px(other, p_wb, q_wb)).max() < 2.0


def test_an_opening_that_a_nearer_gate_cuts_is_not_called_whole(detector):
    near = square_gate(x=-3.0, y=1.35)
    view = View((-6, 0, 0), square_gate(x=3.0), near)
    found = detector.detect(view.image(2))
    assert any(np.abs(d.corners_px - view.px(near)).max() < 2.0 for d in found)
    for d in found:
        of_far = np.linalg.norm(d.corners_px.mean(0) - view.px().mean(0)) < 20
        assert not (of_far and d.visible.all())


def test_a_gate_cut_by_the_edge_of_the_image_is_never_called_whole(detector):
    for off_px in (280.0, 300.0, 310.0):
        view = View((-4, 0, 0), square_gate(), off_px=(off_px, 0.0))
        assert CAMERA.sees(view.px()).tolist() == [True, False, False, True]
        for found in detector.detect(view.image(3)):
            assert not found.visible.all()
            assert CAMERA.sees(found.corners_px)[found.visible].all()


@pytest.mark.parametrize(
    "image",
    [None, "image", np.zeros((0, 0, 3), np.uint8), np.zeros((180, 320, 3), np.uint8), np.zeros(SHAPE[:2], np.uint8),
     np.zeros((*SHAPE[:2], 4), np.uint8), np.full(SHAPE, np.nan)],
    ids=["none", "text", "no pixel", "small", "grey", "four channels", "not finite"],
)  # fmt: skip
def test_images_of_another_form_are_refused_and_counted(detector, image):
    before = detector.refused
    assert detector.detect(image) == []
    assert detector.refused == before + 1


FACE, OUTLINE = (5, 50, 255), (20, 100, 255)  # BGR, as in real frames


def noise(blur_px):
    image = np.random.default_rng(5).integers(0, 256, SHAPE, dtype=np.uint8)
    return cv2.GaussianBlur(image, (0, 0), blur_px) if blur_px else image


def squares_without_hole():
    image = np.zeros(SHAPE, np.uint8)
    cv2.rectangle(image, (100, 100), (200, 200), (25, 60, 245), -1)
    cv2.line(image, (300, 50), (500, 300), (25, 60, 245), 12)
    return image


WITHOUT_GATES = {
    "black": np.full(SHAPE, 0, np.uint8),
    "white": np.full(SHAPE, 255, np.uint8),
    "gate-coloured": np.full(SHAPE, FACE, np.uint8),
    "gate-coloured floor": np.vstack([np.zeros((180, 640, 3), np.uint8), np.full((180, 640, 3), FACE, np.uint8)]),
    "stripes": np.where(np.indices(SHAPE[:2]).sum(0)[..., None] % 40 < 20, FACE, OUTLINE).astype(np.uint8),
    "noise": noise(0),
    "softest noise": noise(9),
    "full squares": squares_without_hole(),
}


@pytest.mark.parametrize("name", WITHOUT_GATES)
def test_no_gate_is_seen_where_none_is(detector, name):
    before = detector.refused
    assert detector.detect(WITHOUT_GATES[name]) == []
    assert detector.refused == before


@pytest.mark.parametrize("opened", ["classical", "learned"], indirect=True)  # a taught one has to be shown lamps
def test_lamps_are_no_gates(detector):
    image = np.zeros(SHAPE, np.uint8)
    for k, side in enumerate((12, 20, 40, 80)):
        cv2.rectangle(image, (30 + 150 * k, 60), (30 + 150 * k + side, 60 + side), (255, 255, 255), max(2, side // 4))
    cv2.circle(image, (100, 250), 20, (0, 0, 160), -1)
    assert detector.detect(image) == []


def test_a_camera_of_another_size_finds_them_as_well():
    camera, view = Camera(514, 482, 300.0, 300.0, 257.0, 241.0, 0.0), View((-6, 0, 0), square_gate())
    found = OPENED["learned"](camera).detect(cv2.resize(view.image(1), (514, 482)))[0]
    truth = (view.px() + 0.5) * [514 / 640, 482 / 360] - 0.5
    assert np.linalg.norm(found.corners_px - truth, axis=-1).max() < 2.0


@pytest.mark.parametrize("size", [(360, 360), (345, 345), (640, 352)])
def test_images_of_any_size_are_searched(size):
    width, height = size
    view = View((-6, 0, 0), square_gate())
    u, v = (640 - width) // 2, (360 - height) // 2
    image = view.image(1)[v : v + height, u : u + width]
    found = taught.TaughtDetector(replace(CAMERA, width_px=width, height_px=height), taught.SHIPPED).detect(image)[0]
    assert np.linalg.norm(found.corners_px + [u, v] - view.px(), axis=-1).max() < 2.0


class Claims:
    """A network that reports the same openings in every image."""

    def __init__(self, quads):
        self.card = taught.NetworkCard("", "", 0.5, 1.0, 0.02, 0.1)
        self._quads = np.array(quads, float).reshape(-1, 4, 2)

    def look(self, image):
        return np.full(len(self._quads), 0.9), self._quads, self._quads.reshape(-1, 2)


def test_what_a_network_claims_is_verified_in_the_image():
    rng, view = np.random.default_rng(1), View((-6, 0, 0), square_gate())
    anywhere = rng.uniform(0, 600, (60, 1, 2)) + rng.uniform(-80, 80, (60, 4, 2))
    hollow = [[np.nan] * 2] * 4
    for claimed in ([], anywhere, [hollow, [[0, 0]] * 4, [[1e9, -1e9], [1e9, 1e9], [-1e9, 1e9], [-1e9, -1e9]]]):
        found = ColourDetector(CAMERA, network=Claims(claimed)).detect(view.image(1))
        assert len(found) == 1 and np.abs(found[0].corners_px - view.px()).max() < 2.0


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 640, 3), (640, 1, 3), (2, 2, 3), (3, 5, 3)])
def test_a_network_sees_nothing_in_an_image_of_hardly_a_pixel(shape):
    assert taught.find_gates(taught.GateNetwork(taught.SHIPPED), np.full(shape, 200, np.uint8)) == []


# Windows: they show what the camera sees of a course as long as the pose is as good as it says, and nothing is lost in them.


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
