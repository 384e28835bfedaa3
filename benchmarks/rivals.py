"""Duels: how often pilots that race each other touch, and who is first: python benchmarks/rivals.py vq1 --seeds 20

Every pilot flies the same plan from its own place on the start, in lock-step, by IMU and projected corners; with --slower the
first has a plan of less thrust, and may start in front (--ahead). Without --told none knows of the others but by what
they hide in its images. Prints a line for each duel and the totals, and writes rivals.json.
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would hide the rooms of their names

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.campaign.choice import PreparedCourse
from benchmarks.campaign.flight import LOOK, NoLog
from benchmarks.campaign.prepare import prepare
from estimation.registry import DEFAULT, make_estimator
from link.profile import Profile, load_profile
from mpc.make import make_controller
from perception.association import Associator
from pilot.drivers.eyes import open_eye
from pilot.drivers.heat import Entry, fly_heat
from pilot.make import make_racer
from pilot.records.recorder import Recorder
from sim.heat.heat import Heat, HeatSetup
from sim.heat.standings import Standing, standings
from sim.worlds.distribution import resolve
from sim.worlds.world import NOMINAL
from tracks.grid import SPACING_M
from tracks.track import load_track
from vehicle.errors import exit_code
from vehicle.files import write_file
from vehicle.vehicle import load_vehicle


@dataclass(frozen=True)
class Duel:
    """What came of one race of several."""

    seed: int
    order: list[Standing]  # the first first
    touched_s: list[float]  # times of contacts since GO
    touched_m_s: list[float]  # how fast they approached

    @property
    def finished(self) -> int:
        return sum(standing.status == "finished" for standing in self.order)

    @property
    def leaders(self) -> list[int]:
        """Who was first at each gate, pilots from 1."""
        gates = max(standing.gates for standing in self.order)
        return [min((one.gate_times_s[k], one.pilot) for one in self.order if k < one.gates)[1] for k in range(gates)]

    def __str__(self) -> str:
        ends = ", ".join(
            f"pilot {one.pilot} {one.time_s:.3f} s" if one.status == "finished" else f"pilot {one.pilot} {one.status}"
            for one in self.order
        )
        touched = ", ".join(f"{t:.2f} s at {v:.1f} m/s" for t, v in zip(self.touched_s, self.touched_m_s, strict=True))
        leaders = " ".join(map(str, self.leaders))
        return f"seed {self.seed}: {ends}; first at the gates: {leaders or 'nobody'}; contacts: {touched or 'none'}"


def race(
    courses: Sequence[PreparedCourse], profile: Profile, world: str, seed: int, setup: HeatSetup, controller: str
) -> Duel:
    """One race in lock-step, of one pilot for each of the courses, which differ in the plan."""
    vehicle = courses[0].vehicle
    heat = Heat(resolve(world.format(seed), courses[0].track, vehicle), profile, seed, setup)
    entries = []
    for k, (course, here, own) in enumerate(zip(courses, heat.worlds, heat.seeds, strict=True), 1):
        track = here.told
        associator = Associator(track.gates, vehicle.camera)
        estimator = make_estimator(DEFAULT, track.start, vehicle, associator.appearance)
        follow = make_controller(controller, course.plan, vehicle, track)
        pilot = make_racer(
            track, vehicle, profile, estimator, associator, follow, setup.laps, place=k if setup.told else None
        )
        eye = open_eye("projected", LOOK, here, vehicle.camera, profile, own)
        entries.append(Entry(pilot, eye, Recorder(NoLog())))
    fly_heat(heat, entries, lambda _: None)
    go_t = min((s.referee.race.go_t or 0.0 for s in heat.simulators), default=0.0)
    touched = heat.encounters
    return Duel(seed, standings(heat), [one.t - go_t for one in touched], [one.approach_m_s for one in touched])


def totals(duels: Sequence[Duel]) -> str:
    """In a line, and one for each rank."""
    contacts = np.array([len(duel.touched_s) for duel in duels])
    flown = sum(len(duel.order) for duel in duels)
    finished = sum(duel.finished for duel in duels)
    lines = [
        f"{(contacts > 0).sum()} of {len(duels)} races with contacts, {contacts.mean():.2f} in each;"
        f" {finished} of {flown} flights finished, {sum(duel.finished == len(duel.order) for duel in duels)} races by all"
    ]
    for rank in range(len(duels[0].order)):
        done = [duel.order[rank] for duel in duels if duel.order[rank].status == "finished"]
        times = [one.time_s for one in done if one.time_s is not None]
        who = Counter(f"pilot {one.pilot}" for one in done)
        shares = ", ".join(f"{name} {count}" for name, count in sorted(who.items()))
        lines.append(f"rank {rank + 1}: {shares}, in {np.mean(times):.3f} s" if times else f"rank {rank + 1}: nobody")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("track", nargs="?", default="vq1")
    arguments.add_argument("--vehicle", default="dcl")
    arguments.add_argument("--profile", default="spec")
    arguments.add_argument("--world", default=NOMINAL, help="as of race-sim; {} is the race's seed")
    arguments.add_argument("--controller", default="mpcc")
    arguments.add_argument("--pilots", type=int, default=2)
    arguments.add_argument("--spacing", type=float, default=SPACING_M)
    arguments.add_argument("--rotor-radius", type=float, default=0.0, help="of rotors whose downwash is felt, m")
    arguments.add_argument("--slower", default="", help="the first pilot's plan, such as reserve=0.6")
    arguments.add_argument("--ahead", type=float, default=0.0, help="by which the first pilot starts in front, m")
    arguments.add_argument("--told", action="store_true", help="pilots are told where the others are, and give way")
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    return arguments


def run(arguments: argparse.Namespace) -> int:
    def tell(text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)

    track, vehicle = load_track(arguments.track), load_vehicle(arguments.vehicle)
    courses = [prepare(track, vehicle, 1, False, arguments.out, tell)] * arguments.pilots
    if arguments.slower:
        courses[0] = prepare(track, vehicle, 1, False, arguments.out, tell, plan_asked=arguments.slower)
    profile, duels = load_profile(arguments.profile), []
    setup = HeatSetup(
        arguments.pilots, arguments.spacing, arguments.rotor_radius, told=arguments.told, ahead_m=arguments.ahead
    )
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        duels.append(race(courses, profile, arguments.world, seed, setup, arguments.controller))
        print(duels[-1], flush=True)
    print(totals(duels))
    write_file(arguments.out / "rivals.json", json.dumps([asdict(duel) for duel in duels], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
