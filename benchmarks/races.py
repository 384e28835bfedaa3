"""Single races in lock-step: with mishaps, with all pairs of options, with a told state, and with all vehicles.

python benchmarks/races.py mishaps vq1 --mishap video --seeds 1300 1320
python benchmarks/races.py options|told|vehicles --workers 2

Mishaps: projected camera and IMU, profile `dcl`, controller `mpcc`; the seed draws the world, and the place or the moment of
the mishap. Without recovery, no gate is attempted again, and neither a lost estimate nor a displaced gate is searched for.
The others fly `run-mpc` as a user does, seed 0 in the world as believed: finished, lost, refused in one line, or broken.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.common.config import names
from gate_racer.common.errors import UserError, exit_code
from gate_racer.common.settings import keys_of, settings_of
from gate_racer.link.messages import Telemetry
from gate_racer.link.msp.profile import FOLDER as MSP_PROFILES
from gate_racer.link.msp.profile import BetaflightProfile, load_wire
from gate_racer.link.profile import FOLDER as PROFILES
from gate_racer.link.profile import load_profile
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.mpc.registry import make_controller
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import EndReason, FlightOptions
from gate_racer.pilot.lockstep import LockstepFlight
from gate_racer.pilot.pilot import AnyPilot, PilotModels, build_racer
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import EmbeddedLink, LockstepPerception, open_perception
from gate_racer.race.request import require_seen, require_wire
from gate_racer.race.run_mpc import parser
from gate_racer.race.settings import RunSettings
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import FOLDER as TRACKS
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

MISHAPS = {"none": 0.0, "gate": 2.0, "video": 3.0, "standstill": 0.5}  # usual size, m or s
PROJECTED, TOLD = "world.camera=projected", "perception.pose=true"
BELIEVED = "as believed", "0"  # world and seed of the flights of `run-mpc`
LIMIT_S = 600.0  # s, longest flight of `run-mpc`, its plan included, on a loaded machine (chosen)
LATEST_S = 1.0  # s before the end of the plan, for the beginning of a mishap in flight


@dataclass(frozen=True)
class Mishap:
    """What goes wrong, unknown to the pilot, from a time since GO on."""

    what: str  # human-readable
    world: World
    begin_s: float = math.inf
    silent_s: float = 0.0  # s, for which no images arrive
    stands_s: float = 0.0  # s, for which the simulator stands still, and its time with it


def mishap_of(kind: str, size: float, seed: int, world: World, track: Track, vehicle: Vehicle, plan: Plan) -> Mishap:
    """Return the mishap of a seed, which draws the direction of a displaced gate, or the moment."""
    begin_s = float(np.random.default_rng([seed, 22]).uniform(0.5, plan.total_time - LATEST_S))
    if kind == "gate":  # gates with a frame alternate with the seed
        course, solid = world.deviations.course, [k for k, gate in enumerate(track.gates) if not gate.is_ball]
        moved, bearing = solid[seed % len(solid)], np.random.default_rng([seed, 21]).uniform(0, 2 * np.pi)
        steps = [list(step) for step in course.gate_moved_m or [(0.0, 0.0, 0.0)] * len(track.gates)]
        steps[moved][0] += size * math.cos(bearing)
        steps[moved][1] += size * math.sin(bearing)
        course = replace(course, gate_moved_m=tuple((x, y, z) for x, y, z in steps))
        world = World.of(world.name, replace(world.deviations, course=course), track, vehicle)
        return Mishap(f"gate {moved} off", world)
    if kind == "video":
        return Mishap(f"no video from {begin_s:.1f} s", world, begin_s, silent_s=size)
    if kind == "standstill":
        return Mishap(f"the simulator stands at {begin_s:.1f} s", world, begin_s, stands_s=size)
    return Mishap("", world)


class DisturbedLink(EmbeddedLink):
    def __init__(self, simulator: Simulator, eye: LockstepPerception, pilot: AnyPilot, mishap: Mishap):
        super().__init__(simulator, eye)
        self._pilot, self._mishap = pilot, mishap
        self._stands_s = mishap.stands_s  # s, left

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        mishap, step_s = self._mishap, 1 / self.simulator.profile.physics_hz
        since_s = -math.inf if self._pilot.go_t is None else self.simulator.t - self._pilot.go_t - mishap.begin_s
        if since_s >= 0 and self._stands_s > 0:
            self._stands_s -= step_s
            self.t, self.now, self.images = self.t + step_s, self.now + step_s, []
            return []
        received = super().tick(window)
        self.images = [] if 0 <= since_s < mishap.silent_s else self.images
        return received


def fly(mishap: Mishap, track: Track, vehicle: Vehicle, plan: Plan, seed: int, recovers: bool) -> dict[str, Any]:
    """Fly one race, until the referee ends it; `recovers`: whether the pilot repeats missed gates and recovers."""
    profile = load_profile("dcl")
    controller = make_controller("mpcc", plan, vehicle, track)
    pilot = build_racer(PilotModels.of(track, vehicle, profile), controller, FlightOptions(retry=recovers))
    simulator = Simulator(mishap.world, profile, seed)
    eye = open_perception("projected", "race", mishap.world, vehicle.camera, profile, seed)

    def leave(pilot: AnyPilot) -> None:
        if simulator.referee.race.over:
            pilot.abort(EndReason.INTERRUPTED, "the race is over")

    link = DisturbedLink(simulator, eye, pilot, mishap)
    LockstepFlight(pilot, profile, link, Recorder(NoLog()), leave).fly()
    race = simulator.referee.race
    finished = race.status is RunStatus.FINISHED
    return {
        "course": track.name, "seed": seed, "mishap": mishap.what, "recovery": "on" if recovers else "off",
        "time s": race.gate_times_s[-1] if finished else None, "least margin m": min(race.gate_margins_m, default=None),
        "gates": len(race.gate_times_s), "attempts again": len(pilot.guidance.passages.retries),
        "end": "" if finished else race.cause if race.over else pilot.cause or "finished by its own estimate only",
    }  # fmt: skip


def summary(course: str, mishap: str, on: list[dict[str, Any]], off: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row; times and margins are those of the races that finish both with recovery and without."""
    both = [(a, b) for a, b in zip(on, off, strict=True) if a["time s"] and b["time s"]]
    row: dict[str, Any] = {"course": course, "mishap": mishap}
    for name, races, k in (("with recovery", on, 0), ("without", off, 1)):
        row[name] = sum(one["time s"] is not None for one in races)
        row[f"time {name} s"] = np.mean([pair[k]["time s"] for pair in both]) if both else None
        row[f"least margin {name} m"] = min((pair[k]["least margin m"] for pair in both), default=None)
    return row | {"of": len(on)}


