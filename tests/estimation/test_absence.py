"""A gate that images should show and do not stands elsewhere; where it need not be seen, nothing is learned."""

from dataclasses import replace

import numpy as np
import pytest

from estimation.absence import GateAbsence
from estimation.estimator import ExposureState, State
from perception.detection import Detection
from perception.roi import SearchWindow
from tracks.solids import of_obstacle
from tracks.track import Obstacle

COV = np.diag([0.05**2] * 3 + [0.0] * 3 + [0.003**2] * 3)


def exposure(gate, p_g, yaw=0.0):
    """A level body at p_g (3,) m in a gate's axes, heading through it, turned by yaw (rad)."""
    half = (np.radians(gate.yaw_deg) + yaw) / 2
    q_wb = np.array([np.cos(half), 0.0, 0.0, np.sin(half)])
    return ExposureState(0.0, State(0.0, gate.p_wg + gate.R_wg @ p_g, q_wb, np.zeros(3), np.zeros(3), COV, 0.0))


def around(gate, at, camera, off_px=0.0):
    """The detection of a gate's opening, off by off_px."""
    p_wc, R_wc = camera.pose(at.state.p_wb, at.state.q_wb)
    return Detection.whole(camera.project((gate.corners() - p_wc) @ R_wc) + off_px, 0.3, 1.0)


def shown_missing(
    track, camera, p_g, yaw=0.0, images=3, detections=(), recognised=False, window=None, gates=None, obstacles=()
):
    """Whether the first gate counts as missing after so many equal images."""
    gate = track.gates[0]
    absence = GateAbsence(track.gates if gates is None else gates, obstacles)
    for _ in range(images):
        absence.look(0, gate, exposure(gate, np.array(p_g), yaw), camera, detections, recognised, window)
    return absence.missing(0)


IN_VIEW = [-8.0, 0.3, 1.0]  # m
CASES = [
    ("in view, three images", IN_VIEW, {}, True),
    ("in view, one image", IN_VIEW, {"images": 1}, False),
    ("recognised", IN_VIEW, {"recognised": True}, False),
    ("beside the image", IN_VIEW, {"yaw": 1.2}, False),
    ("behind the vehicle", [1.0, 0.0, 0.0], {}, False),
    ("too far to be detected", [-60.0, 0.0, 5.0], {}, False),
    ("edge-on", [-2.0, 7.0, 0.5], {"yaw": -1.3}, False),
    ("outside of the window that was searched", IN_VIEW, {"window": SearchWindow(1.8, 0, 0, 60, 60)}, False),
]


@pytest.mark.parametrize(("p_g", "how", "missing"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_what_shows_that_a_gate_is_not_there(p_g, how, missing, vq1, dcl):
    assert shown_missing(vq1, dcl.camera, p_g, **how) == missing


def test_anything_near_the_expected_corners_is_no_evidence_but_what_is_elsewhere_is(vq1, dcl):
    gate = vq1.gates[0]
    at = exposure(gate, np.array(IN_VIEW))
    for off_px, missing in ((3.0, False), (200.0, True)):
        found = [around(gate, at, dcl.camera, off_px)]
        assert shown_missing(vq1, dcl.camera, IN_VIEW, detections=found) == missing


def test_what_may_hide_a_gate_explains_why_it_is_not_seen(vq1, dcl):
    gate = vq1.gates[0]
    x, y, z = (gate.p_wg + gate.R_wg @ [-4.0, 0.9, 0.5]).tolist()
    frame = replace(gate, centre_m=(x, y, z))
    assert not shown_missing(vq1, dcl.camera, IN_VIEW, gates=(gate, frame))
    low, high = (tuple((np.array([x, y, z]) + side).tolist()) for side in (-0.5, 0.5))
    assert not shown_missing(vq1, dcl.camera, IN_VIEW, obstacles=[of_obstacle(Obstacle(low, high))])


def test_the_evidence_is_of_one_gate_and_refuted_by_its_sight(vq1, dcl):
    gate, absence = vq1.gates[0], GateAbsence(vq1.gates, ())
    at = exposure(gate, np.array(IN_VIEW))
    for _ in range(3):
        absence.look(0, gate, at, dcl.camera, (), False, None)
    assert absence.missing(0) and not absence.missing(1)
    absence.look(0, gate, at, dcl.camera, (), True, None)
    assert not absence.missing(0)
