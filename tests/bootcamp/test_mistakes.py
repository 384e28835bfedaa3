"""Every wrong program is told its mistake, with its line or in one sentence; a right one is told none."""

from dataclasses import replace

import pytest

from gate_racer.bootcamp.api import Box, Go, Location
from gate_racer.bootcamp.cell import scenario_of
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.mistakes import _seen, blanks, box_mistakes, go_mistakes, hints, place_mistakes
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import Player, fly_alone
from gate_racer.common.errors import UserError
from tests.bootcamp.wrong import CHANGES, HEAD, PROGRAMS
from tests.conftest import ROOT

KINEMATIC = replace(load_world(), drone="kinematic", steps_max=400)
QUICK = dict.fromkeys(("distractors", "locate"), replace(KINEMATIC, steps_max=60))
QUICK["wind"] = replace(load_world(), height_m=12.0, boundary_m=24.0, steps_max=200)
QUICK["gates"] = replace(load_world(), steps_max=200)


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


# Usual mistakes are named with their line; programs that are right are left in peace.


API = "from gate_racer.bootcamp.api import Go, Null\n"
CASES = {  # text, line, and what is told
    "no return": ("def decide(r, p):\n    pass\n", 2, "`decide` can end without a `return`"),
    "a return in one branch": ("def decide(r, p):\n    if r:\n        return Null()\n", 2, "without a `return`"),
    "a command without return": (
        "def decide(r, p):\n    if r:\n        Null()\n    return Null()\n", 4, "Null(...) has no effect without `return`"),
    "a status as text": ("def decide(r, p):\n    return Go(r.status == 'HALTED', 0)\n", 3, "write Status.HALTED"),
    "a yield": ("def detect(i):\n    yield 1\ndef decide(r, p): return Null()\n", 2, "`detect` must be a plain function"),
    "async": ("async def decide(r, p):\n    return Null()\n", 2, "without `yield` and `async`"),
    "a loop at module level": ("while True:\n    pass\ndef decide(r, p): return Null()\n", 2, "a loop outside of functions"),
    "a global between workers": (
        "seen = []\ndef detect(i):\n    seen.append(i)\n    return []\ndef decide(r, p): return Go(len(seen), 0)\n",
        4, "`seen` is changed in `detect` and used in `decide`, which run in separate processes"),
    "a global changed by a helper": (
        "n = 0\ndef up():\n    global n\n    n += 1\ndef decide(r, p):\n    up()\n    return Null()\n"
        "def locate(b, r): return (n, 0)\n", 4, "`n` is changed in `decide` and used in `locate`"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "told"), CASES.values(), ids=CASES)
def test_mistakes(tmp_path, text, line, told):
    path = tmp_path / "mine.py"
    path.write_text(API + text)
    (hint,) = hints(path)
    assert hint.line == line and told in hint.text


@pytest.mark.parametrize("folder", ["examples", "examples/solutions"])
def test_programs_that_are_right_get_no_hint(folder):
    paths = [path for path in (ROOT / folder).glob("*.py") if "def decide" in path.read_text()]
    assert len(paths) >= 4 and [hints(path) for path in paths] == [[]] * len(paths)


def test_a_blank_is_a_value_and_not_a_body_or_a_slice(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def later(): ...\ndef decide(r, p):\n    a = p[..., 0]\n    ...  # remember\n    return ...\n")
    assert [(hint.line, hint.text) for hint in blanks(path)] == [(4, "remember"), (5, "put a value in its place")]


ENDLESS = [("while n == 0: pass\n", 2), ("while n < 9:\n    try: time.sleep(9)\n    except BaseException: n += 1\n", 3)]


@pytest.mark.parametrize(("loop", "line"), ENDLESS, ids=["in a loop", "that swallows exceptions"])
def test_a_file_that_never_ends_is_named_with_its_line(tmp_path, monkeypatch, loop, line):
    path = tmp_path / "mine.py"
    path.write_text(f"n = 0; import time\n{loop}")
    monkeypatch.setattr("gate_racer.bootcamp.cell.LOAD_S", 1.0)
    with pytest.raises(UserError, match=rf"mine.py:{line}: still running after 1 s: a loop outside of functions\?"):
        scenario_of(path)
