"""Two pilots in one race, in lock-step in one process."""

from dataclasses import replace

from gate_racer.pilot.flight import EndReason
from gate_racer.pilot.guidance.rivals import Known, StartGrid
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import read_plan
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import Entry, fly_together
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from tests.flights import SPEC, eye_of, racer_of

FEW_IMAGES = replace(SPEC, video_hz=10.0)


def duel(sprint, vehicle, until_s, published=False):
    """The race and its verdicts, once its pilots were stopped then."""
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    race = MultiVehicleRace(
        as_believed(track, vehicle), FEW_IMAGES, 7, MultiVehicleSetup(pilots=2, publish_states=published)
    )
    entries = []
    for place, (world, seed) in enumerate(zip(race.worlds, race.seeds, strict=True), 1):
        grid = StartGrid(place, Known.TOLD, {}) if published else None
        pilot = racer_of(world.published, vehicle, plan, FEW_IMAGES, "tracking", grid=grid)
        entries.append(Entry(pilot, eye_of(world, vehicle, FEW_IMAGES, seed), Recorder(NoLog())))

    def stop(race):
        if race.t > until_s:
            for entry in entries:
                entry.pilot.abort(EndReason.ERROR, "enough")

    return race, [verdict for _, verdict in fly_together(race, entries, stop)]


def test_two_pilots_race_from_one_go_and_who_knows_nothing_of_rivals_meets_them(sprint, dcl):
    race, verdicts = duel(sprint, dcl, 1.7)
    go = {simulator.referee.race.go_t for simulator in race.simulators}
    assert len(go) == 1 and None not in go
    assert len(race.encounters) == 1, "both take the same line from places beside each other"
    paths = [verdict.x[:, :2] for verdict in verdicts]
    assert paths[0][0, 1] > 0.4 and paths[1][0, 1] < -0.4
    assert all(abs(path[-1, 0]) > 2.0 for path in paths), "both have set off"
    again, _ = duel(sprint, dcl, 1.7)
    assert again.encounters == race.encounters
    assert all((a.truth.x == b.truth.x).all() for a, b in zip(again.simulators, race.simulators, strict=True))


def test_pilots_that_are_told_of_each_other_do_not_touch_and_go_through_the_first_gate_one_behind_the_other(
    sprint, vq1, dcl
):
    race, verdicts = duel(sprint, dcl, 3.1, published=True)
    assert race.encounters == []
    gate = vq1.gates[0]
    ahead_m = [float((verdict.x[-1, :3] - gate.p_wg) @ gate.R_wg[:, 0]) for verdict in verdicts]
    assert ahead_m[0] > 0, "it is through"
    assert ahead_m[1] < ahead_m[0] - 2 * dcl.half_diagonal, "pilot 2 has left the line to pilot 1"
