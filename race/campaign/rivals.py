"""Races of several pilots (`race-bench --set rivals.grid=GRID`): ranks and contacts.

A grid's file (race/campaign/grids) lists kinds of pilots, and all pairings of them are flown, in lock-step with IMU and
projected corners. Places on the start rotate by one from seed to seed, so that every pilot has every place, including the one
in front (`rivals.ahead_m`). One line is printed per race and one table per pairing; all races are written to
rivals-TRACK-VEHICLE-GRID.json.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np

from gate_racer.common.command import remark, write_json
from gate_racer.common.config import load_named
from gate_racer.common.errors import UserError
from gate_racer.link.profile import Profile, load_profile
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.flight import FlightOptions
from gate_racer.pilot.guidance.rivals import StartGrid
from gate_racer.pilot.pilot import PilotModels, build_racer
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.race.campaign.campaign import prepare
from gate_racer.race.campaign.choice import SETTINGS, BenchSettings, PreparedCourse, asked_world, cells_of
from gate_racer.race.campaign.flight import STYLE, NoLog
from gate_racer.race.lockstep import Entry, fly_together, open_perception
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup, Standing, standings
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.tracks.track import MOST, load_track
from gate_racer.vehicle.vehicle import load_vehicle

GRIDS = Path(__file__).parent / "grids"
FLOWN = "projected", "dcl-projected"  # settings


@dataclass(frozen=True)
class Entrant:
    name: str
    plan: str = ""  # as `plans` of race-bench, such as reserve=0.65
    controller: str = "mpcc"
    rivals: str = "told"  # information about rivals; without any a pilot flies its plan and does not yield

    def __post_init__(self) -> None:
        if self.rivals not in ("unknown", "told"):
            raise ValueError("rivals must be one of unknown, told")


@dataclass(frozen=True)
class Grid:
    """Pilots of a set of races, and the number in each race."""

    pilots: tuple[Entrant, ...]
    at_once: int = 2

    def __post_init__(self) -> None:
        if len({pilot.name for pilot in self.pilots}) < len(self.pilots):
            raise ValueError("two pilots have one name")
        if not 2 <= self.at_once <= min(len(self.pilots), MOST):
            raise ValueError(f"at_once must lie between 2 and the number of pilots, {MOST} at most")


def load_grid(name: str) -> Grid:
    """Load a grid by name or path. Raises UserError for an unknown name or a malformed file."""
    return load_named(name, GRIDS, Grid, "grid")


@dataclass(frozen=True)
class MultiVehicleResult:
    seed: int
    names: list[str]  # of the pilots, by their place on the start
    order: list[Standing]  # the first first
    touched_s: list[float]  # times of contacts since GO
    touched_m_s: list[float]  # how fast they approached

    def standing(self, name: str) -> Standing:
        return next(one for one in self.order if self.names[one.pilot - 1] == name)

    def __str__(self) -> str:
        named = ((self.names[one.pilot - 1], one) for one in self.order)
        ends = ", ".join(
            f"{name} {one.time_s:.3f} s" if one.status == "finished" else f"{name} {one.status} ({one.cause})"
            for name, one in named
        )
        return f"seed {self.seed}, {'-'.join(self.names)}: {ends}; {len(self.touched_s)} contacts"


def race(
    pilots: Sequence[tuple[Entrant, PreparedCourse]], profile: Profile, world: str, seed: int, setup: MultiVehicleSetup
) -> MultiVehicleResult:
    """Fly one race in lock-step; pilots in the order of their places, `world` as in `race-bench --worlds`."""
    track, vehicle = pilots[0][1].track, pilots[0][1].vehicle
    race = MultiVehicleRace(resolve(asked_world(world, seed), track, vehicle), profile, seed, setup)
    entries = []
    for k, ((entrant, course), here, own) in enumerate(zip(pilots, race.worlds, race.seeds, strict=True), 1):
        published = here.published
        follow = make_controller(entrant.controller, course.plan, vehicle, published)
        others = {i: one.published.start.position_m for i, one in enumerate(race.worlds, 1) if i != k}
        start = StartGrid(k, others) if entrant.rivals == "told" else None
        models = PilotModels.of(published, vehicle, profile)
        pilot = build_racer(models, follow, FlightOptions(laps=setup.laps, grid=start))
        eye = open_perception("projected", STYLE, here, vehicle.camera, profile, own)
        entries.append(Entry(pilot, eye, Recorder(NoLog())))
    fly_together(race, entries)
    go_t = min((s.referee.race.go_t or 0.0 for s in race.simulators), default=0.0)
    touched, names = race.encounters, [entrant.name for entrant, _ in pilots]
    return MultiVehicleResult(
        seed, names, standings(race), [one.t - go_t for one in touched], [one.approach_m_s for one in touched]
    )


def table(names: Sequence[str], races: Sequence[MultiVehicleResult]) -> str:
    """Return one line for a pairing and one for each of its pilots."""
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


def run(a: BenchSettings, folder: Path, json: Path | None) -> int:
    """Fly all pairings over all tracks, vehicles, settings and worlds. Raises UserError."""
    a.require_known()
    if unfit := [setting for setting in a.flown if setting not in FLOWN]:
        raise UserError(f"--settings {unfit[0]}: races of several are flown by {' or '.join(FLOWN)}")
    grid, flown = load_grid(a.rivals.grid), list[MultiVehicleResult]()
    setup = MultiVehicleSetup(
        laps=a.laps,
        pilots=grid.at_once,
        spacing_m=a.rivals.spacing_m,
        rotor_radius_m=a.rivals.rotor_radius_m,
        publish_states=True,
        ahead_m=a.rivals.ahead_m,
    )
    for track, vehicle in product(map(load_track, a.tracks), map(load_vehicle, a.vehicles)):
        races = list[MultiVehicleResult]()
        pilots = [(one, prepare(track, vehicle, a.laps, False, folder, plan_asked=one.plan)) for one in grid.pilots]
        for setting, chosen, world in product(a.flown, combinations(pilots, grid.at_once), cells_of(a.worlds)):
            profile, pairing = load_profile(SETTINGS[setting].profile), list[MultiVehicleResult]()
            for seed in range(a.first_seed, a.first_seed + a.seeds):
                turned = seed % grid.at_once
                pairing.append(race(chosen[turned:] + chosen[:turned], profile, world, seed, setup))
                remark(str(pairing[-1]))
            print(f"{track.name}, {vehicle.name}, {setting}, {world}")
            print(table([entrant.name for entrant, _ in chosen], pairing), flush=True)
            races += pairing
        write_json(folder / f"rivals-{track.name}-{vehicle.name}-{Path(a.rivals.grid).stem}.json", races)
        flown += races
    write_json(json, flown)
    return 0
