"""Poses, exact in and exact out, and association: the right gate within the prior's reach, none where two would do."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from detections import FLAT, NEES_BAND, SIGMA_RAD, associated, nees, prior, seen
from drawing import CAMERA, View, corners_px, looking_at, square_gate
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from gate_racer.model.rims import GateAppearance
from gate_racer.perception.association import FORBIDDEN, Associator, assign, unambiguous
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detection
from gate_racer.perception.pose import both_poses, gate_pose, ippe, locate_camera, ray_fit, rays, residual
from gate_racer.perception.resting_focal import resting_focal
from gate_racer.race.lockstep import detections
from gate_racer.sim.view.projected import ProjectedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import exp, from_euler, matrix, product
from gate_racer.vehicle.vehicle import load_vehicle
from tests.estimation.flying import assert_consistent

RANGES = st.floats(2.5, 40.0)
ANGLES = st.floats(-40.0, 40.0)


def scene(range_m, yaw_deg, roll=0.0):
    """Gate, p_wb, q_wb, R_wc and the exact corners of an opening straight ahead."""
    gate = square_gate(x=1.0, y=-2.0, z=3.0, yaw_deg=yaw_deg)
    view = View(gate.p_wg - np.array([range_m, 0.1 * range_m, -0.05 * range_m]), gate, roll=roll)
    return gate, *view.pose, view.R_wc, view.px()


def located(px, sigma_px, gate, R_wc, prior, sigma_rad=0.0):
    """The camera's position by the attitude, of four corners with a standard deviation of sigma_px."""
    cov_px = np.tile(sigma_px**2 * np.eye(2), (4, 1, 1))
    return locate_camera(px, cov_px, gate.corners(), R_wc, prior, np.float64(0.0), sigma_rad, CAMERA)


def nearest(px, gate, R_cg):
    """The pose of an opening whose rotation is the nearer of both to R_cg."""
    poses = both_poses(px, gate.opening_m, CAMERA)
    return max(poses, key=lambda pose: np.trace(R_cg.T @ pose.R_cg))


@given(RANGES, ANGLES, st.floats(-1.0, 1.0))
def test_exact_corners_give_the_exact_pose_and_with_the_attitude_the_exact_position(range_m, yaw_deg, roll):
    gate, p_wb, _, R_wc, px = scene(range_m, yaw_deg, roll)
    R_cg = R_wc.T @ gate.R_wg
    pose = nearest(px, gate, R_cg)
    np.testing.assert_allclose(pose.p_cg, R_wc.T @ (gate.p_wg - p_wb), atol=1e-5)
    np.testing.assert_allclose(pose.R_cg, R_cg, atol=1e-3)  # the tilt of a distant square is nearly free
    assert pose.reprojection_px < 1e-4
    gate, p_wb, _, R_wc, px = scene(range_m, yaw_deg, roll)
    start, miss = ray_fit(rays(px, CAMERA) @ R_wc.T, gate.corners(), np.ones(4))
    np.testing.assert_allclose(start, p_wb, atol=1e-6)
    assert miss < 1e-7
    np.testing.assert_allclose(located(px, 0.3, gate, R_wc, p_wb + 0.05).p_wc, p_wb, atol=1e-6)


def test_the_jacobians_are_the_derivatives():
    gate, p_wb, _, R_wc, px = scene(6.0, 25.0)
    _, J_p, J_theta = residual(px, gate.corners(), R_wc, p_wb, CAMERA)
    for k, step in enumerate(1e-6 * np.eye(3)):
        moved = residual(px, gate.corners(), R_wc, p_wb + step, CAMERA)[0]
        turned = residual(px, gate.corners(), R_wc @ matrix(exp(step)), p_wb, CAMERA)[0]
        np.testing.assert_allclose(-moved / 1e-6, J_p[:, k], atol=1e-3)
        np.testing.assert_allclose(-turned / 1e-6, J_theta[:, k], atol=1e-3)


def test_the_covariance_of_a_gate_pose_is_consistent():
    rng, sigma_px, errors = np.random.default_rng(4), 0.2, []
    for _ in range(400):
        gate = square_gate(yaw_deg=rng.uniform(-40, 40))
        p_wb = gate.p_wg - [rng.uniform(4, 12), *rng.uniform(-1, 1, 2)]
        view = View(p_wb, gate, roll=rng.uniform(-0.5, 0.5))
        px = view.px() + rng.normal(0, sigma_px, (4, 2))
        cov_p = gate_pose(px, sigma_px, gate.opening_m, CAMERA, rng).cov_p
        pose = nearest(px, gate, view.R_wc.T @ gate.R_wg)
        errors.append(nees(pose.p_cg - view.R_wc.T @ (gate.p_wg - p_wb), cov_p))
    assert_consistent(errors, 3)


