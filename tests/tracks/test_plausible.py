"""Courses that are valid and yet a mistake are told of; those that are meant are not."""

import re
from dataclasses import replace

import pytest

from gate_racer.common.config import names
from gate_racer.tracks.plausible import remarks
from gate_racer.tracks.track import FOLDER, load_track

DEG = 57.29577951308232


def turned(gates):
    return (*gates[:3], replace(gates[3], yaw_deg=gates[3].yaw_deg + 180.0), *gates[4:])


MISTAKES = {
    "against .* is yaw_deg in degrees": lambda gates: tuple(
        replace(gate, yaw_deg=gate.yaw_deg / DEG) for gate in gates
    ),
    r"yaml: gates\[3\] against the course's direction": turned,
    "in the order of flight": lambda gates: gates[::-1],
    r"gates\[3\] is gates\[2\] again": lambda gates: (*gates[:3], gates[2], *gates[3:]),
}


TOLD = [(course, words) for course in ("vq1", "vq2", "figure8") for words in MISTAKES]
TOLD.remove(("vq2", "against .* is yaw_deg in degrees"))  # which leads north, as gates of no yaw do


@pytest.mark.parametrize(("course", "words"), TOLD)
def test_a_course_with_a_mistake_is_told_of(course, words):
    track = load_track(course)
    (line,) = remarks(replace(track, gates=MISTAKES[words](track.gates)))
    assert line.startswith(track.file) and re.search(words, line)


@pytest.mark.parametrize("course", names(FOLDER))
def test_shipped_courses_are_meant(course):
    assert remarks(load_track(course)) == []


def test_a_course_flown_east_and_north_with_small_yaws_is_meant():
    track = load_track("vq1")
    straight = [replace(gate, centre_m=(10.0 * k, 0.5 * k, -2.0), yaw_deg=3.0) for k, gate in enumerate(track.gates, 1)]
    assert remarks(replace(track, gates=tuple(straight))) == []
