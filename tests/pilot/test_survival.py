"""Troubles of the link in flight that must not end it: whole races of VQ1 in lock-step, by sight."""

import pytest

from gate_racer.link.profile import load_profile
from gate_racer.sim.referee import RunStatus
from tests.troubled import Trouble, fly


def silent(t):
    return Trouble(f"all silent at {t:g} s", t, 0.5, no_telemetry=True, no_images=True)


def stands(t):
    return Trouble(f"IMU values stand still at {t:g} s", t, 0.08, imu_stands=True)


RACES = [  # a gate is passed between two troubles of one race
    [silent(1.3), Trouble("no images", 3.3, 1.0, no_images=True), silent(5.2)],
    [
        Trouble("the pilot's process stands still between two gates", 2.7, 0.2, frozen=True),
        Trouble("telemetry silent, images not", 3.9, 0.5, no_telemetry=True),
        Trouble("one sample a second ahead", 5.0, 1 / 120, imu_ahead_s=1.0),
        Trouble("one sample of long ago", 6.1, 1 / 120, imu_ahead_s=-3.0),
    ],
    [stands(1.9 + 0.2 * k) for k in range(25)],
    [
        Trouble("a clock that was set an hour ahead", 1.9, 2.0, imu_ahead_s=3600.0),
        Trouble("a clock that was set right, and then two seconds back", 5.2, 99.0, imu_ahead_s=-2.0),
    ],
]
TROUBLES = [*RACES, *(pytest.param([silent(t)], marks=pytest.mark.soak) for t in (2.4, 3.9, 6.6))]


@pytest.mark.parametrize("troubles", TROUBLES, ids=lambda troubles: ", then ".join(one.name for one in troubles[:3]))
def test_the_race_is_finished_all_the_same(troubles, vq1, dcl, plan):
    race, reason = fly(troubles, vq1, dcl, plan, load_profile("spec"), seed=2)
    assert race.status is RunStatus.FINISHED, (race.status, race.cause, reason)
    assert len(race.gate_times_s) == 6


def test_a_longer_freeze_is_survived_by_a_plan_that_looks_longer(vq1, dcl, half_seen):
    troubles = [Trouble("the pilot's process stands still", 1.9, 0.3, frozen=True), *RACES[1][1:]]
    race, reason = fly(troubles, vq1, dcl, half_seen, load_profile("spec"), seed=2)
    assert race.status is RunStatus.FINISHED, (race.status, race.cause, reason)
    assert len(race.gate_times_s) == 6


def test_a_simulator_that_stands_still_costs_no_time(vq1, dcl, plan):
    """Commands sent meanwhile are for a time that did not come."""
    troubles = [Trouble(f"suspended at {t:g} s", t, 0.5, suspended=True) for t in (1.9, 4.6)]
    race, reason = fly(troubles, vq1, dcl, plan, load_profile("spec"), seed=2)
    assert race.status is RunStatus.FINISHED, (race.status, race.cause, reason)
    assert race.gate_times_s[-1] < 1.1 * plan.total_time
