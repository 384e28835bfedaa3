"""Flights by camera and IMU without ATTITUDE, in lock-step: the second qualifier's course, and a wrong map."""

from dataclasses import replace

import numpy as np

from gate_racer.link.profile import load_profile
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.build import PilotModels, build_racer
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.race.lockstep import Entry, fly_lockstep
from gate_racer.race.perception import open_perception
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from tests.conftest import ROOT

SEED = 0


class NoLog:
    def write(self, *_, **__):
        pass

    def image(self, *_):
        pass


def fly(track, world, plan, vehicle):
    """A flight by the map of `track` in a world where gates may stand elsewhere; the referee's verdict, and the pilot."""
    profile = replace(load_profile("spec"), attitude_hz=0.0)
    controller = make_controller("tracking", plan, vehicle, track)
    pilot = build_racer(PilotModels.of(track, vehicle, profile), controller)
    true = as_believed(world, vehicle)
    eye = open_perception("projected", "race", true, vehicle.camera, profile, SEED)
    _, verdict = fly_lockstep(Entry(pilot, eye, Recorder(NoLog())), true, profile, SEED)
    return verdict, pilot


def test_gyro_alone_finishes_the_second_course(dcl):
    track = load_track(ROOT / "tracks/vq2.yaml")
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
