"""Troubles of the link in flight that must not end it: races in lock-step, by sight."""

from dataclasses import replace

import pytest

from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.sim.referee import RunStatus
from gate_racer.tracks.track import load_track
from tests.conftest import HALF_SEEN
from tests.flights import SPEC
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