def mishaps(a: argparse.Namespace) -> list[Result]:
    """Return the races with a mishap, summed up and one by one."""
    vehicle, rows, races = load_vehicle("dcl"), [], []
    size = MISHAPS[a.mishap] if a.size is None else a.size
    for name in a.tracks:
        track = load_track(name)
        plan = find_or_make_plan(a.plans, track, vehicle, PlanOptions(), None)
        flown: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for seed in range(*a.seeds):
            world = resolve(a.world if a.world == "as_believed" else f"{a.world}:{seed}", track, vehicle)
            mishap = mishap_of(a.mishap, size, seed, world, track, vehicle, plan)
            for on, some in flown.items():
                some.append(fly(mishap, track, vehicle, plan, seed, on))
        rows.append(summary(name, a.mishap, flown[True], flown[False]))
        races += flown[True] + flown[False]
    seeds = f"{a.seeds[0]} to {a.seeds[1] - 1}"
    titles = {"Races with a mishap": rows, "Each race": races}
    return [Result.of(title, found, a.world, seeds) for title, found in titles.items()]


# Combinations of the options of `run-mpc`, as its registries list them. An axis is a list of texts `KEY=VALUE`, one of which
# each flight has; an empty text leaves the key at its default. The greedy covering array is that of Cohen et al. (AETG, IEEE
# TSE 1997), without its random candidates.

