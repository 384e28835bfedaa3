"""Races in lock-step by sight: through troubles of the link, by a wrong map, past gates again, around obstacles."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.link.profile import load_profile
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import find_or_make_plan, make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from tests.conftest import HALF_SEEN, ROOT, with_plan
from tests.flights import SPEC, flown_by, racer_of
from tests.processes import few_images, raced
from tests.troubled import Trouble, fly


def silent(t):
    return Trouble(f"all silent at {t:g} s", t, 0.5, no_telemetry=True, no_images=True)


def stands(t):
    return Trouble(f"IMU values stand still at {t:g} s", t, 0.08, imu_stands=True)


RACES = [  # of VQ1: a gate is passed between two troubles of one race
    [silent(1.3), Trouble("no images", 3.3, 1.0, no_images=True), silent(5.2)],
    [
        Trouble("the pilot's process stands still between two gates", 2.7, 0.2, frozen=True),
        Trouble("telemetry silent, images not", 3.9, 0.5, no_telemetry=True),
        Trouble("one sample a second ahead", 5.0, 1 / 120, imu_ahead_s=1.0),
        Trouble("one sample of long ago", 6.1, 1 / 120, imu_ahead_s=-3.0),
    ],
]
TROUBLES = [*RACES, *(pytest.param([silent(t)], marks=pytest.mark.soak) for t in (2.4, 3.9, 6.6))]
SPRINTS = [  # of two gates; the first is passed at 2.4 s
    [stands(1.5 + 0.2 * k) for k in range(9)],
    [
        Trouble("a clock that was set an hour ahead", 1.9, 0.7, imu_ahead_s=3600.0),
        Trouble("a clock that was set right, and then two seconds back", 2.6, 99.0, imu_ahead_s=-2.0),
    ],
]


def finished(troubles, track, dcl, plan):
    """The race, which was finished."""
    race, reason = fly(troubles, track, dcl, plan, SPEC, seed=2)
    assert race.status is RunStatus.FINISHED, (race.status, race.cause, reason)
    assert len(race.gate_times_s) == len(track.gates)
    return race


def names(troubles):
    return ", then ".join(one.name for one in troubles[:3])


@pytest.fixture(scope="module")
def course(sprint):
    return load_track(sprint / "sprint.yaml")


@pytest.mark.parametrize("troubles", TROUBLES, ids=names)
def test_the_race_is_finished_all_the_same(troubles, vq1, dcl, plan):
    finished(troubles, vq1, dcl, plan)


@pytest.mark.parametrize("troubles", SPRINTS, ids=names)
def test_a_short_race_is_finished_all_the_same(troubles, course, sprint, dcl):
    finished(troubles, course, dcl, read_plan(sprint / "sprint.csv"))


def test_a_longer_freeze_is_survived_by_a_plan_that_looks_longer(course, dcl):
    half_seen, _ = make_plan(course, dcl, replace(HALF_SEEN, guesses=1))
    finished([Trouble("the pilot's process stands still", 1.9, 0.3, frozen=True)], course, dcl, half_seen)


def test_a_simulator_that_stands_still_costs_no_time(course, sprint, dcl):
    plan = read_plan(sprint / "sprint.csv")
    troubles = [Trouble(f"suspended at {t:g} s", t, 0.5, suspended=True) for t in (1.9, 2.8)]
    assert finished(troubles, course, dcl, plan).gate_times_s[-1] < 1.1 * plan.total_time


# Flights in lock-step: by a wrong map, past gates again, and around obstacles under a strict referee.


@pytest.fixture(scope="module")
def balls(tmp_path_factory, dcl):
    """A folder with a course of three balls, and its plan."""
    folder = tmp_path_factory.mktemp("balls")
    text = (ROOT / "tracks/splits_uzh.yaml").read_text(encoding="utf-8").replace("name: splits_uzh", "name: balls")
    lines = [line for line in text.partition("  - &gate_4")[0].splitlines() if not line.startswith("end_m:")]
    (folder / "balls.yaml").write_text("\n".join(lines), encoding="utf-8")
    return with_plan(folder, tmp_path_factory, load_track(folder / "balls.yaml"), dcl)


def test_a_course_of_balls_is_flown_within_their_margin(balls, tmp_path, undrawn):
    options = "--profile", few_images("dcl", tmp_path), "--set", "perception.pose=true"
    flown = raced(tmp_path, balls / "balls.csv", *options)
    assert flown["min_margin_m"] > 0.1 and not flown["retries"] and flown["estimate_rmse_m"] < 0.01
    assert flown["race_time_s"] < 1.05 * flown["planned_time_s"]


def test_gates_that_stand_elsewhere_are_crossed_where_they_stand(vq1, plan, dcl):
    """Each by 0.3 m, its own way, without ATTITUDE: the filter that trusts the map hits one of them in most flights."""
    steps = np.random.default_rng(0).normal(size=(len(vq1.gates), 3))
    steps *= 0.3 / np.linalg.norm(steps, axis=1)[:, None]
    gates = [replace(g, centre_m=tuple(g.p_wg + step)) for g, step in zip(vq1.gates, steps, strict=True)]
    profile, pilot = (
        replace(SPEC, attitude_hz=0.0),
        racer_of(vq1, dcl, plan, replace(SPEC, attitude_hz=0.0), "tracking"),
    )
    verdict = flown_by(pilot, as_believed(replace(vq1, gates=tuple(gates)), dcl), dcl, profile, 0)
    assert verdict.status == "finished" and min(verdict.gate_margins_m) > 0.25


TRACK = """
name: repeated
source: two gates, passed again
start: {{position_m: [0.0, 0.0, 0.0], yaw_deg: 0.0}}
bounds: {{low_m: [-15.0, -15.0, -10.0], high_m: [35.0, 25.0, 0.5]}}
frame: {{opening_m: 1.5, outer_m: 2.7, depth_m: 0.26}}
closed: {closed}
gates:
  - {{centre_m: [11.0, 0.0, -1.8], yaw_deg: 0.0}}
  - {{centre_m: [11.0, 9.0, -2.2], yaw_deg: 180.0}}
{third}
"""
AGAIN = "  - {centre_m: [11.0, 0.0, -1.8], yaw_deg: 0.0}"


@pytest.mark.parametrize(
    ("closed", "third", "laps", "passages"),
    [("false", AGAIN, 1, 3), ("true", "", 2, 4)],
    ids=["twice in the course", "two laps"],
)
def test_a_gate_that_is_passed_again_is_recognised(closed, third, laps, passages, tmp_path, dcl, undrawn):
    track = tmp_path / "repeated.yaml"
    track.write_text(TRACK.format(closed=closed, third=third))
    find_or_make_plan(tmp_path, load_track(track), dcl, PlanOptions(laps=laps, guesses=1), None)
    flags = "--profile", few_images("spec", tmp_path, 15.0), "--set", f"plan.folder={tmp_path}"
    outcome = raced(tmp_path, track, "--laps", laps, "--seed", 1, *flags)
    assert outcome["status"] == "finished" and outcome["gates_passed"] == passages
    assert outcome["vision"]["sightings"] > 10 and outcome["estimate_rmse_m"] < 0.5 and outcome["min_margin_m"] > 0.2


@pytest.fixture(scope="module")
def pillars():
    return load_track(ROOT / "tracks/pillars.yaml")


def test_it_is_planned_around_them_and_flown_by_sight(pillars, pillars_folder, dcl):
    plan = read_plan(pillars_folder / "pillars.csv")
    assert json.loads((pillars_folder / "pillars.json").read_text())["clearance_m"] > 0
    race, cause = fly([], pillars, dcl, plan, load_profile("spec"), seed=3, strict=True)
    assert race.status is RunStatus.FINISHED and min(race.gate_margins_m) > 0.2, (race, cause)


def test_the_real_builds_countdown_is_waited_for_under_a_strict_referee_too(sprint, dcl):
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    race, cause = fly([], track, dcl, plan, load_profile("dcl"), seed=3, strict=True)
    assert race.status is RunStatus.FINISHED and len(race.gate_times_s) == 2, (race, cause)
