"""Races of several: who is first, and how often they touch: python benchmarks/rivals.py vq1 --grid duel --seeds 20

Who races is data: a grid's file (benchmarks/grids) lists kinds of pilots, and all pairings of them are flown, in lock-step by IMU
and projected corners. Places on the start are turned by one from seed to seed, so that everybody stands everywhere, in front too
(--ahead). Prints a line for each race and a table for each pairing, and writes rivals-TRACK-GRID.json.
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would hide the rooms of their names

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
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
from pilot.guidance.rivals import Known, StartGrid
from pilot.make import make_racer
from pilot.records.recorder import Recorder
from sim.heat.heat import Heat, HeatSetup
from sim.heat.standings import Standing, standings
from sim.worlds.distribution import resolve
from sim.worlds.world import NOMINAL
from tracks.grid import MOST, SPACING_M
from tracks.track import load_track
from vehicle.config import load
from vehicle.errors import UserError, exit_code
from vehicle.files import write_file
from vehicle.vehicle import load_vehicle

GRIDS = Path(__file__).parent / "grids"


@dataclass(frozen=True)
class Entrant:
    """One kind of pilot."""

    name: str
    plan: str = ""  # as race-bench --plans reads it, such as reserve=0.65
    controller: str = "mpcc"
    rivals: str = Known.TOLD  # what is known of them; who knows nothing flies its plan, and yields to nobody

    def __post_init__(self) -> None:
        if self.rivals not in tuple(Known):
            raise ValueError(f"rivals must be one of {', '.join(Known)}")


@dataclass(frozen=True)
class Grid:
    """Who races, and how many at once."""

    pilots: tuple[Entrant, ...]
    at_once: int = 2

    def __post_init__(self) -> None:
        if len({pilot.name for pilot in self.pilots}) < len(self.pilots):
            raise ValueError("two pilots have one name")
        if not 2 <= self.at_once <= min(len(self.pilots), MOST):
            raise ValueError(f"at_once must lie between 2 and the number of pilots, {MOST} at most")


def load_grid(name: str) -> Grid:
    """A grid by its name or the path of a file. Raises ConfigError, and UserError where there is none of that name."""
    known = sorted(path.stem for path in GRIDS.glob("*.yaml"))
    if not name.endswith(".yaml") and name not in known:
        raise UserError(f"no grid {name!r}; known: {', '.join(known)}, or the path of a YAML file")
    return load(name if name.endswith(".yaml") else GRIDS / f"{name}.yaml", Grid)


@dataclass(frozen=True)
class Race:
    """What came of one race of several."""

    seed: int
    names: list[str]  # of the pilots, by their place on the start
    order: list[Standing]  # the first first
    touched_s: list[float]  # times of contacts since GO
    touched_m_s: list[float]  # how fast they approached

    @property
    def leaders(self) -> list[str]:
        """Who was first at each gate."""
        gates = max(standing.gates for standing in self.order)
        first = [min((one.gate_times_s[k], one.pilot) for one in self.order if k < one.gates)[1] for k in range(gates)]
        return [self.names[pilot - 1] for pilot in first]

    def standing(self, name: str) -> Standing:
        """A pilot's result."""
        return next(one for one in self.order if self.names[one.pilot - 1] == name)

    def __str__(self) -> str:
        ends = ", ".join(
            f"{self.names[one.pilot - 1]} {one.time_s:.3f} s"
            if one.status == "finished"
            else f"{self.names[one.pilot - 1]} {one.status} ({one.cause})"
            for one in self.order
        )
        touched = ", ".join(f"{t:.2f} s at {v:.1f} m/s" for t, v in zip(self.touched_s, self.touched_m_s, strict=True))
        return (
            f"seed {self.seed}, {'-'.join(self.names)}: {ends}; first at the gates:"
            f" {' '.join(self.leaders) or 'nobody'}; contacts: {touched or 'none'}"
        )


