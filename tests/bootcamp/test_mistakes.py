"""Every wrong program is told its mistake in one sentence; a right one is told none."""

from dataclasses import replace

import pytest

from gate_racer.bootcamp.api import Box, Go, Location
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.mistakes import _seen, box_mistakes, go_mistakes, place_mistakes
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import Player, fly_alone
from tests.bootcamp.wrong import CHANGES, HEAD, PROGRAMS
from tests.conftest import ROOT

KINEMATIC = replace(load_world(), drone="kinematic", steps_max=400)
QUICK = dict.fromkeys(("distractors", "locate"), replace(KINEMATIC, steps_max=60))
QUICK["wind"] = replace(load_world(), height_m=12.0, boundary_m=24.0, steps_max=200)
QUICK["gates"] = replace(load_world(), steps_max=400)


HERE, THERE = Location(5.0, 7.0), Location(15.0, 27.0)
WRONG_GO = {  # displacements in place of 10 m north and 20 m east, by what is told
    (-10, -20): "the sign is wrong", (10, -20): "the sign of east", (-10, 20): "the sign of north", (20, 10): "swapped",
    (100, 200): "10 times too long", (15, 27): "from the start", (20, 34): "is added to the place", (0, 20): "north is left out",
}  # fmt: skip


def test_a_wrong_map_of_a_right_value_is_named_and_a_right_one_never():
    assert not go_mistakes(Go(10.0, 20.0), HERE, [THERE])
    for wrong, told in WRONG_GO.items():
        (mistake,) = go_mistakes(Go(*map(float, wrong)), HERE, [THERE])
        assert told in mistake
    report = Drone(make_scenario("hear", 0, KINEMATIC)).report()
    pad = Location(4.0, 3.0)
    right = _seen(report, pad, 2.0)
    assert not box_mistakes(Box(*right), report, [pad], 2.0)
    left, top, right, bottom = right
    wrong = {"rows before": (top, left, bottom, right), "upside": (left, 480 - bottom, right, 480 - top)}
    for told, box in wrong.items():
        (mistake,) = box_mistakes(Box(*box), report, [pad], 2.0)
        assert told in mistake
    north_reversed = Location(-pad.north, pad.east)
    assert any("north has the wrong sign" in mistake for mistake in place_mistakes(north_reversed, report, [pad]))


def told(path, scenario):
    return str(fly_alone(Player(path, scenario), scenario).verdict)


@pytest.mark.parametrize(("name", "scenario", "text", "sentence"), PROGRAMS, ids=[case[0] for case in PROGRAMS])
def test_a_program_is_told_its_mistake(tmp_path, name, scenario, text, sentence):
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}SCENARIO = {scenario!r}\n{text}")
    assert sentence in told(path, make_scenario(scenario, 7, QUICK.get(scenario, KINEMATIC)))


@pytest.mark.parametrize(("name", "lesson", "changes", "sentence"), CHANGES, ids=[case[0] for case in CHANGES])
def test_a_lesson_with_a_mistake_is_told_it(tmp_path, name, lesson, changes, sentence):
    path, text = tmp_path / "mine.py", (ROOT / f"examples/solutions/{lesson}.py").read_text()
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    path.write_text(text)
    scenario = load_program(path).scenario
    assert sentence in told(path, make_scenario(scenario, 7, QUICK.get(scenario, KINEMATIC)))
