"""Courses read strictly; gates are crossed exactly once, to sub-step accuracy; a file that is a mistake is told of."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.common.config import names
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import FOLDER, load_track, remarks
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import changed, refused

GATE = Gate((10.0, -3.0, -2.0), yaw_deg=30.0, opening_m=1.5, outer_m=2.7, depth_m=0.26)
BALL = Gate((1.0, 2.0, -3.0), radius_m=0.3)


def at(gate, x, y, z):
    """World point from gate axes."""
    return gate.p_wg + gate.R_wg @ [x, y, z]


def test_vq1_centres_lie_136_cm_above_the_published_base(vq1):
    assert vq1.gates[0].centre_m == pytest.approx((-23.298, -0.4, -1.392))


@given(st.floats(-0.7, 0.7), st.floats(-0.7, 0.7), st.floats(0.01, 3), st.floats(0.01, 3))
def test_a_straight_passage_is_found_where_it_is(y, z, before, after):
    crossing = GATE.crossing(at(GATE, -before, y, z), at(GATE, after, y, z))
    assert crossing is not None
    assert crossing.s == pytest.approx(before / (before + after))
    assert crossing.margin == pytest.approx(0.75 - max(abs(y), abs(z)), abs=1e-9)


def test_a_point_on_the_plane_belongs_to_one_step_only():
    points = [at(GATE, x, 0, 0) for x in (-1.0, 0.0, 1.0)]
    found = [GATE.crossing(a, b) is not None for a, b in zip(points, points[1:], strict=False)]
    assert sum(found) == 1


def test_the_wrong_direction_is_no_crossing_and_beside_the_opening_the_margin_is_negative():
    assert GATE.crossing(at(GATE, 1, 0, 0), at(GATE, -1, 0, 0)) is None
    crossing = GATE.crossing(at(GATE, -1, 1.0, 0), at(GATE, 1, 1.0, 0))
    assert crossing is not None and crossing.margin == pytest.approx(-0.25)


@given(st.floats(-0.7, 0.7), st.floats(-0.7, 0.7), st.sampled_from([1, -1]))
def test_a_square_drawn_as_a_polygon_is_the_same_opening(y, z, sense):
    square = ((-0.75, -0.75), (0.75, -0.75), (0.75, 0.75), (-0.75, 0.75))[::sense]
    polygon = Gate(GATE.centre_m, GATE.yaw_deg, polygon_m=square)
    a, b = at(GATE, -1.0, y, z), at(GATE, 2.0, z, y)
    assert polygon.half == 0.75
    assert polygon.crossing(a, b) == pytest.approx(GATE.crossing(a, b))


def test_a_tunnel_is_judged_at_both_of_its_ends():
    """A path at 45 degrees through a prism 1 m long is half a metre off its axis at both ends."""
    square = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
    tunnel = Gate(GATE.centre_m, GATE.yaw_deg, polygon_m=square, tunnel_m=1.0)
    found = tunnel.crossing(at(tunnel, -2, -2, 0), at(tunnel, 2, 2, 0))
    assert found is not None and found.margin == pytest.approx(0.5)


def test_a_ball_is_crossed_at_the_closest_point_of_the_path():
    crossing = BALL.crossing(BALL.p_wg + [-1, 0.2, 0], BALL.p_wg + [3, 0.2, 0])
    assert crossing is not None and crossing.s == pytest.approx(0.25) and crossing.margin == pytest.approx(0.1)


@given(st.floats(0.05, 0.28), st.floats(0.4, 2.0), st.floats(0.0, 1.0))
def test_a_ball_is_crossed_once_on_a_path_that_turns(off, radius, phase):
    """On a circle no step need be normal to the direction of the ball's centre."""
    angle = np.radians(np.arange(-90.0, 90.0, 4.0) + 4.0 * phase)
    p_w = BALL.p_wg + np.column_stack([radius * np.sin(angle), off - radius * (1 - np.cos(angle)), 0 * angle])
    v_w = np.column_stack([np.cos(angle), -np.sin(angle), 0 * angle])
    steps = zip(p_w[:-1], p_w[1:], v_w[:-1], v_w[1:], strict=True)
    found = [one for one in (BALL.crossing(*step) for step in steps) if one is not None]
    assert len(found) == 1 and found[0].margin == pytest.approx(0.3 - off, abs=0.02)


def test_corners_run_clockwise_from_top_left_as_the_arriving_camera_sees_them():
    local = GATE.local(GATE.corners())
    assert np.sign(local[:, 1]).tolist() == [-1, 1, 1, -1]
    assert np.sign(local[:, 2]).tolist() == [-1, -1, 1, 1]
    assert np.abs(local[:, 1:]).max() == pytest.approx(0.75)


def test_laps_repeat_closed_courses_only(vq1):
    assert len(load_track("figure8").course(3)) == 18
    with refused("not closed"):
        vq1.course(2)


