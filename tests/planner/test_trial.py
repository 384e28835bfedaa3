"""Plans are flown on the vehicle's own plant, and made again with more reserve, or refused, where it cannot fly them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.planner.certificate.certificate import Trial
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.race import plan_track, planning, run_mpc
from gate_racer.race.planning import clearance_m, fly_trial
from gate_racer.race.request import race
from gate_racer.tracks.track import Obstacle, load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT, changed, refused

ONE = PlanOptions(guesses=1)
FAST = replace(ONE, see=0.0, fast=True)  # takes a tenth of the time


def planned(folder, track, vehicle, *options):
    given = [str(track), "--vehicle", str(vehicle), "--set", "fast=true", "--out", str(folder), *options]
    return planning.run(plan_track.parser().parse_args(given))


def flown(plan, task, cause="", margin_m=0.4):
    most = float((plan.x[:, 7:10] ** 2).sum(axis=1).max() ** 0.5)
    return Trial(0, 1, 0.3, task.options.reserve, most).then(1 if not cause else 0, [margin_m], None, cause)


def test_a_model_that_is_the_plant_needs_no_trial(hop, dcl):
    plan, certificate = make_plan(load_track(hop), dcl, FAST, fly=fly_trial)
    assert certificate.ok and certificate.trial is None and plan.hash == make_plan(load_track(hop), dcl, FAST)[0].hash


FAILURES = {"crashed": ({"cause": "hit gate 1"}, 2), "near": ({"margin_m": 0.25}, 2), "always": ({"cause": "hit"}, 9)}


@pytest.mark.parametrize(("failure", "fails"), FAILURES.values(), ids=FAILURES)
def test_a_failing_plan_is_made_slower_until_one_is_flown_or_refused(failure, fails, hop, dcl):
    tried = []

    def fly(plan, task):
        tried.append(flown(plan, task, **failure if len(tried) < fails else {}))
        return tried[-1]

    plan, certificate = make_plan(load_track(hop), dcl, FAST, fly=fly)
    assert certificate.ok == (fails < 9) and len(tried) == min(fails, 3) + 1
    assert [one.speed_m_s for one in tried] == sorted((one.speed_m_s for one in tried), reverse=True)
    assert certificate.trial.speed_m_s == tried[-1].speed_m_s and tried[0].failure in certificate.trial.sentence
    assert certificate.options["reserve"] < ONE.reserve and certificate.plan_hash == plan.hash


NONE = Trial(0, 2, 0.3, 0.9, 20.0)


@pytest.mark.parametrize(
    ("margins_m", "clearance_m", "by", "ok"),
    [
        ([0.4, 0.31], None, "", True),
        ([0.4, 0.29], None, "", False),
        ([0.4, 0.4], 0.29, "", False),
        ([0.4, 0.4], 0.31, "", True),
        ([0.4, 0.29], 0.29, " by camera", True),
    ],
)
def test_a_flight_on_the_true_state_keeps_its_distances(margins_m, clearance_m, by, ok):
    trial = NONE.then(2, margins_m, clearance_m, "", by)
    assert trial.ok == ok and trial.margin_m == min(margins_m) and trial.clearance_m == clearance_m


def test_a_flight_by_camera_has_to_finish():
    trial = NONE.then(2, [0.4, 0.4], 0.5, "").then(1, [0.2], 0.35, "hit gate 1", " by camera, seed 3")
    assert not trial.ok and (trial.gates, trial.margin_m, trial.clearance_m) == (1, 0.2, 0.35)
    assert "1 of 2 gates" in trial.failure and "hit gate 1 by camera, seed 3" in trial.failure


def test_the_distance_to_obstacles_is_that_of_the_whole_path(sprint, dcl):
    track = load_track(sprint / "sprint.yaml")
    pillar = Obstacle((-30.0, 1.0, -5.0), (-29.0, 2.0, 0.0))
    path = np.array([[-20.0, 0.0, -1.0], [-40.0, 0.0, -1.0]])
    assert clearance_m(Task(track, dcl, ONE), path) is None, "frames are the gates' margins"
    assert clearance_m(Task(replace(track, obstacles=(pillar,)), dcl, ONE), path) == pytest.approx(1.0, abs=1e-3)


def test_a_shipped_vehicle_flies_a_course_on_its_own_plant(undrawn, hop, tmp_path, capsys):
    assert planned(tmp_path, hop, "swift") == 0
    said, about = capsys.readouterr().out, json.loads((tmp_path / "hop-swift.json").read_text())
    assert "own plant, on the true state and 6 times by camera: 1 of 1 gates, least margin" in said
    assert about["status"] == "certified" and about["trial"]["gates"] == 1
    assert about["trial"]["margin_m"] >= about["trial"]["needed_m"] > load_vehicle("swift").contact_radius_m
    given = [str(tmp_path / "hop-swift.csv"), "--vehicle", "swift", "--lockstep", "--controller"]
    race(run_mpc.parser().parse_args([*given, "mpcc"]))
    assert "more than the plan's model" not in capsys.readouterr().err
    race(run_mpc.parser().parse_args([*given, "tracking"]))
    assert "swift: its own plant is more than the plan's model" in capsys.readouterr().err


def test_a_flight_that_takes_much_longer_has_missed_a_gate(hop, monkeypatch):
    plan, _ = make_plan(load_track(hop), vehicle := load_vehicle("swift"), FAST)
    monkeypatch.setattr(planning, "LATE", 0.5)
    assert fly_trial(plan, Task(load_track(hop), vehicle, FAST)).cause == "a gate was missed and flown again"


def test_a_vehicle_that_the_air_turns_over_is_refused(undrawn, hop, tmp_path, monkeypatch):
    track, frail = (
        load_track(hop),
        changed(tmp_path, ROOT / "vehicle/swift.yaml", "ty: {v: -10.3", "ty: {v: -10.3, v_abs: -100.0"),
    )
    plan, _ = make_plan(track, vehicle := load_vehicle(frail), FAST)
    turned_over = fly_trial(plan, Task(track, vehicle, FAST))
    assert not turned_over.ok and turned_over.gates == 0
    monkeypatch.setattr(planning, "fly_trial", lambda *_: turned_over)  # of the slower plans as well
    with refused(r"hop: no certified plan .*own plant 0 of 1 gates"):
        planned(tmp_path, hop, frail)
    assert not (tmp_path / "hop-swift.csv").exists()
    assert planned(tmp_path, hop, frail, "--set", "check=false") == 0
    assert (tmp_path / "hop-swift.csv").exists()
