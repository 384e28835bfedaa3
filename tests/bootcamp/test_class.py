"""Grades of a class or of programs: whatever a program does, it gets its row, harms no other, and leaves nothing behind."""

import csv
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gate_racer.bootcamp.cli import parser
from gate_racer.bootcamp.grade import Exam, Limits, grade
from gate_racer.bootcamp.mistakes import imported
from gate_racer.bootcamp.run import _race, run
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.common.settings import settings_of
from gate_racer.race.settings import RunSettings
from gate_racer.tracks.track import load_track

HEAD = "from gate_racer.program import *\nimport os, subprocess, sys, threading, time\nSCENARIO = 'hear'\n"
FLIES = "def decide(r, p):\n    if r.status is not Status.HALTED: return Null()\n    return Land() if r.reached else Go(10, 0)\n"
PATCHES = (
    "import gate_racer.bootcamp.drone as d, gate_racer.bootcamp.grade as g, gate_racer.bootcamp.judge as j\n"
    "j.Judge.verdict = lambda *given: j.Judgement(True, ('won',), j.Score())\nd.Drone.step = g.fly_alone = None\n"
    "def decide(r, p): return Land()\n"
)
STARTS = "subprocess.Popen(['sleep', '{}'], start_new_session=True)\nsubprocess.run(['sh', '-c', 'sleep {} &'])\n"
BOMB = "def decide(r, p):\n    while True: subprocess.Popen(['sleep', '{}'])\n"
FORGES = (  # an answer that runs code where it is read
    "class Evil:\n    def __reduce__(self): return os.system, ('touch {}',)\n"
    "import gc, multiprocessing.connection as c\n"
    "def decide(r, p):\n    for o in gc.get_objects():\n"
    "        if isinstance(o, c.Connection) and o.writable and o.readable: o.send(Evil())\n    return Null()\n"
)
PROGRAMS = {  # text, and what its row says
    "imports": ("import helper\ndecide = helper.decide\n", "landed 0.00 m from the waypoint"),
    "patches": (PATCHES, "landed 10 m from the waypoint, at most 1 m are allowed"),
    "crashes": ("def decide(r, p): os.abort()\n", "the program crashed its process (SIGABRT) in `decide` at crashes.py:4"),
    "floods": (STARTS + FLIES.replace("    if", "    print('x' * 99, file=sys.stderr)\n    os.write(1, b'y' * 9999)\n    if", 1),
               "landed 0.00"),
    "grows": ("kept = []\ndef decide(r, p): kept.append(bytearray(10**8))\n", "MemoryError"),
    "bombs": (BOMB, "a program may have at most 32 processes at a time"),
    "forges": (FORGES, "the program sent what is no answer"),
    "kills": ("def decide(r, p): os.kill(os.getppid(), 9)\n", "not done"),
    "signals": ("def decide(r, p): return os.kill(0, 15) if os.getpgrp() == os.getpid() else None\n", "(SIGTERM)"),
    "fails": ("1 / 0\n", "fails.py:4: ZeroDivisionError: division by zero"),
    "raises": ("def decide(r, p): raise KeyError('<b>')\n", "not landed (KeyError: '<b>' (in `decide` at raises.py:4))"),
}  # fmt: skip


