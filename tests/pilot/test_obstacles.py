"""A hall whose pillars and boxes stand in the way: planned around, flown by sight, and drawn where they are hit.

The referee is strict: a pilot of ours never breaks the interface.
"""

import json

import numpy as np
import pytest

from gate_racer.link.profile import load_profile
from gate_racer.planner.plan import read_plan
from gate_racer.sim.physics.contact import Colliders, cast
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.view.scene import obstacle
from gate_racer.tracks.track import load_track
from tests.conftest import ROOT
from tests.troubled import fly


@pytest.fixture(scope="module")
def pillars():
    return load_track(ROOT / "tracks/pillars.yaml")


def test_obstacles_are_drawn_where_rays_and_the_body_meet_them(pillars):
    solids = Colliders(pillars).solids
    for box in pillars.obstacles:
        drawn = obstacle(box)[:, :3]
        assert np.allclose([drawn.min(0), drawn.max(0)], [box.low_m, box.high_m], atol=1e-6)
        middle = (np.array(box.low_m) + box.high_m) / 2
        middle[2] = min(-1.0, middle[2])
        for axis, sign in ((0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0)):
            eye, ray = middle.copy(), np.zeros(3)
            eye[axis] -= sign * 1.5
            ray[axis] = sign
            face = box.low_m[axis] if sign > 0 else box.high_m[axis]
            distance, _ = cast(solids, eye, ray[None], 10.0)
            assert distance[0] == pytest.approx(abs(face - eye[axis]), abs=1e-9)


def test_it_is_planned_around_them_and_flown_by_sight(pillars, pillars_folder, dcl):
    plan = read_plan(pillars_folder / "pillars.csv")
    assert json.loads((pillars_folder / "pillars.json").read_text())["clearance_m"] > 0
    race, cause = fly([], pillars, dcl, plan, load_profile("spec"), seed=3, strict=True)
    assert race.status is RunStatus.FINISHED and min(race.gate_margins_m) > 0.2, (race, cause)


def test_the_real_builds_countdown_is_waited_for_under_a_strict_referee_too(sprint, dcl):
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    race, cause = fly([], track, dcl, plan, load_profile("dcl"), seed=3, strict=True)
    assert race.status is RunStatus.FINISHED and len(race.gate_times_s) == 2, (race, cause)