Axis = Sequence[str]
Combination = tuple[str, ...]  # one text of each axis
# What contradicts each other or the course.
GOVERNED = "link.profile", "laps", "perception.pose", "controller.command"
# Another kind of flight, plans that would be refused, or runs before: no key of one race in lock-step.
APART = {"link.live", "link.lockstep", "link.shadow", "race.rivals", "plan.uncertified", "plan.improve"}


@dataclass(frozen=True)
class Axes:
    """Options of a race: the course and what it may contradict, and those that go with all others."""

    governed: list[Axis]
    free: list[Axis]

    @classmethod
    def of(cls, courses: Axis | None = None) -> "Axes":
        """Return all options of `run-mpc` on these courses, names or files; by default on all that are shipped."""
        values: dict[str, Iterable[Any]] = {
            "vehicle": names(VEHICLES),
            "link.profile": (*names(PROFILES), *names(MSP_PROFILES)),
            "controller.name": CONTROLLERS,
            "laps": (1, 2),
        }
        keys = [one for one in keys_of(RunSettings()) if one.name not in APART]
        values |= {one.name: one.about.choices for one in keys if one.about.choices}
        texts = {name: by_key(name, known) for name, known in values.items()}
        switches = [one for one in keys if isinstance(one.default, bool)]
        texts |= {one.name: ["", f"{one.name}={str(not one.default).lower()}"] for one in switches}
        return cls(
            [courses or names(TRACKS), *(texts[name] for name in GOVERNED)],
            [known for name, known in texts.items() if name not in GOVERNED],
        )


def by_key(name: str, values: Iterable[Any]) -> list[str]:
    return [f"{name}={value}" for value in values]


