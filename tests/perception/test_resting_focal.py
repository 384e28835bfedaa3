"""Focal length estimated from the gates visible on the pad."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.perception.association import Associator
from gate_racer.perception.resting_focal import resting_focal
from gate_racer.race.lockstep import detections
from gate_racer.sim.view.projected import ProjectedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import from_euler, product
from gate_racer.vehicle.vehicle import load_vehicle

COURSES = {"vq1": "dcl", "vq2": "dcl", "pq": "archer"}


def from_pad(course, scale, seed, images=20, stretched=1.0):
    """Return the focal scale estimated from images on the pad, with errors of focal length, mount and pad.

    Args:
        stretched: by how much the course is larger than its map.
    """
    rng, track, nominal = np.random.default_rng(seed), load_track(course), load_vehicle(COURSES[course]).camera
    start = track.start
    true = replace(nominal.zoomed(scale), tilt_deg=nominal.tilt_deg + rng.normal(0, 1), yaw_deg=rng.normal(0, 0.5))
    p = start.p_wb + rng.normal(0, 0.1, 3)
    q = np.array(product(start.q_wb, from_euler(*rng.normal(0, 0.01, 3))))
    gates = [replace(g, centre_m=tuple(start.p_wb + stretched * (g.p_wg - start.p_wb))) for g in track.gates]
    eye = ProjectedCamera(replace(track, gates=tuple(gates)), true, load_style("race"), seed)
    seen = [detections(eye.see(p, q)) for _ in range(images)]
    return resting_focal(seen, Associator(track.gates, nominal).rims, nominal, start.p_wb, start.q_wb)


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("scale", [0.7, 0.8, 1.15, 1.33])
def test_a_focal_length_far_off_is_found_within_the_told_sigma(course, scale):
    for seed in range(2):
        assert from_pad(course, scale, seed) == pytest.approx(scale, rel=0.05)


@pytest.mark.parametrize("course", COURSES)
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
