"""Landmarks: neither a wrong mount nor the frame's depth nor a drift leads past the gates that are found."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.landmarks import LandmarkEstimator, gate_fix
from gate_racer.estimation.odometry import Pose
from gate_racer.link.messages import Imu
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix

HZ, IMAGE_EVERY, REST_S, FLIGHT_S = 120.0, 4, 1.0, 8.0
GATE_W, OPENING_M = np.array([26.0, 1.0, -2.0]), 1.5
LOOK = GateAppearance()
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])


def place(t):
    """m and m/s^2 (3,) at t s since the start: ahead from rest, swaying to the sides and up and down; level all the time."""
    rate = np.pi / FLIGHT_S
    ahead, push = 11.0 * (1 - np.cos(rate * t)), 11.0 * rate**2 * np.cos(rate * t)
    sway, nod = 1.5 * (1 - np.cos(1.5 * t)), 0.8 * (1 - np.cos(1.1 * t))
    p = np.array([ahead, sway, -nod])
    a = np.array([push, 1.5 * 1.5**2 * np.cos(1.5 * t), -0.8 * 1.1**2 * np.cos(1.1 * t)])
    return p, a


def detection(camera, p_w, below_m=0.0):
    """The hole of a gate `below_m` below `GATE_W`, wholly in view or None."""
    half = OPENING_M / 2 - LOOK.outline_m
    arm_w, R_wc = camera.pose(p_w, LEVEL)
    corners = GATE_W + [0.0, 0.0, below_m] + half * np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]])
    rays = (corners - arm_w) @ R_wc
    px = camera.project(rays)
    inside = (rays[:, 2] > 0.3) & (px > 0).all(axis=1) & (px < [camera.width_px, camera.height_px]).all(axis=1)
    return Detection.whole(px, 0.3, 1.0) if inside.all() else None


def approached(nominal, true, push_b=(0.0, 0.4, 0.0), hidden_s=(0.0, 0.0)):
    """The estimator after an approach, and where the vehicle is; a false push is felt while the gate hides."""
    estimator = LandmarkEstimator(nominal, OPENING_M, LOOK)
    for k in range(round((REST_S + FLIGHT_S) * HZ)):
        t = k / HZ - REST_S
        p_w, a_w = place(t) if t > 0 else (np.zeros(3), np.zeros(3))
        if k == round(REST_S * HZ):
            estimator.release()
        hidden = hidden_s[0] < t < hidden_s[1]
        force_b = a_w - [0.0, 0.0, GRAVITY] + hidden * np.array(push_b)
        estimator.imu(Imu(k / HZ, tuple(force_b), (0.0, 0.0, 0.0)))
        seen = detection(true, p_w) if t > 0 and k % IMAGE_EVERY == 0 and not hidden else None
        if seen is not None:
            estimator.see(k / HZ, [seen])
    return estimator, p_w


@pytest.mark.parametrize(
    "off", [{}, {"yaw_deg": 1.5}, {"yaw_deg": -1.5}, {"tilt_deg": 1.5}, {"tilt_deg": -1.5}], ids=str
)
def test_an_approached_gate_is_known_from_the_vehicle(off, dcl):
    nominal = dcl.camera
    true = replace(nominal, **{name: getattr(nominal, name) + by for name, by in off.items()})
    estimator, p_w = approached(nominal, true)
    (gate,) = estimator.landmarks
    wrong = gate.p_w - estimator.state().p_wb - (GATE_W - p_w)
    assert np.linalg.norm(GATE_W - p_w) < 6.0
    assert np.abs(wrong[1:]).max() < 0.05


def test_a_drift_beyond_its_covariance_is_found_out_at_the_gate(dcl):
    """Three seconds of a false acceleration mislead by more than the gate's opening; it is still the same gate."""
    estimator, p_w = approached(dcl.camera, dcl.camera, push_b=(0.0, 0.4, 0.0), hidden_s=(2.5, 5.5))
    (gate,) = estimator.landmarks
    wrong = gate.p_w - estimator.state().p_wb - (GATE_W - p_w)
    assert np.abs(wrong[1:]).max() < 0.15 and gate.views > 2


@pytest.mark.parametrize(("below_m", "gates"), [(1.98, 2), (0.1, 1)], ids=["stacked", "twice"])
def test_openings_that_do_not_overlap_in_one_image_are_two_gates(below_m, gates, dcl):
    """As the stacked gates of Swift's course; a detector that finds one opening twice makes no second gate."""
    estimator = LandmarkEstimator(dcl.camera, OPENING_M, LOOK)
    for k in range(int(2 * HZ)):
        if k == int(REST_S * HZ):
            estimator.release()
        estimator.imu(Imu(k / HZ, (0.0, 0.0, -GRAVITY), (0.0, 0.0, 0.0)))
        if k > REST_S * HZ and k % IMAGE_EVERY == 0:
            p_w = GATE_W + [-12.0, 0.0, 2.0]
            estimator.see(k / HZ, [detection(dcl.camera, p_w), detection(dcl.camera, p_w, below_m)])
    assert len(estimator.landmarks) == gates


def test_without_attitude_gravity_levels_the_pad(dcl):
    estimator, q_wb = LandmarkEstimator(dcl.camera, OPENING_M, LOOK), from_euler(0.1, -0.3, 0.0)
    force = tuple((matrix(q_wb).T @ [0.0, 0.0, -GRAVITY]).tolist())
    for k in range(1, 361):
        if k == 121:
            estimator.release()
        estimator.imu(Imu(k / HZ, force, (0.0, 0.0, 0.0)))
    assert np.abs(estimator.state().p_wb).max() < 1e-6 and estimator.state().q_wb == pytest.approx(q_wb)


@pytest.mark.parametrize(("distance", "lens"), [(4.0, {}), (9.0, {}), (9.0, {"k1": -0.2, "k3": -0.01, "p1": 1e-3})])
def test_a_gate_stands_half_its_depth_behind_its_near_face(distance, lens, dcl):
    arm_w, R_wc = dcl.camera.pose(np.zeros(3), LEVEL)
    middle_w, half = np.array([distance, 0.2, -1.5]), OPENING_M / 2
    face_w = middle_w + [-LOOK.depth_m / 2, 0, 0] + half * np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]])
    camera = replace(dcl.camera, **lens)
    seen = replace(Detection.whole(camera.project((face_w - arm_w) @ R_wc), 0.1, 1.0), near_face=True)
    fix = gate_fix(seen, Pose(0.0, np.zeros(3), np.zeros(3), LEVEL, np.zeros(3)), camera, OPENING_M, LOOK)
    assert fix is not None and fix.z_w == pytest.approx(middle_w, abs=1e-3)
