"""Every wrong program is told its mistake in one sentence; a right one is told none."""

from dataclasses import replace

import pytest

from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import Player, fly_alone
from tests.bootcamp.wrong import CHANGES, HEAD, PROGRAMS
from tests.conftest import ROOT

KINEMATIC = replace(load_world(), drone="kinematic", steps_max=400)
QUICK = dict.fromkeys(("distractors", "locate"), replace(KINEMATIC, steps_max=60))
QUICK["wind"] = replace(load_world(), height_m=12.0, boundary_m=24.0, steps_max=200)
QUICK["gates"] = replace(load_world(), steps_max=400)


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
