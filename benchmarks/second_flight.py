"""What a race on the first map adds to the map: explore, map, race carefully, and map from both logs.

python benchmarks/second_flight.py logs/courses/*.yaml --profiles dcl spec --world unknown:660

In lock-step, with projected corners, as benchmarks/exploration.py; with several profiles, the courses take them in turn. Both
maps of a course are compared with the truth of the same world. Prints three lines per course and writes second_flight.json.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gate_racer.benchmarks.exploration import (
    Explored,
    MapDeviation,
    compared,
    explore,
    frame_of,
    map_of,
    map_summary,
    map_text,
    mapped,
    row,
    summary,
)
from gate_racer.estimation.registry import DEFAULT
from gate_racer.field.files import write_yaml
from gate_racer.field.mapping.bundle import MappedGate
from gate_racer.field.mapping.cli import known, start_of, track_fields
from gate_racer.field.mapping.gates import Map
from gate_racer.link.profile import Profile, load_profile
from gate_racer.mpc.solvers.solver import AUTO
from gate_racer.perception.registry import CLASSICAL
from gate_racer.pilot.drivers.lockstep import fly_lockstep
from gate_racer.pilot.drivers.lockstep_perception import open_perception
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.session import Session
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.errors import UserError, exit_code
from gate_racer.vehicle.files import write_file
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

RESERVE = 0.75  # fraction of thrust and body rates that the race may use, as documented for a first race


@dataclass(frozen=True)
class Pair:
    """Results of one course: an exploration with its map, a race on that map, and the map from both logs."""

    explored: Explored
    race: str  # status of the race, or why there is none
    race_s: float | None
    race_margin_m: float | None
    both: MapDeviation | None
    why: str  # why there is no map from both


def found_track(found: Map, passed: list[MappedGate], log: Path, track: Track) -> Track:
    """Write the track file of a log's map beside the log, and load it. Raises UserError for gates that are too uncertain."""
    path = log.with_suffix(".yaml")
    gates = known(found, passed, len(passed))
    write_yaml(path, track_fields(gates, start_of(found), frame_of(track), log.stem, [log]))
    return load_track(path)


def race(
    track: Track, vehicle: Vehicle, profile: Profile, world: World, seed: int, folder: Path
) -> tuple[str, float, float, Path]:
    """Race on a found track; return status, time (s), least margin (m) and the log."""
    plan = find_or_make_plan(folder, track, vehicle, PlanOptions(reserve=RESERVE), None)
    log = FlightLog(folder / f"{track.name}-race.mcap")
    asked = "race", "projected", CLASSICAL, DEFAULT, False, AUTO
    pilot = Session(
        track, vehicle.name, vehicle, profile, plan, 1, seed, log.path, 60.0, *asked, check=False, world=world
    ).pilot()
    perception = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    try:
        _, verdict = fly_lockstep(pilot, world, profile, perception, seed, 1, Recorder(log), lambda pilot: None)
    finally:
        perception.close()
        log.close()
    margin = min(verdict.gate_margins_m, default=0.0)
    return f"{verdict.status} {verdict.cause}".strip(), max(verdict.gate_times_s, default=0.0), margin, log.path


def pair(track: Track, vehicle: Vehicle, profile: Profile, world: World, seed: int, folder: Path) -> Pair:
    """Explore, map, race on the map, and map from both."""
    flown, log = explore(track, vehicle, profile, world, seed, "", folder)
    try:
        found, passed = map_of([log], vehicle, track)
        flown = replace(flown, truth=compared(passed, world, found.calibrated))
        course = found_track(found, passed, log, track)
        status, time_s, margin, again = race(course, vehicle, profile, world, seed + 1000, folder)
    except UserError as error:
        return Pair(flown, str(error), None, None, None, "no race")
    return Pair(flown, status, time_s, margin, *mapped([log, again], vehicle, world, track))


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("tracks", nargs="+", help="names or files; the worlds have the seeds N, N + 1, ...")
    arguments.add_argument("--vehicle", default="dcl")
    arguments.add_argument("--profiles", nargs="+", default=["dcl"], help="taken in turn")
    arguments.add_argument("--world", default="unknown:0", metavar="FILE:N")
    arguments.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Fly and map all courses and print the results; returns the exit code."""
    vehicle, pairs = load_vehicle(arguments.vehicle), list[Pair]()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file, seed = arguments.world.split(":")
    for i, name in enumerate(arguments.tracks):
        track, number = load_track(name), int(seed) + i
        world = resolve(f"{file}:{number}", track, vehicle)
        profile = load_profile(arguments.profiles[i % len(arguments.profiles)])
        done = pair(track, vehicle, profile, world, number, arguments.out)
        pairs.append(done)
        print(row(done.explored))
        print(f"  race: {done.race}, {done.race_s or 0.0:.2f} s, margin {done.race_margin_m or 0.0:.2f} m")
        print(f"  both: {map_text(done.both, done.why)}", flush=True)
        write_file(arguments.out / "second_flight.json", json.dumps([asdict(one) for one in pairs], indent=2) + "\n")
    print(summary([one.explored for one in pairs]))
    print(f"both: {map_summary([one.both for one in pairs if one.both is not None])}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
