"""Two pilots in one race, in lock-step in one process, and one that passes a rival on rails."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.true_state import COMMAND_TICKS, PHYSICS_HZ
from gate_racer.estimation.estimator import State
from gate_racer.link.messages import RivalState
from gate_racer.mpc.avoidance import P, V
from gate_racer.mpc.reference import Reference
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.flight import EndReason, set_point
from gate_racer.pilot.guidance.rivals import PassingRoom, RivalWatch, StartGrid
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import Entry, fly_together
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plant import make_plant
from gate_racer.sim.physics.registry import natural
from gate_racer.sim.referee import Referee
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.tracks.track import place as gridded
from tests.conftest import HALF_SEEN
from tests.flights import SPEC, eye_of, racer_of

FEW_IMAGES = replace(SPEC, video_hz=10.0)


def duel(sprint, vehicle, until_s, published=False):
    """The race and its verdicts, once its pilots were stopped then."""
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    race = MultiVehicleRace(
        as_believed(track, vehicle), FEW_IMAGES, 7, MultiVehicleSetup(pilots=2, publish_states=published)
    )
    entries = []

    def stop(pilot):
        if race.t > until_s:
            pilot.abort(EndReason.ERROR, "enough")

    for place, (world, seed) in enumerate(zip(race.worlds, race.seeds, strict=True), 1):
        grid = StartGrid(place, {}) if published else None
        pilot = racer_of(world.published, vehicle, plan, FEW_IMAGES, "tracking", grid=grid)
        entries.append(Entry(pilot, eye_of(world, vehicle, FEW_IMAGES, seed), Recorder(NoLog()), stop))
    return race, [verdict for _, verdict in fly_together(race, entries)]


def test_two_pilots_race_from_one_go_and_who_knows_nothing_of_rivals_meets_them(sprint, dcl):
    race, verdicts = duel(sprint, dcl, 1.7)
    go = {simulator.referee.race.go_t for simulator in race.simulators}
    assert len(go) == 1 and None not in go
    assert len(race.encounters) == 1, "both take the same line from places beside each other"
    paths = [verdict.x[:, :2] for verdict in verdicts]
    assert paths[0][0, 1] > 0.4 and paths[1][0, 1] < -0.4
    assert all(abs(path[-1, 0]) > 2.0 for path in paths), "both have set off"


def test_pilots_told_of_each_other_do_not_touch_and_pass_the_first_gate_one_behind_the_other(sprint, vq1, dcl):
    race, verdicts = duel(sprint, dcl, 3.1, published=True)
    assert race.encounters == []
    gate = vq1.gates[0]
    ahead_m = [float((verdict.x[-1, :3] - gate.p_wg) @ gate.R_wg[:, 0]) for verdict in verdicts]
    assert ahead_m[0] > 0, "it is through"
    assert ahead_m[1] < ahead_m[0] - 2 * dcl.half_diagonal, "pilot 2 has left the line to pilot 1"


UNTIL_S = 2.6
LEAD_S = 0.42  # of the rival at GO, in plan time
BESIDE_M = 1.0  # m, offset of the pilot's start from the line
START_M = 0.07, -0.12  # m, and of the pad


@pytest.mark.parametrize(("half_seen", "share", "passed"), [(True, 0.8, True), (False, 1.04, False)])
def test_a_slower_rival_is_passed_without_contact_and_one_as_fast_is_followed(vq1, plan, dcl, half_seen, share, passed):
    course = replace(vq1, gates=vq1.gates[:3]) if half_seen else vq1
    if half_seen:
        plan, _ = make_plan(course, dcl, replace(HALF_SEEN, guesses=1))
    track = gridded(course, 2, 2, 2 * BESIDE_M)
    (x, y, z), (dx, dy) = track.start.position_m, START_M
    line, controller = Reference(plan, dcl, track.course(1)), make_controller("mpcc", plan, dcl, track)
    watch = RivalWatch(StartGrid(2, {}), dcl.half_diagonal, PassingRoom(track, dcl.half_diagonal))
    start = replace(track.start, position_m=(x + dx, y + dy, z))
    plant, referee = make_plant(dcl, start, natural(dcl), Colliders(track)), Referee(track, plan.laps, UNTIL_S)
    plant.armed, least_m, lead_m, count = True, np.inf, np.nan, 0
    referee.go(0.0)
    while not referee.race.over:
        t, now = count / PHYSICS_HZ, plant.truth.x
        there = line.sample(np.array([share * t + LEAD_S]))[0]
        off = plant.truth.p_wb - there[P]
        least_m, lead_m = min(least_m, float(np.linalg.norm(off))), float(off @ there[V] / np.linalg.norm(there[V]))
        watch.received.receive(RivalState(t, 1, tuple(there[P]), tuple(share * there[V])))
        if count % COMMAND_TICKS == 0:
            state = State(t, now[:3], now[3:7], now[7:10], now[10:13], np.zeros((9, 9)), 0.0)
            progress = controller.progress
            way = watch.way(state, controller.reference, progress.theta, progress.pace, progress.attainable)
            controller.others = way.tubes
            progress.allowed = way.pace
            control = controller.step(t, now, COMMAND_TICKS / PHYSICS_HZ)
            controller.prepare()
            plant.command(t, set_point(control, dcl))
        count += 1
        referee.watch(plant.truth, plant.advance(count / PHYSICS_HZ))
    margins_m = referee.race.gate_margins_m
    assert least_m > 2 * dcl.half_diagonal + 0.1
    assert margins_m and min(margins_m) > 0.3
    assert (lead_m > 1.0) is passed and (lead_m < -1.0) is not passed
