"""Half a second without telemetry and images at any moment of VQ1: at least 95 of 100 races finish all the same."""

import os

import pytest

from gate_racer.link.profile import load_profile
from gate_racer.sim.referee import RunStatus
from tests.troubled import GO_S, Trouble, fly

MOMENTS = int(os.environ.get("SOAK_MOMENTS", "100"))
SILENCE_S, LEAST = 0.5, 0.95


@pytest.mark.soak
@pytest.mark.parametrize("profile", ["spec", "dcl"])
def test_a_race_survives_silence_at_any_moment(profile, vq1, dcl, plan):
    ends = []
    for k in range(MOMENTS):
        begin = GO_S + plan.total_time * (k + 0.5) / MOMENTS
        silence = Trouble("silence", begin, SILENCE_S, no_telemetry=True, no_images=True)
        race, reason = fly([silence], vq1, dcl, plan, load_profile(profile), seed=k)
        finished = race.status is RunStatus.FINISHED
        margin = min(race.gate_margins_m) if race.gate_margins_m else None
        print(
            f"{begin - GO_S:.2f} s: {race.status} {race.gate_times_s[-1:] if finished else (race.cause, reason)}, {margin} m"
        )
        ends.append(finished)
    assert sum(ends) >= LEAST * MOMENTS, f"{sum(ends)} of {MOMENTS}"
