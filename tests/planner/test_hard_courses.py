"""Courses that are hard, odd or impossible: a certified plan, or one clear line."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.planner import attempt
from gate_racer.planner.certificate.replay import clearances
from gate_racer.planner.course import FreeSpace
from gate_racer.planner.models import P
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track, bars
from tests.conftest import refused
from tests.planner.test_planner import gate, straight

ONE = PlanOptions(see=0.0, guesses=1)
WIDE = Bounds((-50.0, -60.0, -40.0), (1200.0, 60.0, 3.0))


def course(*gates, bounds=WIDE, **more):
    return Track("hard", Start((0.0, 0.0, 0.0), 0.0), bounds, tuple(gates), False, None, **more)


HARD = {  # course; whether gates are to be in view
    "one gate": (course(gate(10.0)), False),
    "a gate that faces away": (course(gate(10.0, yaw=180.0)), False),
    "a hairpin": (course(gate(10.0), gate(10.0, 4.0, yaw=180.0)), False),
    "one gate to and fro": (course(gate(10.0), gate(10.0, yaw=180.0)), False),
    "two openings, one above the other": (course(gate(10.0, z=-2.7), gate(10.0, yaw=180.0)), False),
}
HARDEST = {  # which take as long as all others, some since their many ways are all searched
    "one gate twice": (course(gate(10.0), gate(18.0, 3.0, yaw=90.0), gate(10.0)), False),
    "gates a body and its margins apart, in line": (course(gate(10.0), gate(10.95)), True),
    "a start inside a gate": (course(gate(0.0), gate(10.0)), True),
    "three in a row, the last two flown back to": (course(gate(10.0), gate(22.0), gate(16.0)), False),
    "two gates in one place, in view": (course(gate(10.0), gate(10.0)), True),
    "gates in line, the farthest first, flown back to": (course(gate(30.0), gate(20.0), gate(10.0)), True),
}
CASES = [pytest.param(*case, id=name) for name, case in HARD.items()]
CASES += [pytest.param(*case, id=name, marks=pytest.mark.soak) for name, case in HARDEST.items()]


@pytest.mark.parametrize(("track", "seen"), CASES)
def test_feasible_courses_are_certified_clear_of_every_frame(track, seen, dcl):
    plan, certificate = make_plan(track, dcl, replace(ONE, see=0.5 * seen))
    assert certificate.ok, certificate.status
    _, x, _ = plan.dense(dcl, 40)
    for one in track.gates:
        assert min(bar.distance(x[:, P]).min() for bar in bars(one)) >= dcl.contact_radius_m - 2e-3


BENDS = {  # course; whether all is small, with corners of the body beyond its contact radius
    "a bend": (course(gate(10.0), gate(14.0, 6.0, yaw=90.0)), False),
    "half a loop": (course(gate(8.0), gate(12.0, 3.0, yaw=60.0), gate(12.0, 9.0, yaw=150.0)), True),
}


@pytest.mark.parametrize(("track", "small"), BENDS.values(), ids=BENDS)
def test_a_curve_within_a_frame_is_clear_without_a_margin(track, small, dcl):
    vehicle = dcl
    if small:
        vehicle = replace(dcl, body_m=(0.09, 0.09, 0.07), contact_radius_m=0.057)
        track = replace(track, gates=tuple(replace(one, opening_m=0.4, outer_m=0.7) for one in track.gates))
    _, certificate = make_plan(track, vehicle, replace(ONE, reserve=1.0, margin_m=0.0))
    assert certificate.ok, certificate.status


TWO = gate(10.0), gate(30.0)
WALL, BEHIND = Obstacle((20.0, -60.0, -40.0), (20.5, 60.0, 3.0)), Obstacle((10.2, -9, -9), (10.4, 9, 2))
IMPOSSIBLE = [
    (course(gate(0.0, 1.05)), {}, "the start lies .* from the frame of gates"),
    (course(gate(10.0, z=2.9)), {}, r"gates\[0\]: no position there"),
    (course(gate(10.0, opening=0.2)), {}, "is too small"),
    (course(*TWO, obstacles=(WALL,)), {}, r"gates\[1\]: cannot be reached: no path .* clear of obstacles and gates"),
    (course(*TWO, obstacles=(BEHIND,)), {}, r"gates\[0\]: no position there .* clear of obstacles\[0\]"),
    (course(gate(10.0), gate(10.7)), {}, r"gates\[0\]: no position .* the frame of gates\[1\]"),
    (course(*TWO), {"flying_lap": True}, "flying_lap needs a closed course"),
    (course(*TWO), {"model": "rotors"}, "no `rotors` section"),
    (course(*TWO), {"stop_m": (80.0, 0.0, 2.9)}, "the end position: no position there"),
]


@pytest.mark.parametrize(("track", "options", "words"), IMPOSSIBLE, ids=[words for _, _, words in IMPOSSIBLE])
def test_an_infeasible_course_is_refused_at_once_in_one_line(track, options, words, dcl):
    with refused(words):
        make_plan(track, dcl, replace(ONE, **options))


def test_a_gates_post_is_a_solid_for_planner_and_certificate(dcl):
    posted = course(replace(gate(10.0, z=-6.0), stand_m=0.3), gate(10.0, z=-3.3), gate(20.0))
    lone = course(replace(gate(10.0, z=-6.0), stand_m=0.3), gate(20.0))
    under = np.array([[10.0, y, -2.0] for y in np.linspace(-5, 5, 101)])
    assert "the stand of gates[0]" in [solid.name for solid in FreeSpace.of(Task(lone, dcl, ONE)).solids]
    assert min(clearances(lone, under), key=lambda near: near.distance_m).solid == "the stand of gates[0]"
    for one in (posted, course(gate(10.0, z=-6.0), gate(20.0))):  # carried by another frame, or without a post
        assert not [solid for solid in FreeSpace.of(Task(one, dcl, ONE)).solids if "stand" in solid.name]
        assert not [near for near in clearances(one, under) if "stand" in near.solid]


def test_a_gate_of_several_passages_is_one_thing():
    track = course(gate(10.0), gate(18.0, 3.0), gate(10.0), gate(10.0, yaw=180.0))
    assert track.landmarks == (0, 1, 0, 0)
    assert np.isfinite([bar.half for bar in bars(track.gates[0])]).all() and straight(gate(1.0)).landmarks == (0,)


def test_no_certified_plan_of_a_random_course_is_contradicted(dcl):
    """Both controllers fly it without contact; `make fuzz-plans` tries many more."""
    outcome = attempt(1001, dcl, ONE)
    assert not outcome.contradicted and outcome.answer == "certified", outcome
