"""The association: the right gate within the prior's reach, none where two would do, and fixes that are what they claim."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from detections import FLAT, NEES_BAND, SIGMA_RAD, seen
from drawing import CAMERA, corners_px, looking_at, render, square_gate
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

import gate_racer.tracks
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.association import FORBIDDEN, Associator, assign, unambiguous
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detection
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import exp, from_euler, matrix, product

COURSES = Path(gate_racer.tracks.__file__).parent


@pytest.mark.parametrize("course", ["vq1", "vq2"])
def test_the_right_gates_within_a_metre_of_prior_error(course):
    rng = np.random.default_rng(1)
    track = load_track(COURSES / f"{course}.yaml")
    associator = Associator(track.gates, CAMERA, FLAT)
    total = fixed = 0
    for gate in track.gates:
        for _ in range(10):
            ahead = np.array([-rng.uniform(4, 12), rng.uniform(-2, 2), rng.uniform(-1, 1)])
            p_wb = gate.p_wg + gate.R_wg @ ahead
            q_true = looking_at(p_wb, gate, rng.uniform(-40, 40, 2), roll=rng.uniform(-0.8, 0.8))
            q_wb = product(q_true, exp(rng.normal(0, SIGMA_RAD, 3)))
            detections, numbers = seen(track.gates, p_wb, q_true, rng)
            prior = p_wb + rng.normal(0, 1 / np.sqrt(3), 3)
            fixes, rejected = associator.associate(1.5, detections, prior, np.eye(3) / 3, q_wb, SIGMA_RAD)
            assert len(fixes) + rejected == len(detections)
            total, fixed = total + len(detections), fixed + len(fixes)
            for fix in fixes:
                assert fix.t == 1.5
                truth = corners_px(track.gates[fix.gate], p_wb, q_true)
                assert np.abs(fix.corners_px - truth).max() < 2.0, f"{fix.gate} is not one of {numbers}, or turned"
                assert fix.range_m == pytest.approx(np.linalg.norm(track.gates[fix.gate].p_wg - p_wb), rel=0.2)
    assert fixed > 0.9 * total


def test_a_gate_seen_from_behind_is_recognised():
    rng = np.random.default_rng(2)
    gate, p_wb = square_gate(), np.array([6.0, 1.0, 0.3])
    q_wb = looking_at(p_wb, gate, roll=0.3)
    detections, _ = seen([gate], p_wb, q_wb, rng)
    (fix,), _ = Associator([gate], CAMERA, FLAT).associate(0.0, detections, p_wb, np.eye(3), q_wb, SIGMA_RAD)
    assert np.abs(fix.corners_px - corners_px(gate, p_wb, q_wb)).max() < 2.0


def test_the_fix_is_the_bodys_wherever_the_camera_sits():
    rng, gate, p_wb = np.random.default_rng(8), square_gate(), np.array([-6.0, 0.4, 0.3])
    q_wb, camera = looking_at(p_wb, gate, roll=0.3), replace(CAMERA, p_bc_m=(0.3, -0.1, 0.05))
    detections, _ = seen([gate], camera.pose(p_wb, q_wb)[0], q_wb, rng, sigma_px=1e-3)
    (fix,), _ = Associator([gate], camera, FLAT).associate(0.0, detections, p_wb, np.eye(3), q_wb, SIGMA_RAD)
    assert fix.p_wb == pytest.approx(p_wb, abs=1e-3)


@pytest.mark.parametrize("turned", [0.0, 180.0])
def test_a_gate_that_the_course_passes_twice_is_no_rival_of_itself(turned):
    rng, gate, p_wb = np.random.default_rng(2), square_gate(), np.array([-6.0, 1.0, 0.3])
    q_wb = looking_at(p_wb, gate)
    detections, _ = seen([gate], p_wb, q_wb, rng)
    twice = Associator([gate, square_gate(x=30.0), square_gate(yaw_deg=turned)], CAMERA, FLAT)
    (fix,), rejected = twice.associate(0.0, detections, p_wb, np.eye(3), q_wb, SIGMA_RAD)
    assert fix.gate == 0 and not rejected


def test_a_detection_of_either_of_two_gates_is_refused():
    rng = np.random.default_rng(3)
    gates = [square_gate(y=-1.5), square_gate(y=1.5)]
    p_wb = np.array([-8.0, 0.0, 0.0])
    q_wb = from_euler(0, -0.3, 0)
    (left, right), _ = seen(gates, p_wb, q_wb, rng)
    associator = Associator(gates, CAMERA, FLAT)
    assert associator.associate(0.0, [left], p_wb + [0, 1.5, 0], np.eye(3), q_wb, SIGMA_RAD) == ([], 1)
    fixes, rejected = associator.associate(0.0, [left], p_wb, 0.1 * np.eye(3), q_wb, SIGMA_RAD)
    assert [fix.gate for fix in fixes] == [0] and not rejected
    # Both in view settle each other, as no single one could.
    fixes, rejected = associator.associate(0.0, [right, left], p_wb + [0, 1.5, 0], np.eye(3), q_wb, SIGMA_RAD)
    assert sorted(fix.gate for fix in fixes) == [0, 1] and not rejected


def test_a_detection_of_no_gate_of_the_course_is_refused():
    rng = np.random.default_rng(4)
    elsewhere, p_wb = square_gate(), np.array([-8.0, 0.0, 0.0])
    q_wb = looking_at(p_wb, elsewhere)
    detections, _ = seen([elsewhere], p_wb, q_wb, rng)
    stretched = [Detection.whole((d.corners_px - [320, 180]) * [1.0, 0.7] + [320, 180], 0.3, 1.0) for d in detections]
    # Out of the prior's reach; of another shape, however loose the prior; on a course without gates.
    cases = ([square_gate(x=30.0)], detections, 0.1), ([elsewhere], stretched, 25.0), ([], detections, 0.1)
    for gates, found, variance in cases:
        fixes = Associator(gates, CAMERA, FLAT).associate(0.0, found, p_wb, variance * np.eye(3), q_wb, SIGMA_RAD)
        assert fixes == ([], 1)
    assert Associator([elsewhere], CAMERA).associate(0.0, [], p_wb, np.eye(3), q_wb, SIGMA_RAD) == ([], 0)


def test_a_fix_is_as_good_as_it_claims():
    rng = np.random.default_rng(5)
    gate = square_gate(yaw_deg=20.0)
    associator, nees = Associator([gate], CAMERA, FLAT), []
    for _ in range(300):
        p_wb = gate.p_wg + [-rng.uniform(4, 15), *rng.uniform(-1, 1, 2)]
        q_true = looking_at(p_wb, gate)
        q_wb = product(q_true, exp(rng.normal(0, SIGMA_RAD, 3)))
        detections, _ = seen([gate], p_wb, q_true, rng, sigma_px=0.4)
        (fix,), _ = associator.associate(0.0, detections, p_wb, np.eye(3), q_wb, SIGMA_RAD)
        error = fix.p_wb - p_wb
        nees.append(error @ np.linalg.solve(fix.cov, error))
    assert NEES_BAND[0] < np.mean(nees) < NEES_BAND[1]


def test_an_edge_seen_anywhere_on_the_wall_of_the_opening_is_within_what_its_corners_claim():
    """Walls may be lit like the frame, and then the hole is seen, or be as dark as what is behind."""
    gate, p_wb = square_gate(), np.array([-3.0, 0.3, -0.2])
    associator, q_wb = Associator([gate], CAMERA, GateAppearance()), looking_at(p_wb, gate)
    rim, hole = (
        CAMERA.project((corners_w[0] - p_wb) @ matrix(q_wb) @ CAMERA.R_bc)
        for corners_w in associator.rims.opening(np.array([0]), p_wb[None])
    )
    assert np.abs(rim - hole).max() > 2.0
    (fix,), _ = associator.associate(0.0, [Detection.whole(rim, 0.2, 1.0)], p_wb, np.eye(3), q_wb, SIGMA_RAD)
    off = rim - hole
    assert (off * np.linalg.solve(fix.cov_px, off[..., None])[..., 0]).sum(-1).max() < 2.5**2
    assert np.abs(fix.p_wb - p_wb).max() < 2.5 * np.sqrt(np.diag(fix.cov)).max()


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
def test_an_assignment_is_one_to_one_and_as_cheap_as_that_of_scipy(cost):
    columns = assign(cost)
    assert len(set(columns.tolist())) == len(cost)
    assert cost[np.arange(len(cost)), columns].sum() == pytest.approx(cost[linear_sum_assignment(cost)].sum(), abs=1e-3)


def test_from_the_image_to_the_position():
    rng = np.random.default_rng(7)
    gates = [square_gate(), square_gate(x=9.0, y=3.0, z=-1.0, yaw_deg=25.0)]
    detector, associator = ColourDetector(CAMERA), Associator(gates, CAMERA, FLAT)
    for range_m in (4.0, 6.0, 9.0):
        p_wb = np.array([-range_m, 0.4, -0.3])
        q_wb = looking_at(p_wb, gates[0], roll=0.4)
        detections = detector.detect(render(gates, p_wb, q_wb, rng, corridor=True))
        prior = p_wb + rng.normal(0, 0.5, 3)
        fixes, _ = associator.associate(0.0, detections, prior, 0.25 * np.eye(3), q_wb, SIGMA_RAD)
        assert 0 in [fix.gate for fix in fixes]
        for fix in fixes:
            error = fix.p_wb - p_wb
            assert error @ np.linalg.solve(fix.cov, error) < 16.27


def test_a_prior_without_doubt_is_held_to():
    p_wb, gates = np.array([-6.0, 0.0, 0.0]), [square_gate()]
    q_wb = looking_at(p_wb, gates[0])
    detections, _ = seen(gates, p_wb, q_wb, np.random.default_rng(0))
    associator = Associator(gates, CAMERA, FLAT)
    fixes, _ = associator.associate(0.0, detections, p_wb, np.zeros((3, 3)), q_wb, SIGMA_RAD)
    assert [fix.gate for fix in fixes] == [0]


def test_the_frame_s_own_corners_better_the_fix():
    rng = np.random.default_rng(13)
    gate = square_gate(yaw_deg=20.0)
    associator, errors, nees = Associator([gate], CAMERA, FLAT), [], []
    for _ in range(200):
        p_wb = gate.p_wg + [-rng.uniform(8, 15), *rng.uniform(-1, 1, 2)]
        q_wb = looking_at(p_wb, gate)
        (four,), _ = seen([gate], p_wb, q_wb, rng, sigma_px=0.4)
        start = np.linalg.norm(four.corners_px - corners_px(gate, p_wb, q_wb)[0], axis=-1).argmin()
        outer = np.roll(corners_px(gate, p_wb, q_wb, gate.outer_m), start, 0) + rng.normal(0, 0.4, (4, 2))
        eight = replace(four, outer_px=outer, outer_cov_px=four.cov_px)
        for detection in (four, eight):
            (fix,), _ = associator.associate(0.0, [detection], p_wb, np.eye(3), q_wb, 1e-6)
            error = fix.p_wb - p_wb
            errors.append(np.linalg.norm(error))
        nees.append(error @ np.linalg.solve(fix.cov, error))
    assert np.median(errors[1::2]) < 0.7 * np.median(errors[::2])
    assert NEES_BAND[0] < np.mean(nees) < NEES_BAND[1]


def test_a_prior_wrong_by_a_metre_and_ten_degrees_names_no_wrong_gate():
    rng = np.random.default_rng(12)
    track = load_track(COURSES / "vq1.yaml")
    associator, sigma = Associator(track.gates, CAMERA, FLAT), np.radians(10.0)
    found = asked = 0
    for gate in track.gates:
        for _ in range(10):
            p_wb = gate.p_wg + gate.R_wg @ np.array([-rng.uniform(4, 10), rng.uniform(-1, 1), rng.uniform(-1, 1)])
            q_true = looking_at(p_wb, gate, roll=rng.uniform(-0.5, 0.5))
            axis = rng.normal(size=3)
            q_wb = product(q_true, exp(sigma * axis / np.linalg.norm(axis)))
            offset = rng.normal(size=3)
            prior = p_wb + offset / np.linalg.norm(offset)
            detections, _ = seen(track.gates, p_wb, q_true, rng)
            asked += len(detections)
            for fix in associator.associate(0.0, detections, prior, np.eye(3) / 3, q_wb, sigma)[0]:
                truth = corners_px(track.gates[fix.gate], p_wb, q_true)
                assert np.abs(fix.corners_px - truth).max() < 2.0
                found += 1
    assert found > 0.5 * asked
