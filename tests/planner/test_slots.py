"""Slots are passed tilted, in plan and flight; plans are flown on the vehicle's own plant, and made slower where it cannot."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mcap.reader import make_reader

from gate_racer.common.errors import UserError
from gate_racer.planner.certificate.certificate import Trial, certify
from gate_racer.planner.models import P, Q
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem import through_slot
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.race import plan_track, planning, run_mpc
from gate_racer.race.planning import clearance_m, fly_trial
from gate_racer.race.request import race
from gate_racer.race.run_mpc import parser
from gate_racer.tracks.gate import has_slot
from gate_racer.tracks.track import Obstacle, Track, load_track
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ONE_GUESS, ROOT, changed, refused, with_plan
from tests.processes import raced

WIDE_M = 0.36
SLOT = f"""
name: slot
source: a slot as high as two vehicles, and too narrow for a level one
start: {{position_m: [0.0, 0.0, -1.5], yaw_deg: 0.0}}
bounds: {{low_m: [-10.0, -10.0, -8.0], high_m: [30.0, 10.0, 0.0]}}
gates:
  - centre_m: [8.0, 0.0, -2.0]
    yaw_deg: 0.0
    polygon_m: [[-{WIDE_M / 2}, -0.8], [{WIDE_M / 2}, -0.8], [{WIDE_M / 2}, 0.8], [-{WIDE_M / 2}, 0.8]]
