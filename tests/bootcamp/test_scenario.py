"""Scenarios and their conditions follow their limits and the seed; ground and maps are rendered where they lie."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import cv2
import numpy as np
import pytest

from gate_racer.bootcamp.api import Box, Go, Halt, Location, Null, Status
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.floor import GroundCamera, detect_pads, locate
from gate_racer.bootcamp.scenario import (
    APART_M,
    BOUNDS,
    GATE_APART_M,
    GATE_WALL_M,
    PADS_MAX,
    WorldConditions,
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


# Conditions of flight follow the scenario and are equal for a seed; maps are placed as their names say.


LEVEL = (1.0, 0.0, 0.0, 0.0)


def hard(name="figure8", seed=3, **conditions):
    return make_scenario(name, seed, replace(WORLD, conditions=WorldConditions(**conditions)))


def seen(scenario, step):
    drone, camera = Drone(scenario), GroundCamera(scenario)
    report = replace(drone.report(), step=step)
    return camera.frame(drone.p_wb, report).astype(float), camera.image(drone.p_wb, report.q_wb).astype(float)


def test_noise_is_as_strong_as_asked_and_new_at_every_step():
    scenario = hard(noise=12.0)
    (noisy, clean), (later, _), (again, _) = (seen(scenario, step) for step in (1, 2, 1))
    assert (noisy - clean).std() == pytest.approx(12.0, rel=0.05) and (noisy != later).any() and (noisy == again).all()


def test_lost_images_are_black_come_in_gaps_and_are_as_many_as_asked():
    scenario = make_scenario("lost", 5, replace(WORLD, drone="kinematic"))
    drone, camera = Drone(scenario), GroundCamera(scenario)
    came = []
    for _ in range(600):
        report = drone.step(Null())
        came.append(report.has_image)
    black = replace(report, has_image=False)
    assert not camera.frame(drone.p_wb, black).any() and camera.frame(drone.p_wb, replace(report, has_image=True)).any()
    assert 0.3 < np.mean(came) < 0.7 and np.count_nonzero(np.diff(came)) < 60


def test_distractors_fool_the_builtin_detector():
    image, _ = seen(make_scenario("distractors", 7, replace(WORLD, drone="kinematic")), 0)
    assert len(detect_pads(cv2.medianBlur(image.astype(np.uint8), 5))) > 1


def test_the_wind_holds_the_drone_off_its_destination_and_comes_from_the_seed():
    scenario = hard(wind_m_s=7.0)
    places = {Drone(hard(seed=seed, wind_m_s=7.0)).report().position for seed in (3, 4)}
    assert len(places) == 2
    drone = Drone(scenario)
    drone.step(Go(5.0, 0.0))
    for _ in range(80):
        report = drone.step(Null())
    off = report.position.distance(report.destination)
    assert report.status is Status.MOVING and report.speed < 0.05 and 0.5 < off < 0.8


def test_repeated_halts_halt_and_no_tailwind_makes_it_faster_than_the_limit():
    drone = Drone(hard(wind_m_s=7.0))
    places = [(40.0, 0.0), (-40.0, 0.0), (0.0, 40.0), (0.0, -40.0)]
    fastest = 0.0
    for place in places:
        report = drone.step(Go(*place))
        for _ in range(25):
            report = drone.step(Null())
            fastest = max(fastest, report.speed)
        for _ in range(60):
            if report.status is not Status.HALTED:
                report = drone.step(Halt())
        assert report.status is Status.HALTED and report.ignored == 0
    assert 4.7 < fastest <= WORLD.speed_m_s


def test_conditions_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"boundary_m: 100000.0 must lie between 1 and 200"):
        replace(WORLD, boundary_m=1e5)
    for wrong in ({"wind_m_s": 1e9}, {"lost": 1.0}, {"noise": -1.0}, {"camera_tilt_deg": 0.0}):
        with pytest.raises(ValueError):
            WorldConditions(**wrong)


def test_a_map_is_laid_by_the_names_of_its_tiles(tmp_path):
    colours = {"0_0": (0, 90, 0), "1_0": (90, 0, 0), "0_-1": (90, 90, 0)}
    colours |= {"default": (10, 10, 10), "boundary": (0, 0, 200)}
    for name, colour in colours.items():
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full((30, 40, 3), colour, np.uint8))
    scenario = replace(make_scenario("hear", 1, replace(WORLD, map=str(tmp_path))), pads=())
    camera = GroundCamera(scenario)
    places = {"0_0": (0, 0), "1_0": (0, 20), "0_-1": (15, 0), "default": (15, 20), "boundary": (75, 0)}
    for name, (north, east) in places.items():
        image = camera.image((north, east, -30.0), LEVEL)
        assert tuple(image[240, 320]) == colours[name], name
    edge = camera.image((7.5, 0.0, -30.0), LEVEL)  # y counts downward: 0_-1 lies north of 0_0
    assert tuple(edge[100, 320]) == colours["0_-1"] and tuple(edge[380, 320]) == colours["0_0"]
    (tmp_path / "0_0.png").write_text("no image")
    with pytest.raises(UserError, match=r"0_0.png: not an image of at most 16 Mpx; a map needs default.png"):
        GroundCamera(scenario)
