"""The detector by colour: corners to a fraction of a pixel in any light, and the geometry and the evidence that it goes by."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from detections import associated, nees
from drawing import CAMERA, ORANGE, View, render, square_gate

from gate_racer.model.quadrilateral import DEPTH_RATIO, NEXT, GateModel, intersect_lines, outward_normals
from gate_racer.model.rims import GateAppearance, GateRims
from gate_racer.perception.association import Associator
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.classical.evidence import Evidence, conditions, rim_gaps_px, verify
from gate_racer.perception.classical.proposals import fourth_sides
from gate_racer.perception.detection import Detection
from gate_racer.perception.edges import QuadEdges
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


# Unseen sides of an opening are predicted from the others.


LENS = replace(CAMERA, k1=-0.15, k2=0.02, k3=-0.002, p1=1e-3)


@pytest.mark.parametrize("camera", [CAMERA, LENS], ids=["pinhole", "lens"])
def test_three_sides_of_a_square_tell_the_fourth_exactly(camera):
    rng, tried = np.random.default_rng(0), 0
    for _ in range(300):
        gate, p_wb = square_gate(yaw_deg=rng.uniform(-50, 50)), [-rng.uniform(1.0, 8.0), *rng.uniform(-1, 1, 2)]
        view = View(p_wb, gate, off_px=rng.uniform(-200, 200, 2), roll=rng.uniform(-1, 1))
        if ((gate.corners() - p_wb) @ view.R_wc)[:, 2].min() < 0.2:
            continue
        quad, tried = camera.project((gate.corners() - p_wb) @ view.R_wc), tried + 1
        ends = fourth_sides(quad[None], camera)[0]
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


# Near a gate the rim of its near face is measured if its outline is visible, else the hole.


TURN_RAD = 1e-3
FACE, OUTLINE, WALL = (5, 50, 255), (20, 100, 255), (5, 58, 232)  # BGR, as in real frames
OUTLINE_M, DEPTH_M, OVER = 0.02, 0.16, 4


def deep_gate(view, outline=OUTLINE, depth_m=DEPTH_M):
    """An image of a gate with two faces, walls between them and an outline on both rims, by painting squares back to front."""
    (gate,) = view.gates

    def px(side_m, x_m):
        at = view.project(gate.corners(side_m) + x_m * gate.R_wg[:, 0])
        return np.round(((at + 0.5) * OVER - 0.5) * 16).astype(np.int32)

    def fill(image, quads, bgr):
        for quad in quads:
            cv2.fillConvexPoly(image, quad, bgr, cv2.LINE_8, 4)

    image = np.full((CAMERA.height_px * OVER, CAMERA.width_px * OVER, 3), 10, np.uint8)
    half, inner = depth_m / 2, gate.opening_m - OUTLINE_M
    fill(image, [px(gate.outer_m, -half)], FACE)
    fill(image, [px(gate.opening_m + OUTLINE_M, -half)], outline)
    fill(image, [px(inner, -half)], WALL)
    far = np.zeros(image.shape[:2], np.uint8)  # what is seen through both faces
    both = []
    for x_m in (-half, half):
        mask = far.copy()
        cv2.fillConvexPoly(mask, px(inner, x_m), 255, cv2.LINE_8, 4)
        both.append(mask)
    image[(both[0] & both[1]) > 0] = 10
    image = cv2.resize(image, (CAMERA.width_px, CAMERA.height_px), interpolation=cv2.INTER_AREA)
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1], cv2.IMREAD_COLOR)


def face_px(view, depth_m=DEPTH_M):
    rims = GateRims(view.gates, GateAppearance(depth_m=depth_m))
    return view.project(rims.near_face(np.array([0]), view.p_wb[None])[0])


@pytest.mark.parametrize(("range_m", "yaw_deg"), [(3.5, 15.0), (4.5, -25.0), (5.5, 0.0)])
def test_the_near_face_is_measured_where_its_outline_is_seen(range_m, yaw_deg):
    view = View((-range_m, 0.1, -0.1), square_gate(yaw_deg=yaw_deg), roll=0.1)
    (found,) = ColourDetector(CAMERA).detect(deep_gate(view))
    error = found.corners_px - face_px(view)
    assert found.near_face and found.visible.all()
    assert np.linalg.norm(error, axis=-1).max() < 0.8
    assert max(map(nees, error, found.cov_px)) < 16.0


def test_either_edge_fixes_the_position_without_a_bias():
    """With a frame as deep as rendered, hole and near face give equally accurate positions."""
    view = View((-4.5, 0.2, -0.1), square_gate(yaw_deg=10.0))
    associator = Associator(view.gates, CAMERA)
    for outline in (OUTLINE, FACE):
        found = ColourDetector(CAMERA).detect(deep_gate(view, outline))
        (fix,), _ = associated(associator, found, view.p_wb + [0.2, -0.1, 0.1], view.q_wb, 0.09, TURN_RAD)
        assert found[0].near_face == (outline is OUTLINE) and np.linalg.norm(fix.p_wb - view.p_wb) < 0.05


@pytest.mark.parametrize("camera", [CAMERA, LENS], ids=["pinhole", "lens"])
def test_an_oblique_opening_parts_the_rims_as_its_pose_says(camera):
    gate, p_wb = square_gate(yaw_deg=-30.0), np.array([-4.0, -2.0, -0.5])
    view, into = View(p_wb, gate), DEPTH_RATIO / 2 * gate.opening_m * gate.R_wg[:, 0]
    hole, near, far = (camera.project((gate.corners() + by - p_wb) @ view.R_wc) for by in (0 * into, -into, into))
    outward = outward_normals(hole, np.roll(hole, -1, 0))
    first = ((near - far) * outward).sum(-1)
    np.testing.assert_allclose(rim_gaps_px(hole[None], camera)[0, :, 0], np.maximum(first, 0.0), atol=1e-3)


@pytest.mark.parametrize("depth_m", [0.12, 0.16, 0.26])
def test_the_near_face_is_where_it_is_however_deep_the_gate(depth_m):
    """The near face stays and the far one moves away: the corners stay too, by less than their standard deviation."""
    view = View((-4.0, 0.1, -0.1), square_gate(x=depth_m / 2), roll=0.1)
    (found,) = ColourDetector(CAMERA).detect(deep_gate(view, depth_m=depth_m))
    error = found.corners_px - face_px(view, depth_m)
    assert found.near_face
    assert np.linalg.norm(error, axis=-1).max() < 0.5 and abs(edge_offset_px(error, found.corners_px)) < found.sigma_px


@pytest.mark.parametrize("blur_px", [0.3, 0.7, 1.0])
def test_a_blur_does_not_move_the_near_face(blur_px):
    """A thin line's flanks move with the blur, its middle does not."""
    view = View((-4.5, 0.1, -0.1), square_gate(), roll=0.1)
    (found,) = ColourDetector(CAMERA).detect(cv2.GaussianBlur(deep_gate(view), (0, 0), blur_px))
    assert found.near_face
    assert abs(edge_offset_px(found.corners_px - face_px(view), found.corners_px)) < 0.15