def test_the_hash_changes_with_the_course_and_not_with_its_prose(tmp_path, vq1):
    assert load_track(changed(tmp_path, FOLDER / "vq1.yaml", "AI Grand Prix, Virtual", "The virtual")).hash == vq1.hash
    assert load_track(changed(tmp_path, FOLDER / "vq1.yaml", "-23.298", "-23.299")).hash != vq1.hash


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("yaw_deg: 180.0}\n  - {base_m: [-46", "yaw: 180.0}\n  - {base_m: [-46", "gates[0]: unknown field 'yaw'"),
        ("25.356], yaw_deg: 180.0", "25.356]", "gates[4].yaw_deg: missing"),
        ("[-46.894, -2.500, 5.068]", "[-46.894, -2.500]", "gates[1].base_m"),
        ("[-46.894, -2.500, 5.068]", "[-46.894, -2.500, .inf]", "gates[1].base_m[2]: expected a finite number"),
        ("[-46.894, -2.500, 5.068]", "[-946.894, -2.500, 5.068]", "gates[1]: "),
        ("depth_m: 0.26", "depth_m: 1.0e300", "frame: no length of a gate may exceed 100 m"),
        ("opening_m: 1.5", "opening_m: 2.9", "0 < opening_m < outer_m"),
        ("low_m: [-190.0", "low_m: [190.0", "low_m must be below high_m"),
        ("name: vq1", "name: ../vq1", "name: '../vq1'"),
        ("[-46.894, -2.500, 5.068]", "[-23.298, -0.400, 0.3]", "gates[1]: lies inside gates[0], 0.33 m from"),
        ("gates:", "obstacles: [{low_m: [-24, -1, -2], high_m: [-23, 0, 0]}]\ngates:", "gates[0]: "),
        ("gates:", "end_m: [900.0, 0.0, 0.0]\ngates:", "end_m: (900.0, 0.0, 0.0) lies outside the bounds"),
        ("{base_m: [-46.894,", "{tunnel_m: 2.0, base_m: [-46.894,", "gates[1].tunnel_m: must"),
        ("{base_m: [-46.894,", "{polygon_m: [[1, 0], [2, 0], [2, 1]], base_m: [-46.894,", "gates[1].polygon_m: needs"),
    ],
)
def test_a_wrong_file_is_named_with_the_path_of_the_fault(tmp_path, old, new, message):
    file = changed(tmp_path, FOLDER / "vq1.yaml", old, new)
    with refused(f"{re.escape(str(file))}.*{re.escape(message)}"):
        load_track(file)


def test_no_gates_and_no_file_are_errors(tmp_path):
    with refused("cannot be read"):
        load_track(tmp_path / "nowhere.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with refused("expected named fields"):
        load_track(tmp_path / "empty.yaml")


@pytest.mark.parametrize(
    ("clock", "times", "elapsed"),
    [
        ("go", [1.5, 2.5, 4.0], 4.0),
        ("first_gate", [1.5, 2.5, 4.0], 2.5),
        ("first_gate", [1.5], 0.0),
    ],
)
def test_the_time_of_a_race_counts_from_its_clock(clock, times, elapsed):
    assert replace(load_track("pq"), clock=clock).elapsed(times) == elapsed


def test_the_qualifier_counts_from_the_first_gate_and_the_clock_changes_no_plan(vq1):
    pq = load_track("pq")
    assert pq.clock == "first_gate" and vq1.clock == "go" and replace(pq, clock="go").hash == pq.hash
    assert all(gate.depth_m == 0.08 for gate in pq.gates)


# Files that are valid and yet a mistake are told of; courses that are meant are not.


DEG = 57.29577951308232


def turned(gates):
    return (*gates[:3], replace(gates[3], yaw_deg=gates[3].yaw_deg + 180.0), *gates[4:])


MISTAKES = {
    "if yaw_deg is in radians": lambda gates: tuple(replace(gate, yaw_deg=gate.yaw_deg / DEG) for gate in gates),
    r"gates\[3\].yaw_deg: .* against the course's direction": turned,
    "is their order reversed": lambda gates: gates[::-1],
    r"gates\[3\] is gates\[2\] again": lambda gates: (*gates[:3], gates[2], *gates[3:]),
    r"gates\[0\] is gates\[\d+\] again": lambda gates: (*gates, gates[0]),
}


@pytest.mark.parametrize(("words", "change"), MISTAKES.items(), ids=MISTAKES)
@pytest.mark.parametrize("course", ["vq1", "vq2", "figure8"])
def test_a_course_with_a_mistake_is_told_of(course, change, words):
    track = load_track(course)
    (line,) = remarks(replace(track, gates=change(track.gates), closed=True))
    assert line.startswith(track.file) and re.search(words, line)


@pytest.mark.parametrize("course", names(FOLDER))
def test_shipped_courses_are_meant(course):
    assert remarks(load_track(course)) == []


def test_a_course_flown_east_and_north_with_small_yaws_is_meant():
    track = load_track("vq1")
    straight = [replace(gate, centre_m=(10.0 * k, 0.5 * k, -2.0), yaw_deg=3.0) for k, gate in enumerate(track.gates, 1)]
    assert remarks(replace(track, gates=tuple(straight))) == []


VEHICLE_MISTAKES = [
    ("tilt_deg: 20.0", "tilt_deg: 0.349", "camera.tilt_deg: 0.349 is taken in degrees"),
    ("width_px: 640, height_px: 360", "width_px: 360, height_px: 640", "are width_px and height_px swapped"),
    ("gyro_noise_rad_s: 0.005", "gyro_noise_rad_s: 0.3", "0.3 rad/s is 17 deg/s"),
]


@pytest.mark.parametrize(("right", "wrong", "words"), VEHICLE_MISTAKES)
def test_a_vehicle_with_a_mistake_is_told_of(tmp_path, right, wrong, words):
    own = changed(tmp_path, VEHICLES / "dcl.yaml", "cx_px: 320.0", "cx_px: 180.0")
    (line,) = remarks(None, load_vehicle(str(changed(tmp_path, own, right, wrong))))
    assert words in line


@pytest.mark.parametrize("name", names(VEHICLES))
def test_shipped_vehicles_are_meant(name):
    assert remarks(None, load_vehicle(name)) == []
