"""Reports of rivals by the projected camera."""

import numpy as np
import pytest

from gate_racer.sim.traffic import Rival
from gate_racer.sim.view.projected import RivalOutlines
from gate_racer.vehicle.rotation import from_euler

LEVEL = np.array([1.0, 0, 0, 0])
SOUTH = np.array(from_euler(0.0, 0.0, np.pi))
EYE = np.array([0.0, 0, -1.0])


def rival(p_w, dcl):
    return Rival(2, np.array(p_w), LEVEL, np.zeros(3), np.zeros(3), dcl.body_m, dcl.half_diagonal)


def reports(track, dcl, p_w, others=(), n=100):
    """Return the reports about the first rival over n images."""
    outlines, everybody = RivalOutlines(track, dcl.camera, 0), [rival(one, dcl) for one in (p_w, *others)]
    return [found for _ in range(n) for found in outlines.see(EYE, SOUTH, everybody)]


def test_a_rival_in_view_is_reported_about_where_it_is_and_sometimes_missed(vq1, dcl):
    p_w = np.array([-4.0, 0.3, -1.5])
    found = reports(vq1, dcl, p_w)
    assert 70 < len(found) < 100
    eye_w, R_wc = dcl.camera.pose(EYE, SOUTH)
    px = dcl.camera.project((p_w - eye_w) @ R_wc)
    middles = np.array([one.box_px.reshape(2, 2).mean(axis=0) for one in found])
    assert middles.mean(axis=0) == pytest.approx(px, abs=1.0) and not any(any(one.cut) for one in found)


@pytest.mark.parametrize("p_w", [(4.0, 0.0, -1.5), (-0.1, 1.5, -1.0), (-60.0, 0.0, -3.0)])
def test_a_rival_behind_beside_or_far_is_not_reported(vq1, dcl, p_w):
    assert reports(vq1, dcl, p_w) == []


def test_an_occluded_rival_is_not_reported(vq1, dcl):
    gate = vq1.gates[0]
    bar_w = gate.p_wg + gate.R_wg @ [1.0, 1.05, 0.0]
    eye_w = gate.p_wg + gate.R_wg @ [-3.0, 1.05, 0.5]
    outlines = RivalOutlines(vq1, dcl.camera, 0)
    in_front = rival(gate.p_wg + gate.R_wg @ [-1.0, 1.05, 0.2], dcl)
    behind = rival(bar_w, dcl)
    assert [found for _ in range(20) for found in outlines.see(eye_w, SOUTH, [in_front])]
    assert not [found for _ in range(20) for found in outlines.see(eye_w, SOUTH, [behind])]
    eye_w, R_wc = dcl.camera.pose(EYE, SOUTH)
    near_w, far_w = eye_w + R_wc @ [0.1, 0, 2.0], eye_w + R_wc @ [0.2, 0, 4.0]
    boxes = reports(vq1, dcl, far_w, [near_w])
    assert boxes and all(np.ptp(one.box_px[[0, 2]]) > 35 for one in boxes), "the near one alone"


def test_a_rival_at_the_image_s_edge_is_reported_as_cut_there(vq1, dcl):
    eye_w, R_wc = dcl.camera.pose(EYE, SOUTH)
    up = (0 - dcl.camera.cy_px) / dcl.camera.fy_px
    found = reports(vq1, dcl, eye_w + 3.0 * R_wc @ [0, up + 0.01, 1.0])
    assert found and {one.cut for one in found} == {(False, True, False, False)}
    assert all(one.box_px[1] == 0 for one in found)