def named(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def words_of(texts: Combination) -> list[str]:
    """Return the words of the command line of a combination, whose first text is the course."""
    what, *keys = texts
    return [what, "--lockstep", *(["--set", *filter(None, keys)] if any(keys) else [])]


_parser, _track = cache(parser), cache(load_track)


@cache
def refusal(texts: Combination) -> str:
    """Return why `run-mpc` refuses these options before it plans; empty if it does not."""
    settings = settings_of(_parser().parse_args(words_of(texts)), RunSettings)
    try:
        settings.require_consistent()
        wire, track = load_wire(settings.link.profile), _track(texts[0])
        require_wire(settings, wire if isinstance(wire, BetaflightProfile) else None)
        track.course(settings.laps)
        require_seen(settings, track)
    except UserError as error:
        return str(error)
    return ""


def covering(axes: Axes, strength: int = 2) -> list[Combination]:
    """Return few combinations in which each value, pair or `strength` values of different axes is that is not refused."""
    columns = [*axes.governed, *axes.free]
    heads = [head for head in product(*axes.governed) if not refusal(head)]
    missing = dict.fromkeys(  # in order, which a set has not
        chosen
        for places in combinations(range(len(columns)), strength)
        for chosen in product(*([(k, text) for text in columns[k]] for k in places))
        if any(_agrees(head, chosen) for head in heads)
    )

    def gain(row: Combination) -> int:
        return sum(chosen in missing for chosen in combinations(enumerate(row), strength))

    rows = []
    while missing:
        first = next(iter(missing))
        row = max((head for head in heads if _agrees(head, first)), key=gain)
        for column in columns[len(row) :]:
            row = max(((*row, text) for text in column if _agrees((*row, text), first)), key=gain)
        rows.append(row)
        for chosen in combinations(enumerate(row), strength):
            missing.pop(chosen, None)
    return rows


def _agrees(row: Combination, chosen: tuple[tuple[int, str], ...]) -> bool:
    """Return whether a combination, or its first axes, has the chosen texts where it has these axes at all."""
    return all(k >= len(row) or row[k] == text for k, text in chosen)


# Columns of a flight by the keys of its result.
FIGURES = {"gates": "gates_passed", "of": "gates_total", "planned s": "planned_time_s", "time s": "race_time_s"}
FIGURES |= {"least margin m": "min_margin_m"}


def flown(title: str, a: argparse.Namespace, flights: Sequence[Combination]) -> list[Result]:
    """Return one race for each combination, by its course and its keys."""

    def fly(texts: Combination) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            result, words = Path(folder) / "result.json", words_of((*texts, f"plan.folder={a.plans}"))
            command = [sys.executable, "-m", "gate_racer", "run-mpc", *words, "--log", folder, "--json", str(result)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            except subprocess.TimeoutExpired:
                return ended(-1, f"no end within {LIMIT_S:g} s", None)
            outcome = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
            return ended(done.returncode, done.stderr, outcome)

    _, *columns = zip(*flights, strict=True)
    heads = ["course", *(max(named(text)[0] for text in texts) for texts in columns)]  # some texts of a key are empty
    rows = []
    with ThreadPoolExecutor(a.workers) as workers:
        for (course, *texts), ending in zip(flights, workers.map(fly, flights), strict=True):
            values = [named(text)[1] or ("yes" if text else "") for text in texts]
            rows.append(dict(zip(heads, [course, *values], strict=True)) | ending)
    return [Result.of(title, rows, *BELIEVED)]


def ended(code: int, stderr: str, result: dict[str, Any] | None) -> dict[str, Any]:
    """Return the columns of a command that wrote this result, if any.

    It has finished, lost, was refused in one line, or is broken, which is a defect.
    """
    errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
    if "Traceback" in stderr or (result is None and (code != 2 or len(errors) != 1)):
        end, cause = "broken", (stderr.strip() or f"exit code {code}").splitlines()[-1]
    elif result is None:
        end, cause = "refused", errors[0].removeprefix("error: ")
    else:
        end, cause = "finished" if code == 0 else "lost", result["cause"]
    return {"end": end} | {head: (result or {}).get(key) for head, key in FIGURES.items()} | {"cause": cause}


def every_option(a: argparse.Namespace) -> list[Result]:
    """Return one race for each combination of a covering array of all pairs of options."""
    title = "Races that have every pair of the options of `run-mpc` among them"
    return flown(title, a, covering(Axes.of(a.tracks)))


def told(a: argparse.Namespace) -> list[Result]:
    """Return the races with a told state beside those by camera and IMU alone, by course, profile and controller."""
    profiles, controllers = by_key("link.profile", names(PROFILES)), by_key("controller.name", CONTROLLERS)
    flights = list(product(a.tracks, profiles, controllers, [PROJECTED], ["", TOLD]))
    return flown("Races by camera and IMU, and with a told state", a, flights)


def vehicles(a: argparse.Namespace) -> list[Result]:
    """Return one race for each vehicle, course and controller; a course without visible gates is flown with a told state."""
    poses = {name: "" if any(gate.visible for gate in load_track(name).gates) else TOLD for name in a.tracks}
    axes = product(a.tracks, by_key("vehicle", names(VEHICLES)), by_key("controller.name", CONTROLLERS), [PROJECTED])
    return flown("Races of all vehicles on all courses", a, [(*texts, poses[texts[0]]) for texts in axes])


WHAT = {"mishaps": mishaps, "options": every_option, "told": told, "vehicles": vehicles}


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("tracks", nargs="*", default=names(TRACKS), help="names or YAML files (default: all)")
    parser.add_argument("--mishap", choices=MISHAPS, default="gate", help="what goes wrong (default: gate)")
    parser.add_argument("--size", type=float, help="of the mishap, in m or s (default: 2 m, 3 s, 0.5 s)")
    parser.add_argument("--world", default="unknown", help="name of the world of the mishaps (default: unknown)")
    parser.add_argument("--seeds", nargs=2, type=int, default=(1300, 1320), metavar=("FIRST", "END"))
    parser.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    parser.add_argument("--workers", type=int, default=1, help="flights at a time, without mishaps (default: 1)")
    a = parser.parse_args()
    conclude(a.json, *WHAT[a.what](a))


if __name__ == "__main__":
    sys.exit(exit_code(main))