def edge_offset_px(error, corners_px):
    """Return the mean outward offset of all sides from the true ones, px."""
    outward = corners_px - corners_px.mean(0)
    outward /= np.linalg.norm(outward, axis=-1).mean() / np.sqrt(2)
    return (error * outward).sum() / (outward**2).sum()


@pytest.mark.parametrize("range_m", [3.5, 12.0])
def test_the_mirror_image_has_the_mirrored_corners(range_m):
    image = deep_gate(View((-range_m, 0.1, -0.1), square_gate(yaw_deg=10.0), roll=0.1))
    # Columns 1 to the last: the principal point is the middle of their centres, so the mirrored camera is the camera.
    mirrored = np.zeros_like(image)
    mirrored[:, 1:] = image[:, :0:-1]
    (found,), (seen,) = (ColourDetector(CAMERA).detect(one) for one in (image, mirrored))
    back = seen.corners_px * [-1.0, 1.0] + [CAMERA.width_px, 0.0]
    assert seen.near_face == found.near_face
    np.testing.assert_allclose(back[[1, 0, 3, 2]], found.corners_px, atol=0.05)


LOOKS = {
    "as drawn": lambda image: image,
    "soft": lambda image: cv2.GaussianBlur(image, (0, 0), 0.7),
    "dark": lambda image: cv2.LUT(image, (255 * (np.arange(256) / 255) ** 1.2).astype(np.uint8)),
    "coarse": lambda image: cv2.imdecode(
        cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 60])[1], cv2.IMREAD_COLOR
    ),
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_covariance_of_corners_holds_in_any_look_and_size(look):
    """NEES of a corner is 2 in the mean; that of an edge that is found better than is stated is less."""
    errors = []
    for range_m in (3.5, 4.5, 9.0, 16.0, 28.0):
        view = View((-range_m, 0.1, -0.1), square_gate(yaw_deg=8.0), roll=0.1)
        (found,) = ColourDetector(CAMERA).detect(LOOKS[look](deep_gate(view)))
        _, hole_w = GateRims(view.gates, GateAppearance(depth_m=DEPTH_M)).opening(np.array([0]), view.p_wb[None])
        truth_px = face_px(view) if found.near_face else view.project(hole_w[0])
        errors += map(nees, found.corners_px - truth_px, found.cov_px)
    assert 0.1 < np.mean(errors) < 4.0


