"""Drawn training data: labels are the pinhole's, and say what is hidden."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.sim.view.projected import Labeller, Labels
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import from_euler, matrix
from tools.training.frames import keypoints

CAMERA = Camera(width_px=640, height_px=360, fx_px=320.0, fy_px=320.0, cx_px=320.0, cy_px=180.0, tilt_deg=20.0)
BOX = Bounds((-60, -20, -20), (60, 20, 20))
NOTHING = np.full((360, 640), 400.0)  # as far as one sees


def thin(**changes):
    """A style of gates without depth and outline, so that the hole is the nominal square."""
    return replace(load_style("race"), depth_m=0.0, outline_m=0.0, **changes)


def track_of(*gates):
    return Track("test", Start((-20.0, 0.0, 0.0), 0.0), BOX, gates, False, None)


def gate(x, y=0.0, z=0.0, yaw_deg=0.0):
    return Gate((x, y, z), yaw_deg, 0.0, 1.5, 2.7, 0.26)


def level():
    """Attitude at which the camera looks north."""
    return np.array(from_euler(0.0, -np.radians(CAMERA.tilt_deg), 0.0))


@pytest.mark.parametrize("yaw_deg", [0.0, 35.0, 180.0])
def test_labels_equal_the_pinhole_projection(yaw_deg):
    g, p_wb, q_wb = gate(6.0, 0.4, -0.3, yaw_deg), np.array([0.0, 0.1, 0.2]), level()
    found = Labeller(track_of(g), CAMERA, thin()).label(p_wb, q_wb, NOTHING)
    px = CAMERA.project((g.corners() - p_wb) @ (matrix(q_wb) @ CAMERA.R_bc))
    turned = px[::-1] if yaw_deg == 180.0 else px  # from behind the order is the other way round
    np.testing.assert_allclose(found.corners_px[0], turned, atol=1e-6)
    assert found.visible.all()
    diagonal = found.corners_px[0, 2:] - found.corners_px[0, :2]
    assert diagonal[0, 0] * diagonal[1, 1] > diagonal[0, 1] * diagonal[1, 0], "not clockwise"


def test_labels_stand_on_the_edges_of_the_drawn_gate():
    style, p_wb, q_wb = load_style("smooth"), np.array([0.0, 0.0, 0.0]), level()
    track = track_of(gate(5.0, 0.5, 0.2, 25.0))
    with RenderedCamera(track, CAMERA, style, 0, gates_only=True) as camera:
        image = camera.image(p_wb, q_wb)
    found = Labeller(track, CAMERA, style).label(p_wb, q_wb, NOTHING)
    corners = found.corners_px[0]
    middle = corners.mean(0)
    for corner in corners:
        way = (corner - middle) / np.linalg.norm(corner - middle)
        inside, outside = (np.round(corner + step * way).astype(int) for step in (-3, 3))
        assert image[inside[1], inside[0], 2] < 60 < 150 < image[outside[1], outside[0], 2]


def test_corners_behind_a_gate_a_wall_or_the_eye_are_not_visible():
    near, far, passed, wall = gate(3.0, 2.0), gate(9.0, 3.4), gate(-3.0), Obstacle((5.0, -3.0, -2.0), (6.0, -1.0, 2.0))
    track, style = replace(track_of(near, far, passed, gate(8.0, -2.4)), obstacles=(wall,)), thin()
    with RenderedCamera(track, CAMERA, style, 0) as camera:
        camera.image(np.zeros(3), level())
        found = Labeller(track, CAMERA, style).label(np.zeros(3), level(), camera.depth_m())
    assert len(found.range_m) == 3, "the gate behind the eye is left out"
    assert found.visible[0].all() and found.free[0] == 1, "the nearest gate is seen"
    behind_wall, behind_gate = found.visible[1:]
    assert not behind_wall.any() and found.free[1] == 0
    assert behind_gate.any() and not behind_gate.all() and 0 < found.free[2] < 1


def test_keypoints_tell_what_is_seen_hidden_and_behind_the_eye():
    """Of an opening at the eye two corners are behind; a hidden one has no place, an edge-on one no corners to tell apart."""
    at = np.array([[100.0, 50], [140, 50], [140, 90], [100, 90]])
    behind = np.where(np.arange(4)[:, None] < 2, at, np.nan)
    quads = np.array([at, behind, at, at * [0.01, 1.0]])
    visible = np.array([[True, True, False, True], [True, True, False, False], [False] * 4, [True] * 4])
    told = [
        np.reshape(points, (4, 3))[:, 2].tolist()
        for points in keypoints(Labels(quads, visible, np.zeros(4), np.zeros(4)))
    ]
    assert told == [[2, 2, 1, 2], [2, 2, 0, 0], [2, 2, 2, 0]]
