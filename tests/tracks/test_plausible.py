"""Files that are valid and yet a mistake are told of; courses that are meant are not."""

import re
from dataclasses import replace

import pytest

from gate_racer.common.config import names
from gate_racer.tracks.track import FOLDER, load_track, remarks
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import changed

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