def race(
    pilots: Sequence[tuple[Entrant, PreparedCourse]], profile: Profile, world: str, seed: int, setup: HeatSetup
) -> Race:
    """One race in lock-step, of pilots in the order of their places."""
    track, vehicle = pilots[0][1].track, pilots[0][1].vehicle
    heat = Heat(resolve(world.format(seed), track, vehicle), profile, seed, setup)
    entries = []
    for k, ((entrant, course), here, own) in enumerate(zip(pilots, heat.worlds, heat.seeds, strict=True), 1):
        told = here.told
        associator = Associator(told.gates, vehicle.camera)
        estimator = make_estimator(DEFAULT, told.start, vehicle, associator.appearance)
        follow = make_controller(entrant.controller, course.plan, vehicle, told)
        others = {i: one.told.start.position_m for i, one in enumerate(heat.worlds, 1) if i != k}
        start = StartGrid(k, Known(entrant.rivals), others)
        pilot = make_racer(told, vehicle, profile, estimator, associator, follow, setup.laps, grid=start)
        eye = open_eye("projected", LOOK, here, vehicle.camera, profile, own)
        entries.append(Entry(pilot, eye, Recorder(NoLog())))
    fly_heat(heat, entries, lambda _: None)
    go_t = min((s.referee.race.go_t or 0.0 for s in heat.simulators), default=0.0)
    touched, names = heat.encounters, [entrant.name for entrant, _ in pilots]
    return Race(seed, names, standings(heat), [one.t - go_t for one in touched], [one.approach_m_s for one in touched])


def table(names: Sequence[str], races: Sequence[Race]) -> str:
    """A pairing in a line, and one for each pilot."""
    contacts = np.array([len(one.touched_s) for one in races])
    whole = sum(all(standing.status == "finished" for standing in one.order) for one in races)
    lines = [
        f"{' - '.join(names)}: {(contacts > 0).sum()} of {len(races)} races with contacts, {contacts.mean():.2f} in each;"
        f" {whole} finished by all"
    ]
    for name in names:
        ends = [one.standing(name) for one in races]
        times = [end.time_s for end in ends if end.status == "finished" and end.time_s is not None]
        ranks = " ".join(str(sum(end.rank == rank for end in ends)) for rank in range(1, len(names) + 1))
        margins = [margin for end in ends for margin in end.gate_margins_m]
        lines.append(
            f"  {name:12} finished {len(times)}, ranks {ranks}, mean {np.mean(times) if times else np.nan:.3f} s,"
            f" least gate margin {min(margins, default=np.nan):.2f} m"
        )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("track", nargs="?", default="vq1")
    arguments.add_argument("--grid", default="equal", help="name in benchmarks/grids, or a YAML file (default: equal)")
    arguments.add_argument("--vehicle", default="dcl")
    arguments.add_argument("--profile", default="spec")
    arguments.add_argument("--world", default=NOMINAL, help="as of race-sim; {} is the race's seed")
    arguments.add_argument("--spacing", type=float, default=SPACING_M)
    arguments.add_argument("--rotor-radius", type=float, default=0.0, help="of rotors whose downwash is felt, m")
    arguments.add_argument("--ahead", type=float, default=0.0, help="by which the first place lies in front, m")
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    return arguments


def run(arguments: argparse.Namespace) -> int:
    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    grid, track, vehicle = load_grid(arguments.grid), load_track(arguments.track), load_vehicle(arguments.vehicle)
    pilots = [(one, prepare(track, vehicle, 1, False, arguments.out, tell, plan_asked=one.plan)) for one in grid.pilots]
    profile, flown, tables = load_profile(arguments.profile), list[Race](), []
    setup = HeatSetup(grid.at_once, arguments.spacing, arguments.rotor_radius, told=True, ahead_m=arguments.ahead)
    for chosen in combinations(pilots, grid.at_once):
        races = []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            turned = seed % grid.at_once
            races.append(race(chosen[turned:] + chosen[:turned], profile, arguments.world, seed, setup))
            print(races[-1], flush=True)
        tables.append(table([entrant.name for entrant, _ in chosen], races))
        flown += races
    print("\n".join(tables))
    file = arguments.out / f"rivals-{track.name}-{Path(arguments.grid).stem}.json"
    write_file(file, json.dumps([asdict(one) for one in flown], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
