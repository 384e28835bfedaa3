"""Five processes fly together, and whatever ends the flight, all end, nothing is lost, and a report says what happened."""

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import cv2
import pytest

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.crew import PATIENCE_S, Crew
from gate_racer.bootcamp.floor import detect_pads
from gate_racer.bootcamp.judge import ProgramEnd
from gate_racer.bootcamp.run import fly
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import HOLD_S, STAGES, Job, replay
from tests.conftest import ROOT
from tests.processes import command, run, survivors

SOON_S = 3.0  # patience where it is to run out: with three processes for each core, one waits a second for its turn
HEAD = "from gate_racer.bootcamp.api import *\nimport os, time\nSCENARIO = 'figure8'\n"
HOVER = HEAD + "def decide(report, pads): return Null()\n"


@pytest.fixture
def job(tmp_path):
    """Make the job of a program's text."""

    def make(text, realtime=False):
        program = tmp_path / "mine.py"
        program.write_text(text)
        scenario = make_scenario("figure8", 3, replace(load_world(), drone="kinematic"))
        return Job(program, scenario, realtime, False, tmp_path / "logs/flight")

    return make


def left(job, ending):
    return job.stem.with_name(job.stem.name + ending)


def ended(crew):
    assert not any(process.is_alive() for process in crew.processes.values())


def crew_of(job, patience_s=PATIENCE_S):
    job.stem.parent.mkdir()
    return Crew(job, patience_s)


def test_the_command_flies_lands_and_leaves_log_film_screenshot_and_report(tmp_path):
    done = run("gate_racer.bootcamp.cli", "examples/detector.py", "--seed", 3, "--set", f"logs={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 3: detector")
    (path,) = tmp_path.glob("*.json")
    told = json.loads(path.read_text())
    assert told["done"] and "done: landed 0." in done.stdout
    assert (told["end"], told["seed"], told["terminated"], told["traceback"]) == ("landed", 3, [], "")
    assert told["nearest_pad_m"] < 0.5 and told["counters"].keys() == STAGES.keys()
    steps = told["report"]["step"]
    assert told["counters"]["simulation"]["steps"] == told["report"]["taken"] == steps
    assert told["counters"]["detection"]["boxes"] > steps / 2
    assert told["counters"]["decision"]["commands"] - steps in (0, 1)  # one may be under way at the landing
    assert replay(path.with_suffix(".log")) == steps
    shot = cv2.imread(str(path.with_suffix(".png")))
    assert shot.shape == (480, 880, 3)
    film = cv2.VideoCapture(str(path.with_suffix(".webm")))
    held = round(HOLD_S * 10)  # frames of the landing image
    assert film.get(cv2.CAP_PROP_FPS) == 10 and film.get(cv2.CAP_PROP_FRAME_COUNT) == steps + 1 + held
    assert len(detect_pads(shot[:, 240:])) == 1  # seen from a height


def test_an_invalid_command_is_counted_and_an_exception_named_with_its_worker(job, capfd):
    """A copy of the worker that the program forks takes no part."""
    text = "def decide(report, pads):\n    if report.step < 3: os.fork()\n"
    mine = job(HEAD + text + "    return ['left', Go(99, 0), Halt(), Null()][report.step]\n")
    assert fly(mine) == 1
    told = json.loads(left(mine, ".json").read_text())
    assert told["cause"].startswith("worker decision: IndexError: list index out of range; a list may be")
    assert (told["end"], told["terminated"]) == ("worker_error", [])
    assert "mine.py" in told["traceback"] and "return ['left'" in told["traceback"]
    assert (told["report"]["taken"], told["report"]["ignored"]) == (4, 3)
    assert left(mine, ".png").exists() and told["counters"].keys() == STAGES.keys()
    err = capfd.readouterr().err
    assert "step 1: warning: 'left' is not a command: expected Null()" in err
    assert "outside the boundary of 60 m" in err and "already halted" in err


def test_a_killed_worker_is_named(job):
    crew, name = crew_of(job(HOVER)), "geolocation"

    def tell(report: Report):
        if report.step == 5:
            crew.processes[name].kill()

    outcome = crew.fly(tell)
    assert outcome.end is ProgramEnd.WORKER_DIED and outcome.cause.startswith(f"worker {name} died (exit code -9): ")
    assert outcome.counters.keys() == STAGES.keys() - {name} and outcome.terminated == []
    ended(crew)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for survivors in")
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "told to end"])
def test_no_worker_survives_main_however_it_ends(tmp_path, killed):
    """Kill main alone while a worker hangs, or signal the whole group, as `timeout` does: some workers end before main looks."""
    program = tmp_path / "mine.py"
    hangs = "def decide(report, pads):\n    while report.step == 3: pass\n    return Null()\n"
    program.write_text(HEAD + hangs if killed else HOVER)
    flown = command("gate_racer.bootcamp.cli", program, "--set", "world.drone=kinematic", f"logs={tmp_path}")
    with subprocess.Popen(flown, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, text=True) as main:
        main.stdout.readline()
        while '\n{"step": 3' not in "".join(log.read_text() for log in tmp_path.glob("*.log")):
            assert main.poll() is None
            time.sleep(0.05)
        if killed:
            main.kill()
        else:
            os.killpg(main.pid, signal.SIGTERM)
        told, _ = main.communicate(timeout=60)
    assert not survivors(main.pid)
    if not killed:
        assert main.returncode == 130 and told.startswith("aborted (interrupted)"), told
        assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_program_that_never_answers_is_named(job):
    mine = job(HEAD + "def decide(report, pads):\n    while report.step == 2: time.sleep(0.1)\n    return Null()\n")
    crew = crew_of(mine, SOON_S)
    outcome = crew.fly(lambda report: None)
    assert (outcome.end, outcome.terminated) == (ProgramEnd.WORKER_DIED, ["decision"])
    assert (
        outcome.cause == f"worker decision hung in `decide` at mine.py:5: busy with one item for {SOON_S:g} s"
        and outcome.report.step == 2
    )
    assert left(mine, ".png").exists()
    ended(crew)


def test_in_real_time_a_slow_detector_costs_images_and_no_steps_and_ctrl_c_ends_in_order(job):
    mine = job(HOVER + "def detect(image):\n    time.sleep(0.35)\n    return []\n", realtime=True)
    crew, steps = crew_of(mine), []

    def tell(report: Report):
        steps.append(report.step)
        if report.step == 12:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = crew.fly(tell)
    assert (outcome.end, outcome.cause, outcome.terminated) == (ProgramEnd.ABORTED, "interrupted", [])
    assert steps == list(range(len(steps))) and len(steps) > 12
    count = outcome.counters
    assert count["simulation"]["replaced by newer"] > 3 and count["simulation"]["steps without a command"] > 3
    assert replay(mine.file(".log")) == steps[-1]
    ended(crew)