def test_ippe_agrees_with_opencv():
    square = 0.75 * np.array([[-1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])
    rng = np.random.default_rng(5)
    for _ in range(20):
        _, _, _, _, px = scene(rng.uniform(3, 20), rng.uniform(-40, 40), rng.uniform(-1, 1))
        px = px + rng.normal(0, 0.5, (4, 2))
        _, _turns, centres, _ = cv2.solvePnPGeneric(square, px, CAMERA.K, None, flags=cv2.SOLVEPNP_IPPE_SQUARE)
        ours = ippe(px, 1.5, CAMERA)[1]
        for centre in centres:
            assert min(np.linalg.norm(p - centre.ravel()) for p in ours) < 1e-4


@given(st.lists(st.floats(-2000, 2000), min_size=8, max_size=8))
def test_no_corners_break_the_pose(values):
    gate_pose(np.array(values).reshape(4, 2), 0.3, 1.5, CAMERA, np.random.default_rng(3))


@pytest.mark.parametrize(("range_m", "yaw_deg"), [(4.0, 35.0), (10.0, 0.0), (20.0, 35.0)])
def test_the_covariance_of_a_position_is_consistent(range_m, yaw_deg):
    rng = np.random.default_rng(2)
    sigma_px, sigma_rad, errors = 0.4, 0.01, []
    gate, p_wb, q_wb, R_wc, _ = scene(range_m, yaw_deg)
    for _ in range(400):
        q_true = product(q_wb, exp(rng.normal(0, sigma_rad, 3)))
        px = corners_px(gate, p_wb, q_true) + rng.normal(0, sigma_px, (4, 2))
        fix = located(px, sigma_px, gate, R_wc, p_wb, sigma_rad)
        errors.append(nees(fix.p_wc - p_wb, fix.cov))
    assert NEES_BAND[0] < np.mean(errors) < NEES_BAND[1]


# Association: the right gate within the prior's reach, whole or cut, none where two would do; fixes hold what they claim.


@pytest.mark.parametrize(
    ("course", "off_m", "sigma_rad", "share"),
    [("vq1", 0.0, SIGMA_RAD, 0.9), ("vq2", 0.0, SIGMA_RAD, 0.9), ("vq1", 1.0, np.radians(10.0), 0.5)],
)
def test_the_right_gates_within_the_priors_error(course, off_m, sigma_rad, share):
    """A prior wrong by a metre and by 10 deg, its standard deviation, names fewer gates, and no wrong one."""
    rng = np.random.default_rng(1)
    track = load_track(course)
    associator = Associator(track.gates, CAMERA, FLAT)
    total = fixed = 0
    for gate in track.gates:
        for _ in range(5):
            ahead = np.array([-rng.uniform(4, 12), rng.uniform(-2, 2), rng.uniform(-1, 1)])
            p_wb = gate.p_wg + gate.R_wg @ ahead
            q_true = looking_at(p_wb, gate, rng.uniform(-40, 40, 2), roll=rng.uniform(-0.8, 0.8))
            move, turned = rng.normal(size=(2, 3)) / np.sqrt(3)
            if off_m:
                move, turned = off_m * move / np.linalg.norm(move), turned / np.linalg.norm(turned)
            q_wb = product(q_true, exp(sigma_rad * turned))
            detections, numbers = seen(track.gates, p_wb, q_true, rng)
            fixes, rejected = associator.associate(prior(1.5, p_wb + move, q_wb, 1 / 3, sigma_rad), detections)
            assert len(fixes) + rejected == len(detections)
            total, fixed = total + len(detections), fixed + len(fixes)
            for fix in fixes:
                truth = corners_px(track.gates[fix.gate], p_wb, q_true)
                assert np.abs(fix.corners_px - truth).max() < 2.0, f"{fix.gate} is not one of {numbers}, or turned"
                assert fix.t == 1.5
                assert fix.range_m == pytest.approx(np.linalg.norm(track.gates[fix.gate].p_wg - p_wb), rel=0.25)
    assert fixed > share * total


def test_a_gate_seen_from_behind_is_recognised():
    view = View((6.0, 1.0, 0.3), square_gate(), roll=0.3)
    (fix,), _ = associated(view.gates, seen(view.gates, *view.pose, 2)[0], *view.pose)
    assert np.abs(fix.corners_px - view.px()).max() < 2.0


def test_the_fix_is_the_bodys_wherever_the_camera_sits():
    view, camera = View((-6.0, 0.4, 0.3), square_gate(), roll=0.3), replace(CAMERA, p_bc_m=(0.3, -0.1, 0.05))
    detections, _ = seen(view.gates, camera.pose(*view.pose)[0], view.q_wb, 8, sigma_px=1e-3)
    (fix,), _ = associated(Associator(view.gates, camera, FLAT), detections, *view.pose)
    assert fix.p_wb == pytest.approx(view.p_wb, abs=1e-3)


@pytest.mark.parametrize("turned", [0.0, 180.0])
def test_a_gate_passed_twice_is_no_rival_of_itself(turned):
    view = View((-6.0, 1.0, 0.3), square_gate())
    twice = [*view.gates, square_gate(x=30.0), square_gate(yaw_deg=turned)]
    (fix,), rejected = associated(twice, seen(view.gates, *view.pose, 2)[0], *view.pose)
    assert fix.gate == 0 and not rejected


def test_a_detection_of_either_of_two_gates_is_refused():
    gates, p_wb, q_wb = [square_gate(y=-1.5), square_gate(y=1.5)], np.array([-8.0, 0.0, 0.0]), from_euler(0, -0.3, 0)
    (left, right), _ = seen(gates, p_wb, q_wb, 3)
    assert associated(gates, [left], p_wb + [0, 1.5, 0], q_wb) == ([], 1)
    fixes, rejected = associated(gates, [left], p_wb, q_wb, 0.1)
    assert [fix.gate for fix in fixes] == [0] and not rejected
    # Both in view settle each other, as no single one could.
    fixes, rejected = associated(gates, [right, left], p_wb + [0, 1.5, 0], q_wb)
    assert sorted(fix.gate for fix in fixes) == [0, 1] and not rejected


def test_a_detection_of_no_gate_of_the_course_is_refused():
    elsewhere = View((-8, 0, 0), square_gate())
    detections, _ = seen(elsewhere.gates, *elsewhere.pose, 4)
    stretched = [Detection.whole((d.corners_px - [320, 180]) * [1.0, 0.7] + [320, 180], 0.3, 1.0) for d in detections]
    # Out of the prior's reach; of another shape, however loose the prior; on a course without gates.
    cases = ([square_gate(x=30.0)], detections, 0.1), (elsewhere.gates, stretched, 25.0), ([], detections, 0.1)
    for gates, found, variance in cases:
        assert associated(gates, found, *elsewhere.pose, variance) == ([], 1)
    assert associated(elsewhere.gates, [], *elsewhere.pose) == ([], 0)


def test_an_edge_anywhere_on_the_wall_is_within_the_covariance():
    """Walls may be lit like the frame, and then the hole is seen, or be as dark as what is behind."""
    view = View((-3.0, 0.3, -0.2), square_gate())
    associator = Associator(view.gates, CAMERA, GateAppearance())
    rim, hole = (view.project(opening[0]) for opening in associator.rims.opening(np.array([0]), view.p_wb[None]))
    assert np.abs(rim - hole).max() > 2.0
    (fix,), _ = associated(associator, [Detection.whole(rim, 0.2, 1.0)], *view.pose)
    assert max(map(nees, rim - hole, fix.cov_px)) < 2.5**2
    assert np.abs(fix.p_wb - view.p_wb).max() < 2.5 * np.sqrt(np.diag(fix.cov)).max()


@pytest.mark.parametrize("eye", [(-5.0, 2.0, 0.5), (-3.0, -2.5, -1.0), (6.0, 1.0, 3.0), (-9.0, 0.1, 0.0)])
def test_the_hole_is_what_both_faces_leave_open(eye):
    gate, look = square_gate(x=2.0, yaw_deg=40.0), GateAppearance(outline_m=0.01, depth_m=0.16)
    p_wb = gate.p_wg + gate.R_wg @ np.array(eye)
    hole_g = gate.local(Associator([gate], CAMERA, look).rims.opening(np.array([0]), p_wb[None])[1][0])
    np.testing.assert_allclose(hole_g[:, 0], 0, atol=1e-12)
    low, high = hole_g[0, 1:], hole_g[2, 1:]
    for point in np.random.default_rng(6).uniform(-1, 1, (500, 2)):
        sight = np.array([0.0, *point]) - eye
        faces = [(eye + sight * (x - eye[0]) / sight[0])[1:] for x in (-0.08, 0.08)]
        passes = all(np.abs(at).max() < 0.74 for at in faces)
        assert passes == ((low < point) & (point < high)).all()


def test_only_clear_assignments_are_kept():
    inf = np.inf
    assert unambiguous(np.full((2, 3), inf), 16.0) == []
    assert unambiguous(np.array([[1.0, inf], [inf, 2.0]]), 16.0) == [(0, 0), (1, 1)]
    assert unambiguous(np.array([[1.0, 3.0]]), 16.0) == []  # one row, two columns alike
    assert unambiguous(np.array([[1.0], [3.0]]), 16.0) == []  # two rows, one column
    assert unambiguous(np.array([[1.0, 3.0, inf], [inf, inf, 0.0]]), 16.0) == [(1, 2)]
    assert unambiguous(np.array([[0.0, 3.0], [15.0, 0.0]]), 16.0) == [(0, 0), (1, 1)]


@given(
    st.tuples(st.integers(1, 6), st.integers(0, 6)).flatmap(
        lambda size: arrays(
            float, (size[0], size[0] + size[1]), elements=st.one_of(st.just(FORBIDDEN), st.integers(-50, 50).map(float))
        )
    )
)
@settings(max_examples=40)
def test_an_assignment_is_one_to_one_and_as_cheap_as_scipys(cost):
    columns = assign(cost)
    assert len(set(columns.tolist())) == len(cost)
    assert cost[np.arange(len(cost)), columns].sum() == pytest.approx(cost[linear_sum_assignment(cost)].sum(), abs=1e-3)


def test_from_the_image_to_the_position():
    rng, detector = np.random.default_rng(7), ColourDetector(CAMERA)
    gates = square_gate(), square_gate(x=9.0, y=3.0, z=-1.0, yaw_deg=25.0)
    for range_m in (4.0, 6.0, 9.0):
        view = View((-range_m, 0.4, -0.3), *gates, roll=0.4)
        detections = detector.detect(view.image(rng, corridor=True))
        fixes, _ = associated(gates, detections, view.p_wb + rng.normal(0, 0.5, 3), view.q_wb, 0.25)
        assert 0 in [fix.gate for fix in fixes]
        assert max(nees(fix.p_wb - view.p_wb, fix.cov) for fix in fixes) < 16.27


def test_the_frame_s_own_corners_better_the_fix():
    rng, gate, errors, by_eight = np.random.default_rng(13), square_gate(yaw_deg=20.0), [], []
    for _ in range(120):
        view = View(gate.p_wg + [-rng.uniform(8, 15), *rng.uniform(-1, 1, 2)], gate)
        (four,), _ = seen([gate], *view.pose, rng, sigma_px=0.4)
        start = np.linalg.norm(four.corners_px - view.px()[0], axis=-1).argmin()
        outer = np.roll(view.px(gate, gate.outer_m), start, 0) + rng.normal(0, 0.4, (4, 2))
        eight = replace(four, outer_px=outer, outer_cov_px=four.cov_px)
        for detection in (four, eight):
            (fix,), _ = associated([gate], [detection], *view.pose, sigma_rad=1e-6)
            errors.append(np.linalg.norm(fix.p_wb - view.p_wb))
        by_eight.append(nees(fix.p_wb - view.p_wb, fix.cov))
    assert np.median(errors[1::2]) < 0.7 * np.median(errors[::2])
    assert NEES_BAND[0] < np.mean(by_eight) < NEES_BAND[1]


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
    rng, gate, errors = np.random.default_rng(11), square_gate(), []
    for _ in range(150):
        view = View([-rng.uniform(3, 7), *rng.uniform(-1, 1, 2)], gate, roll=rng.uniform(-0.5, 0.5))
        q_wb = product(view.q_wb, exp(rng.normal(0, SIGMA_RAD, 3)))
        (whole,), _ = seen([gate], *view.pose, rng)
        for fix in associated([gate], [cut(whole, hidden)], view.p_wb + rng.normal(0, 0.2, 3), q_wb, 0.04)[0]:
            assert fix.visible.sum() == 4 - len(hidden)
            errors.append(nees(fix.p_wb - view.p_wb, fix.cov))
    assert len(errors) > 120
    assert NEES_BAND[0] < np.mean(errors) < NEES_BAND[1] + 0.3


def test_a_corner_of_too_near_a_gate_is_no_farther_gates():
    near, far = square_gate(x=-2.6), square_gate(x=-1.0)
    view = View((-5, 0, 0), far)
    cov_px = np.array([0.3, 60.0, 60.0, 60.0])[:, None, None] ** 2 * np.eye(2)
    for detection, variance, named in zip(seen([near, far], *view.pose, 14)[0], (0.4, 0.01), ([], [1]), strict=True):
        corner = replace(detection, cov_px=cov_px, visible=np.arange(4) == 0)
        fixes, _ = associated([near, far], [corner], *view.pose, variance)
        assert [fix.gate for fix in fixes] == named


@pytest.mark.parametrize(("hidden", "behind"), [((1, 2), False), ((0, 3), False), ((0, 3), True)])
def test_a_side_is_never_taken_for_the_opposite_one(hidden, behind):
    rng, gate, fixed = np.random.default_rng(13), square_gate(), 0
    for aside in np.linspace(-1.4, 1.4, 30):
        p_wb = [rng.uniform(4, 7) * (1 if behind else -1), *rng.uniform(-1, 1, 2)]
        view = View(p_wb, gate, roll=rng.uniform(-0.5, 0.5))
        (whole,), _ = seen([gate], *view.pose, rng)
        for fix in associated([gate], [cut(whole, hidden)], view.p_wb + [0.0, aside, 0.0], view.q_wb, 0.2)[0]:
            assert np.abs(fix.p_wb - view.p_wb).max() < 0.5
            fixed += 1
    assert fixed > 20


def test_a_part_that_contradicts_the_prior_is_counted_where_it_can_be_of_one_gate_only():
    """It is used within 3.4 standard deviations of the prior, and no sign of anything beyond four, where it may be of no gate."""
    gate = square_gate()
    view = View((-5, 0, 0), gate)
    (whole,), _ = seen([gate], *view.pose, 15)
    prior_w = [np.array(view.p_wb) + [0.0, off, 0.0] for off in (0.0, 0.72, 3.0)]
    answers = [associated([gate], [cut(whole, (1, 2))], p_w, view.q_wb, 0.04) for p_w in prior_w]
    assert [(len(fixes), refused) for fixes, refused in answers] == [(1, 0), (0, 1), (0, 0)]


# Focal length estimated from the gates visible on the pad.


VEHICLE_OF = {"vq1": "dcl", "vq2": "dcl", "pq": "archer"}


def from_pad(course, scale, seed, images=20, stretched=1.0):
    """Return the focal scale estimated from images on the pad, with errors of focal length, mount and pad.

    Args:
        stretched: by how much the course is larger than its map.
    """
    rng, track, nominal = np.random.default_rng(seed), load_track(course), load_vehicle(VEHICLE_OF[course]).camera
    start = track.start
    true = replace(nominal.zoomed(scale), tilt_deg=nominal.tilt_deg + rng.normal(0, 1), yaw_deg=rng.normal(0, 0.5))
    p = start.p_wb + rng.normal(0, 0.1, 3)
    q = np.array(product(start.q_wb, from_euler(*rng.normal(0, 0.01, 3))))
    gates = [replace(g, centre_m=tuple(start.p_wb + stretched * (g.p_wg - start.p_wb))) for g in track.gates]
    eye = ProjectedCamera(replace(track, gates=tuple(gates)), true, load_style("race"), seed)
    seen = [detections(eye.see(p, q)) for _ in range(images)]
    return resting_focal(seen, Associator(track.gates, nominal).rims, nominal, start.p_wb, start.q_wb)


@pytest.mark.parametrize("course", VEHICLE_OF)
@pytest.mark.parametrize("scale", [0.7, 0.8, 1.15, 1.33])
def test_a_focal_length_far_off_is_found_within_the_told_sigma(course, scale):
    for seed in range(2):
        assert from_pad(course, scale, seed) == pytest.approx(scale, rel=0.05)


@pytest.mark.parametrize("course", VEHICLE_OF)
@pytest.mark.parametrize(("scale", "stretched"), [(1.0, 1.0), (0.96, 1.0), (1.04, 1.0), (1.0, 1.075)])
def test_what_the_filter_can_correct_and_a_larger_course_are_left(course, scale, stretched):
    assert [from_pad(course, scale, seed, stretched=stretched) for seed in range(2)] == [None] * 2


@pytest.mark.parametrize("cut", [0.25, 0.4])
def test_an_opening_cut_by_a_gate_behind_it_says_nothing(cut):
    """Seen from the pad of pq the second gate's frame crosses the first one's opening, whose lower part was taken for ground."""
    track, vehicle = load_track("pq"), load_vehicle("archer")
    p_wb, q_wb = track.start.p_wb, track.start.q_wb
    first = detections(ProjectedCamera(track, vehicle.camera, load_style("race"), 0).see(p_wb, q_wb))[0]
    low = first.corners_px.copy()
    low[2:] += cut * (first.corners_px[[1, 0]] - first.corners_px[[2, 3]])
    rims = Associator(track.gates, vehicle.camera).rims
    assert resting_focal([[replace(first, corners_px=low)]] * 20, rims, vehicle.camera, p_wb, q_wb) is None