# Verification of gate hypotheses, one predicate at a time.


SQUARE = np.array([[100.0, 100.0], [160.0, 100.0], [160.0, 160.0], [100.0, 160.0]])
ALL, NONE = np.ones((1, 4), bool), np.zeros((1, 4), bool)


def edges(measured=ALL) -> QuadEdges:
    quads = SQUARE[None]
    return QuadEdges(quads, outward_normals(quads, quads[:, NEXT]), np.full((1, 4, 2), 0.1), measured, np.ones((1, 4)))


# A gate wholly in view, with everything where it should be and nothing behind it.
GATE = Evidence(
    opening=edges(),
    silhouette=edges(),
    visible=ALL,
    on_frame=np.ones((1, 4)),
    beyond=np.zeros((1, 4)),
    fits=ALL,
    shown=ALL,
    middle_inside=ALL,
    silhouette_inside=np.ones(1, bool),
    suspect=NONE,
    replaced=NONE,
    source=np.zeros(1, int),
    first_view=True,
)


def sides(*values) -> np.ndarray:
    return np.array([values])


FAULTS = {  # what is wrong, by the condition that fails
    "corners": {"visible": NONE},
    "colour": {"on_frame": sides(0.1, 0.1, 1.0, 1.0)},
    # The colour goes on beyond the frame, and its end is not seen everywhere.
    "background": {"beyond": np.full((1, 4), 0.9), "fits": sides(True, True, True, False)},
    # The frame ends in one direction only, though the opening seems whole.
    "silhouette": {"fits": sides(True, False, True, False), "beyond": np.full((1, 4), 0.3)},
    # A side was replaced beside which neither the frame ends nor anything covers it.
    "replaced sides": {"replaced": sides(True, False, False, False), "fits": sides(False, True, True, True)},
    # Lettering may be a hole, and one side of the silhouette is in view but not seen.
    "second view": {"first_view": False, "fits": sides(False, True, True, True)},
}


def test_a_gate_in_order_passes_every_predicate_and_is_accepted():
    assert all(holds.all() for holds in conditions(GATE).values())
    accepted, score = verify(GATE)
    assert accepted.tolist() == [0] and score == pytest.approx(1.0)


@pytest.mark.parametrize(("predicate", "changes"), FAULTS.items(), ids=FAULTS)
def test_a_failed_predicate_refuses_and_is_the_only_failed_one(predicate, changes):
    evidence = replace(GATE, **changes)
    assert {name for name, holds in conditions(evidence).items() if not holds.all()} == {predicate}
    assert not len(verify(evidence)[0])


@pytest.mark.parametrize("side", range(4))
def test_one_side_may_be_washed_white(side):
    washed = np.where(np.arange(4) == side, 0.0, 1.0)[None]
    assert verify(replace(GATE, on_frame=washed))[0].tolist() == [0]