def living(*words: str) -> list[str]:
    """Command lines of processes that end with one of these words."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace").split("\0"))
        except OSError:
            continue
    return [" ".join(line) for line in lines if set(line) & set(words)]


def table(logs: Path) -> dict[str, dict[str, str]]:
    (path,) = logs.glob("*.csv")
    return {Path(row["program"]).stem: row for row in csv.DictReader(path.read_text().splitlines())}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for survivors in")
def test_every_program_of_a_class_gets_its_row_and_leaves_nothing(tmp_path, capfd):
    folder, logs, mark = tmp_path / "class", tmp_path / "logs", tmp_path / "mark"
    (folder / "sub").mkdir(parents=True)
    (folder / "helper.py").write_text(HEAD + FLIES)
    numbers = [str(7_200_000 + 1000 * os.getpid() + k) for k in range(3)]  # of no other test process
    for name, (text, _) in PROGRAMS.items():
        text = text.replace("{}", str(mark)) if name == "forges" else text
        for number in numbers[2:] if name == "bombs" else numbers[:2]:
            text = text.replace("{}", number, 1)
        (folder / f"{name}.py").write_text(HEAD + text)
    limits = ["--set", "world.drone=kinematic", f"logs={logs}", "memory_limit_mb=700"]
    assert run(parser().parse_args(["grade", str(folder), "--grade", "1", *limits])) == 1
    rows = table(logs)
    assert rows.keys() == PROGRAMS.keys()
    for name, (_, told) in PROGRAMS.items():
        assert told in " ".join(rows[name].values()), rows[name]
        assert (rows[name]["verdict"] == "done") == (told.startswith("landed 0.0")), rows[name]
    assert not living(*numbers) and not mark.exists()
    out = capfd.readouterr().out
    assert "xxx" not in out and "yyy" not in out and "imports.py: 1 of 1 seeds done, median time" in out
    page = (logs / "grades-class.html").read_text()
    landed = sum(told.startswith("landed") for _, told in PROGRAMS.values())
    assert page.count('src="data:image/jpeg') == landed and "KeyError: &#x27;&lt;b&gt;&#x27;" in page
    assert "Content-Security-Policy" in page and "landed 10 m from the waypoint" in page


def test_classes_of_one_name_have_a_table_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for school in ("a", "b"):
        Path(school, "class").mkdir(parents=True)
        Path(school, "class", "one.py").write_text(HEAD + FLIES)
        words = ["grade", f"{school}/class", "--grade", "1", "--set", "world.drone=kinematic"]
        assert run(parser().parse_args(words)) == 0
    assert {path.stem for path in Path("logs").glob("*.csv")} == {"grades-a-class", "grades-b-class"}


def test_a_class_that_was_graded_is_not_flown_again_unless_it_changes(tmp_path, capsys):
    folder, logs = tmp_path / "class", tmp_path / "logs"
    folder.mkdir()
    (one := folder / "one.py").write_text(HEAD + FLIES)
    words = ["grade", str(folder), "--grade", "2", "--seed", "5", "--set", "world.drone=kinematic", f"logs={logs}"]
    assert run(parser().parse_args(words)) == 0
    rows = re.findall(r"(?m)^one +(\d) +done ", capsys.readouterr().err)
    assert sorted(rows) == ["5", "6"]
    assert run(parser().parse_args(words)) == 0
    assert "2 of 2 flights are in" in capsys.readouterr().err
    (folder / "two.py").write_text(HEAD + "def decide(r, p): return Land()\n")
    assert run(parser().parse_args(words)) == 1
    told, key = capsys.readouterr(), Exam(one, 5, None).key
    assert "2 of 4 flights are in" in told.err and "one.py: 2 of 2" in told.out and "two.py: 0 of 2" in told.out
    one.write_text(HEAD + "def decide(r, p): return Land()\n")
    assert Exam(one, 5, None).key != key


def test_modules_that_a_program_imports_are_found(tmp_path):
    for name, text in {"a": "import b\nimport os\n", "b": "from c.d import x\n", "e": "import a\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/d.py").write_text("x = 1\n")
    assert imported(tmp_path / "a.py") == [tmp_path / "b.py", tmp_path / "c/d.py"]


def test_one_that_never_answers_is_not_done_and_the_next_is_flown_all_the_same(tmp_path):
    path, world, told = tmp_path / "hangs.py", replace(load_world(), drone="kinematic"), dict()
    path.write_text(HEAD + "def decide(r, p):\n    while True: pass\n")
    exams = [Exam(path, seed, make_scenario("hear", seed, world)) for seed in (0, 1)]
    grade(exams, 1, Limits(step_s=0.5), told.__setitem__)
    hung = "not landed (hung in `decide` at hangs.py:5: no answer for 0.5 s)"
    assert {told[number].verdict.reasons for number in (0, 1)} == {(hung,)}


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
