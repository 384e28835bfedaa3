"""A table and a page over programs and seeds, whatever the programs do."""

import re
from dataclasses import replace

from gate_racer.bootcamp.cli import _race, parser, run
from gate_racer.bootcamp.grade import Exam, Limits, grade
from gate_racer.bootcamp.scenario import make_scenario
from gate_racer.bootcamp.world import load_world
from gate_racer.common.settings import settings_of
from gate_racer.race.settings import RunSettings
from gate_racer.tracks.track import load_track

HEAD = "from gate_racer.bootcamp.api import *\nimport os\nSCENARIO = 'hear'\n"
PROGRAMS = {
    "good": "def decide(r, p):\n    if r.status is not Status.HALTED: return Null()\n"
    "    return Land() if r.reached else Go(10, 0)\n",
    "short": "def decide(r, p):\n    if r.status is not Status.HALTED: return Null()\n"
    "    return Land() if r.position.north > 1 else Go(5, 0)\n",
    "raises": "def decide(r, p): raise KeyError('<b>')\n",
    "leaves": "def decide(r, p): os._exit(7)\n",
    "hangs": "def decide(r, p):\n    while True: pass\n",
}
SAID = {
    "good": "landed 0.00 m from the waypoint",
    "short": "landed 5.00 m from the waypoint, at most 1 m are allowed",
    "raises": "not landed (KeyError: '<b>' (in `decide` at raises.py:4))",
    "leaves": "the program ended its process (exit code 7)",
    "hangs": "not landed (hung in `decide` at hangs.py:5: no answer for 1 s)",
}


def write(folder, *names):
    paths = [folder / f"{name}.py" for name in names]
    for path in paths:
        path.write_text(HEAD + PROGRAMS[path.stem])
    return paths


def test_every_program_is_graded_whatever_it_does(tmp_path, capsys):
    names = [name for name in PROGRAMS if name != "hangs"]
    flags = ["--grade", "2", "--set", "world.drone=kinematic", f"logs={tmp_path}"]
    assert run(parser().parse_args([*map(str, write(tmp_path, *names)), *flags])) == 1
    told = capsys.readouterr().out
    for name in names:
        rows = [line for line in told.splitlines() if re.match(rf"{name} +[01] ", line)]
        assert len(rows) == 2 and all(SAID[name] in line for line in rows), told
    assert "good.py: 2 of 2 seeds done, median time" in told and "short.py: 0 of 2 seeds done" in told
    (page,) = tmp_path.glob("grades-*.html")
    text = page.read_text()
    assert text.count('src="data:image/jpeg') == 4 and "KeyError: &#x27;&lt;b&gt;&#x27;" in text
    assert "Content-Security-Policy" in text and "landed 5.00 m from the waypoint" in text


def test_one_that_never_answers_is_not_done_and_the_next_is_flown_all_the_same(tmp_path):
    (path,) = write(tmp_path, "hangs")
    world, told = replace(load_world(), drone="kinematic"), dict()
    exams = [Exam(path, seed, make_scenario("hear", seed, world)) for seed in (0, 1)]
    grade(exams, 1, Limits(step_s=1.0), told.__setitem__)
    assert [told[number].verdict.reasons for number in (0, 1)] == [(SAID["hangs"],)] * 2


def test_a_course_that_is_done_is_raced_by_run_mpc(tmp_path, monkeypatch):
    """The very course: what is planned and flown has the gates that the lesson's program has passed."""
    raced = []
    monkeypatch.setattr("gate_racer.race.run_mpc.run", lambda arguments: raced.append(arguments) or 0)
    scenario = make_scenario("gates", 7)
    assert _race(scenario, tmp_path) == 0
    (arguments,) = raced
    assert load_track(arguments.what).hash == scenario.course.hash
    settings = settings_of(arguments, RunSettings)
    assert settings.link.lockstep and settings.world.camera == "projected"
