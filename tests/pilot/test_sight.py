"""Flights by camera and IMU without ATTITUDE, in lock-step: by the map, and by a wrong one."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from tests.flights import SPEC, flown_by, racer_of

SEED = 0


def fly(track, world, plan, vehicle):
    """A flight by the map of `track` in a world where gates may stand elsewhere; the referee's verdict, and the pilot."""
    profile = replace(SPEC, attitude_hz=0.0)
    pilot = racer_of(track, vehicle, plan, profile, "tracking")
    return flown_by(pilot, as_believed(world, vehicle), vehicle, profile, SEED), pilot


@pytest.mark.soak
def test_gyro_alone_finishes_the_second_course(dcl):
    track = load_track("vq2")
    plan, _ = make_plan(track, dcl, PlanOptions(guesses=1))
    verdict, pilot = fly(track, track, plan, dcl)
    assert verdict.status == "finished" and min(verdict.gate_margins_m) > 0.25
    assert pilot.estimator.health.nis < 2.0 and not pilot.counters.lost


def test_gates_that_stand_elsewhere_are_crossed_where_they_stand(vq1, plan, dcl):
    """Each by 0.3 m, its own way: the filter that trusts the map hits one of them in most flights."""
    steps = np.random.default_rng(SEED).normal(size=(len(vq1.gates), 3))
    steps *= 0.3 / np.linalg.norm(steps, axis=1)[:, None]
    gates = [replace(g, centre_m=tuple(g.p_wg + step)) for g, step in zip(vq1.gates, steps, strict=True)]
    verdict, _ = fly(vq1, replace(vq1, gates=tuple(gates)), plan, dcl)
    assert verdict.status == "finished" and min(verdict.gate_margins_m) > 0.25
