"""The projected camera is the pinhole, hides what is hidden, and errs as the detector does on rendered images."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gate_racer.common.config import load
from gate_racer.race.lockstep import detections
from gate_racer.sim.view.projected import NOISE, CornerNoise, ProjectedCamera
from gate_racer.sim.view.renderer import CameraError
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track, load_track
from gate_racer.vehicle.rotation import from_euler, product
from tools.fit_corner_noise import fit, sample

RACE = load_style("race")
GATE = Gate((8.0, 0.5, -2.0), 0.0, 0.0, 1.5, 2.72, 0.26)
COURSE = Track("one", Start((0, 0, 0), 0.0), Bounds((-5, -9, -9), (40, 9, 5)), (GATE,), False, None)
EXACT = CornerNoise("none", (1.0, 999.0), *[(value, value) for value in (1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 1.0)])


def level(camera, back_m, gate=GATE, turn=(0.0, 0.0, 0.0)):
    """A pose so far before a gate, its axis in the middle of the image but for a turn in rad."""
    q_wb = product(product(gate.q_wg, from_euler(*turn)), from_euler(0, -math.radians(camera.tilt_deg), 0))
    return gate.p_wg - back_m * gate.R_wg[:, 0], np.array(q_wb)


@pytest.mark.parametrize(
    ("what", "change", "turn", "count"),
    [
        ("ahead", {}, (0, 0, 0), 1),
        ("rolled", {}, (2.0, 0, 0), 1),
        ("behind the camera", {}, (0, 0, math.pi), 0),
        ("cut by the image's edge", {}, (0, 0, 0.72), 1),
        ("cut to less than two sides", {}, (0, 0, 0.85), 0),
        ("seen from behind", {"gates": (replace(GATE, yaw_deg=180.0),)}, (0, 0, 0), 1),
        ("an obstacle before it", {"obstacles": (Obstacle((5, 0.5, -3), (5.5, 1.5, -1)),)}, (0, 0, 0), 0),
        ("an obstacle behind it", {"obstacles": (Obstacle((9, 0.5, -3), (9.5, 1.5, -1)),)}, (0, 0, 0), 1),
        ("another gate's bar before it", {"gates": (GATE, replace(GATE, centre_m=(6.0, 1.4, -2.0)))}, (0, 0, 0), 1),
        ("an unseen gate", {"gates": (replace(GATE, visible=False),)}, (0, 0, 0), 0),
    ],
)
def test_visibility_of_openings(dcl, what, change, turn, count):
    camera = ProjectedCamera(replace(COURSE, **change), dcl.camera, RACE, 0, EXACT)
    pose = level(dcl.camera, 6.0, turn=turn)
    seen = camera.see(*pose)
    assert len(seen) == count, what
    for gate in seen:
        along = np.roll(gate.corners_px, -1, 0) - gate.corners_px
        after = np.roll(along, -1, 0)
        assert (along[:, 0] * after[:, 1] - along[:, 1] * after[:, 0] > 0).all()  # clockwise, v down
        assert gate.corners_px.sum(1).argmin() == 0


def test_the_sides_in_view_of_a_cut_opening_are_measured(dcl):
    """The others are off by more than the image shows, and the covariance of what is reported says along which lines."""
    camera, pose = dcl.camera, level(dcl.camera, 6.0, turn=(0, 0, 0.72))
    eye = ProjectedCamera(COURSE, camera, RACE, 0, EXACT)
    true, seen = eye.visible(*pose), eye.see(*pose)
    assert seen[0].measured.sum() == 3 and seen[0].visible.sum() == 2
    assert seen[0].corners_px[seen[0].visible] == pytest.approx(true.corners_px[0][seen[0].visible], abs=1e-9)
    (detection,) = detections(seen)
    off = (detection.corners_px - true.corners_px[0])[~detection.visible]
    wide, axes = np.linalg.eigh(detection.cov_px[~detection.visible])
    assert np.linalg.norm(off, axis=1).min() > 1.0
    assert np.einsum("kij,ki->kj", axes, off)[:, 0] == pytest.approx(0.0, abs=0.1)  # across the line that was measured
    assert (np.sqrt(wide[:, 0]) < 1.0).all() and (np.sqrt(wide[:, 1]) > 10.0).all()


def test_errors_and_misses_are_the_model_s(dcl):
    noise = load(NOISE, CornerNoise)
    pose, true = level(dcl.camera, 8.0), ProjectedCamera(COURSE, dcl.camera, RACE, 0).visible(*level(dcl.camera, 8.0))
    camera = ProjectedCamera(COURSE, dcl.camera, RACE, 0, replace(noise, wild=(0.0,) * len(noise.side_px)))
    seen = [gate for _ in range(2000) for gate in camera.see(*pose)]
    errors = np.array([gate.corners_px for gate in seen]) - true.corners_px[0]

    def at(column):
        return np.interp(math.log(true.side_px[0]), np.log(noise.side_px), column)

    assert len(seen) / 2000 == pytest.approx(at(noise.found), abs=0.04)
    assert errors.std() == pytest.approx(math.hypot(at(noise.corner_px), at(noise.edge_offset_std_px)), rel=0.05)


def test_the_model_agrees_with_fresh_rendered_images(dcl):
    """Other poses, another hall than those of the fit; sizes with too few gates to judge are left out."""
    vq1 = load_track(Path(__file__).parents[2] / "tracks/vq1.yaml")
    try:
        rows, cut, _ = sample(vq1, dcl, "race", 17, 120)
    except CameraError as error:
        pytest.skip(str(error))
    fresh, model = fit(rows, cut, "test"), load(NOISE, CornerNoise)
    sides = np.array([row.side_px for row in rows])
    judged = 0
    for k, side in enumerate(model.side_px):
        if (np.abs(np.log(sides / side)) < 0.15).sum() >= 12:
            judged += 1
            assert 0.6 < fresh.corner_px[k] / model.corner_px[k] < 1.6, side
            assert abs(fresh.found[k] - model.found[k]) < 0.25, side
            assert abs(fresh.edge_offset_px[k] - model.edge_offset_px[k]) < 0.15, side
    assert judged >= 4
    expected = np.interp(np.log([row.side_px for row in cut]), np.log(model.side_px), model.cut_found)
    assert np.mean([row.detection is not None for row in cut]) == pytest.approx(expected.mean(), abs=0.15)
