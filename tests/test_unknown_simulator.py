"""The story of the README: nobody is told vehicle, course or conventions, and the race is clean and fast."""

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gate_racer.bootcamp.scenario import generate_track
from gate_racer.commands import COMMANDS
from gate_racer.link.profile import load_profile
from gate_racer.pilot.guidance.exciter import parse_manoeuvres
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT
from tests.exploring import explored
from tests.flights import flown_by, racer_of
from tests.processes import few_images, free_port, run_here

STORY = ROOT / "examples/unknown_simulator.py"
SEED, GATES, IMAGES_HZ = "48", "2", 4.0


@pytest.mark.soak
@pytest.mark.parametrize("plant", ["", "rotorpy"])
def test_from_an_unknown_simulator_to_a_clean_race_near_the_plan_of_somebody_who_knows_it(plant, tmp_path):
    """In real processes, whose wire is unknown as well; and on physics of other people's, which no parameters describe."""
    if plant:
        pytest.importorskip(plant)
    command = [sys.executable, STORY, "--seed", SEED, "--gates", GATES, "--plant", plant]
    folders = os.environ["PATH"].split(os.pathsep)
    inactive = {**os.environ, "PATH": os.pathsep.join(one for one in folders if not Path(one, "run-mpc").exists())}
    profile, ports = few_images("dcl", tmp_path, IMAGES_HZ), [str(free_port()) for _ in range(3)]
    done = subprocess.run(
        [*command, "--profile", profile, "--out", tmp_path, "--ports", *ports],
        cwd=ROOT,
        env=inactive,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / f"unknown-{SEED}" / "compared.json").read_text())
    assert found["signs"] and found["margin_m"] > 0.3
    if plant:
        return
    assert found["rate_gain"] < 0.03
    assert found["thrust"] < 0.02 and found["drag"] < 0.05
    assert found["gates_m"] < 0.10 and found["gates_deg"] < 2.5
    assert found["flown_s"] < 1.08 * found["known_s"]


def test_an_exploration_alone_leads_to_a_clean_race_near_the_plan_of_somebody_who_knows_it(dcl, tmp_path, undrawn):
    """In this process and without a wire: the commands of the story from the log on, and the race in the true world."""
    story, profile = runpy.run_path(str(STORY)), replace(load_profile("dcl"), video_hz=IMAGES_HZ)
    true, course = story["draw_vehicle"](int(SEED)), generate_track(int(SEED), int(GATES))
    wanted = parse_manoeuvres(story["MANOEUVRES"])
    *_, verdict, log = explored(course, dcl, profile, 0, tmp_path, true, wanted)
    assert verdict.status == "finished", verdict.cause
    found, mine = tmp_path / "found.yaml", tmp_path / "mine.yaml"
    for name, *words in (
        ("map-track", log, "--gates", GATES, "--out", found),
        ("identify-vehicle", log, "--out", mine),
        ("plan-track", found, "--vehicle", mine, "--out", tmp_path, *story["CAREFUL"], "--set", "guesses=1"),
    ):
        done = run_here(COMMANDS[name], *words)
        assert done.returncode == 0, done.stdout + done.stderr
    plan, track, vehicle = read_plan(tmp_path / "found-mine.csv"), load_track(found), load_vehicle(str(mine))
    raced = flown_by(racer_of(track, vehicle, plan, profile), as_believed(course, true), true, profile, 1)
    known, certificate = make_plan(course, true, PlanOptions(reserve=0.75, guesses=1))
    assert certificate.ok and raced.status == "finished", raced.cause
    assert raced.gate_times_s[-1] < 1.08 * known.total_time and min(raced.gate_margins_m) > 0.3