end_m: [16.0, 0.0, -2.0]
"""
CORNERS = np.array(list(product((-0.5, 0.5), repeat=3)))
OPTIONS = PlanOptions(see=0.0, reserve=0.6, guesses=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, dcl):
    path = tmp_path_factory.mktemp("slot")
    (path / "slot.yaml").write_text(SLOT, encoding="utf-8")
    return with_plan(path, tmp_path_factory, load_track(path / "slot.yaml"), dcl, OPTIONS)


@pytest.fixture(scope="module")
def track(folder) -> Track:
    return load_track(folder / "slot.yaml")


def least_room_m(track: Track, p_w: Array, q_wb: Array, body_m) -> float:
    """Least distance of the body's corners to the slot's edges, where the body is in its plane."""
    (gate,), rooms = track.gates, []
    for p, q in zip(p_w, q_wb, strict=True):
        corners = gate.local(p + CORNERS * body_m @ matrix(q / np.linalg.norm(q)).T)
        if corners[:, 0].min() < 0 < corners[:, 0].max():
            rooms.append((gate.edges[:, 2] - corners[:, 1:] @ gate.edges[:, :2].T).min())
    return min(rooms)


@pytest.mark.parametrize("width_m", [0.3, 0.36, 0.7, 0.9, 1.1, 1.5])
def test_planner_and_pilot_take_the_same_openings_for_slots(width_m, tmp_path, dcl):
    (tmp_path / "a.yaml").write_text(SLOT.replace(f"{WIDE_M / 2}", f"{width_m / 2}"), encoding="utf-8")
    track = load_track(tmp_path / "a.yaml")
    assert has_slot(track.gates, dcl.radius_m) == Task(track, dcl, PlanOptions()).is_slot(track.gates[0])


def test_the_room_beside_the_body_is_that_of_its_nearest_corner(track, dcl):
    rng, (gate,) = np.random.default_rng(3), track.gates
    half, block = np.array(dcl.body_m) / 2, through_slot(len(gate.edges))
    given = [*gate.p_wg, *gate.R_wg.T.ravel(), *gate.edges.ravel(), 0.0, *half, 0.0, 0, 0, 0, 0.0]
    for _ in range(50):
        p, q = gate.p_wg + rng.uniform(-0.05, 0.05, 3), rng.normal(size=4)
        q /= np.linalg.norm(q)
        corners = gate.local(p + 2 * CORNERS * half @ matrix(q).T)
        nearest = (gate.edges[:, 2] - corners[:, 1:] @ gate.edges[:, :2].T).min(axis=0)
        room = np.array(block.values(np.concatenate([p, q]), given)).ravel()[1:]
        np.testing.assert_allclose(room, nearest, atol=5e-3)
        assert (room <= nearest + 1e-9).all(), "never more than there is"


def test_the_plan_leads_the_tilted_body_through_and_a_level_one_is_refused(track, folder, dcl):
    plan = read_plan(folder / "slot.csv")
    _, x, _ = plan.dense(dcl, 20)
    margin_m = Task(track, dcl, OPTIONS).slot_margin_m(track.gates[0])
    assert margin_m > 0.04
    assert least_room_m(track, x[:, P], x[:, Q], dcl.body_m) > margin_m - 3e-3
    level = replace(track.gates[0], polygon_m=((-0.6, -0.8), (0.6, -0.8), (0.6, 0.8), (-0.6, 0.8)))
    wide = replace(track, gates=(level,))
    flat, fitting = make_plan(wide, dcl, OPTIONS)
    _, x, _ = flat.dense(dcl, 20)
    assert least_room_m(track, x[:, P], x[:, Q], dcl.body_m) < 0, "the fastest way through a wide one is not tilted"
    found = certify(replace(flat, track_hash=track.hash), Task(track, dcl, OPTIONS), fitting.effort)
    assert "m from the body to an edge instead of 0.05" in found.status


@pytest.mark.parametrize(
    ("width_m", "options", "says"),
    [
        (0.14, OPTIONS, "the opening of 0.14 m is too small, dcl needs more than 0.16 m"),
        (WIDE_M, replace(OPTIONS, fast=True), "slot: fast: takes the body for a sphere"),
        (WIDE_M, replace(OPTIONS, risk=0.01), "slot: risk: takes the body for a sphere"),
    ],
)
def test_what_no_tilt_lets_pass_is_refused_in_a_line(tmp_path, dcl, width_m, options, says):
    (tmp_path / "slot.yaml").write_text(SLOT.replace(f"{WIDE_M / 2}", f"{width_m / 2}"), encoding="utf-8")
    with pytest.raises(UserError, match=says):
        make_plan(load_track(tmp_path / "slot.yaml"), dcl, options)


def test_the_body_is_flown_through_on_a_told_state(undrawn, track, folder, tmp_path, dcl):
    result = raced(tmp_path, folder / "slot.csv", "--set", "perception.pose=true")
    with Path(result["log"]).open("rb") as file:
        told = [json.loads(one.data) for _, _, one in make_reader(file).iter_messages(topics=["/truth"])]
    t, fine = np.array([row["t"] for row in told]), np.arange(told[0]["t"], told[-1]["t"], 1e-3)
    p, q = (
        np.array([np.interp(fine, t, column) for column in zip(*(row[k] for row in told), strict=True)]).T for k in "pq"
    )
    assert least_room_m(track, p, q, dcl.body_m) > 0


def test_who_does_not_hold_the_attitude_says_so(folder, capsys):
    told = [str(folder / "slot.csv"), "--lockstep", "--set", "perception.pose=true"]
    race(parser().parse_args(told))
    assert "slot" not in capsys.readouterr().err
    race(parser().parse_args([*told, "--controller", "mpcc"]))
    assert "slot: has a slot, which is passed tilted; mpcc does not hold" in capsys.readouterr().err


# Plans are flown on the vehicle's own plant, and made again with more reserve, or refused, where it cannot fly them.


FAST = replace(ONE_GUESS, see=0.0, fast=True)  # takes a tenth of the time


def plan_of(folder, track, vehicle, *options):
    given = [str(track), "--vehicle", str(vehicle), "--set", "fast=true", "--out", str(folder), *options]
    return planning.run(plan_track.parser().parse_args(given))


def tried_flight(plan, task, cause="", margin_m=0.4):
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
        tried.append(tried_flight(plan, task, **failure if len(tried) < fails else {}))
        return tried[-1]

    plan, certificate = make_plan(load_track(hop), dcl, FAST, fly=fly)
    assert certificate.ok == (fails < 9) and len(tried) == min(fails, 3) + 1
    assert [one.speed_m_s for one in tried] == sorted((one.speed_m_s for one in tried), reverse=True)
    assert certificate.trial.speed_m_s == tried[-1].speed_m_s and tried[0].failure in certificate.trial.sentence
    assert certificate.options["reserve"] < ONE_GUESS.reserve and certificate.plan_hash == plan.hash


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
    assert clearance_m(Task(track, dcl, ONE_GUESS), path) is None, "frames are the gates' margins"
    assert clearance_m(Task(replace(track, obstacles=(pillar,)), dcl, ONE_GUESS), path) == pytest.approx(1.0, abs=1e-3)


def test_a_shipped_vehicle_flies_a_course_on_its_own_plant(undrawn, hop, tmp_path, capsys):
    assert plan_of(tmp_path, hop, "swift") == 0
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
        plan_of(tmp_path, hop, frail)
    assert not (tmp_path / "hop-swift.csv").exists()
    assert plan_of(tmp_path, hop, frail, "--set", "check=false") == 0
    assert (tmp_path / "hop-swift.csv").exists()
