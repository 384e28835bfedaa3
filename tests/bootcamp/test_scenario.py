"""Scenarios draw positions within their limits; the ground is rendered where it lies."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from gate_racer.bootcamp.api import Box, Location
from gate_racer.bootcamp.floor import GroundCamera, detect_pads, locate
from gate_racer.bootcamp.scenario import (
    APART_M,
    BOUNDS,
    GATE_APART_M,
    GATE_WALL_M,
    PADS_MAX,
    generate_track,
    load_world,
    make_scenario,
    write_track,
)
from gate_racer.common.errors import UserError
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import from_euler

WORLD = load_world()


@cache
def painted(seed):
    scenario = make_scenario("pads", seed)
    return scenario, GroundCamera(scenario)


def test_waypoints_and_pads_lie_where_they_may():
    view, counts, waypoints = np.array(WORLD.view_m), set(), set()
    for seed in range(300):
        scenario = make_scenario("pads", seed, WORLD)
        waypoint = np.abs(scenario.waypoint)
        assert (waypoint >= view).all() and (waypoint <= WORLD.boundary_m - view / 2).all()
        for pad in scenario.pads:
            assert (np.abs(np.subtract(pad, scenario.waypoint)) <= view / 2 - WORLD.pad_m / 2).all()
        for a, b in combinations(scenario.pads, 2):
            assert np.abs(np.subtract(a, b)).max() >= WORLD.pad_m + APART_M
        counts.add(len(scenario.pads))
        waypoints.add(scenario.waypoint)
        assert make_scenario("waypoint", seed, WORLD).waypoint == scenario.waypoint
    assert counts == set(range(1, PADS_MAX + 1)) and len(waypoints) == 300


def test_what_there_is_no_room_for_is_refused():
    with pytest.raises(UserError, match="no room for a waypoint"):
        make_scenario("waypoint", 1, replace(WORLD, boundary_m=20.0))
    with pytest.raises(UserError, match="seed 7: no room for 60 gates"):
        generate_track(7, 60)


def test_the_image_shows_20_by_15_m_and_the_ray_through_a_pixel_is_its_inverse():
    """The bootcamp's own camera is the regression: 60 px/m, straight down from 30 m."""
    assert WORLD.view_m == pytest.approx((15.0, 20.0))
    camera = replace(WORLD.camera, width_px=1200, height_px=900, fx_px=1800, fy_px=1800, cx_px=600, cy_px=450)
    place = locate(Box(650, 380, 670, 400), 30.0, Location(5.0, 7.0), (1.0, 0.0, 0.0, 0.0), camera)
    assert place == pytest.approx((5.0 + 60 / 60, 7.0 + 60 / 60))
    level = from_euler(np.pi / 2 + 0.1, 0.0, 0.0)
    assert locate(Box(0, 0, 2, 2), 30.0, Location(0.0, 0.0), level, camera) is None or level[0] > 0


@pytest.mark.parametrize(
    ("roll", "pitch", "yaw"), [(0, 0, 0), (0.2, 0, 0), (0, -0.2, 0), (0.1, 0.1, 1.0), (0, 0, -2.5)]
)
def test_every_pad_in_sight_is_found_where_it_lies_whatever_the_attitude(roll, pitch, yaw):
    q_wb, found = from_euler(roll, pitch, yaw), 0
    for seed in range(6):
        scenario, camera = painted(seed)
        image = camera.image([*scenario.waypoint, -WORLD.height_m], q_wb)
        boxes = detect_pads(image)
        found += len(boxes)
        for box in boxes:
            place = locate(box, WORLD.height_m, scenario.waypoint, q_wb, WORLD.camera)
            assert min(place.distance(pad) for pad in scenario.pads) < 0.15
        if (roll, pitch, yaw) == (0, 0, 0):
            assert len(boxes) == len(scenario.pads)
    assert found > 3


def test_generated_gates_stand_within_bounds_and_apart_and_survive_the_file(tmp_path):
    last = set()
    for seed in range(40):
        track = generate_track(seed, 6)
        p = np.array([gate.p_wg for gate in track.gates])
        assert (np.abs(p[:, :2]) <= np.array(BOUNDS.high_m[:2]) - GATE_WALL_M + 1e-3).all()
        assert min(np.linalg.norm(a - b) for a, b in combinations(p, 2)) > GATE_APART_M - 1e-2
        assert load_track(write_track(track, tmp_path)).hash == track.hash
        last.add(track.gates[-1].centre_m)
    assert len(last) == 40
    assert generate_track(3, 6) == generate_track(3, 6)


def test_generated_gates_can_be_reached(dcl):
    _, certificate = make_plan(generate_track(7, 4), dcl, PlanOptions(guesses=1))
    assert certificate.ok, certificate.status
