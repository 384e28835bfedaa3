"""Races with one mishap each, with recovery and without: python benchmarks/recovery.py vq1 --mishap video --seeds 1300 1320

Projected camera and IMU in lock-step, profile `dcl`, controller `mpcc`; the seed draws the world, and the place or the moment of
the mishap. Without recovery, no gate is attempted again, and neither a lost estimate nor a displaced gate is searched for.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.benchmarks.campaign.flight import NoLog
from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.estimation.registry import DEFAULT, make_estimator
from gate_racer.link.messages import Imu, Telemetry
from gate_racer.link.profile import load_profile
from gate_racer.mpc.make import make_controller
from gate_racer.perception.association import Associator
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.drivers.lockstep import EmbeddedLink, fly_link
from gate_racer.pilot.drivers.lockstep_perception import LockstepPerception, open_perception
from gate_racer.pilot.flight import EndReason
from gate_racer.pilot.make import make_racer
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.sim.heat.encounter import StateChange
from gate_racer.sim.physics.contact import ColliderKind, Contact
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.errors import exit_code
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

STILL = (0.0, 0.0, 0.0)
LATEST_S = 1.0  # s before the end of the plan, for the beginning of a mishap in flight


@dataclass(frozen=True)
class Mishap:
    """What goes wrong, unknown to the pilot. Times in s since GO."""

    what: str  # human-readable
    world: World
    begin_s: float = math.inf
    end_s: float = math.inf
    video: bool = True  # images arrive meanwhile
    imu: bool = True  # IMU samples arrive meanwhile
    stands_s: float = 0.0  # s, for which the simulator stands still at the beginning, and its time with it
    knock: StateChange | None = None  # of the true state at the beginning


@dataclass(frozen=True)
class Case:
    """One race to be flown."""

    track: Track
    vehicle: Vehicle
    plan: Plan
    world: World
    size: float  # of the mishap, in its unit
    seed: int

    def drawn(self, stream: int) -> np.random.Generator:
        """Return a random stream of the seed."""
        return np.random.default_rng([self.seed, stream])

    def begin_s(self) -> float:
        """Draw the beginning of a mishap in flight, s since GO."""
        return float(self.drawn(22).uniform(0.5, self.plan.total_time - LATEST_S))


def no_mishap(case: Case) -> Mishap:
    return Mishap("", case.world)


def displaced_gate(case: Case) -> Mishap:
    """Displace one gate horizontally; gates with a frame alternate with the seed, which draws the direction."""
    gates, course = case.track.gates, case.world.deviations.course
    solid = [k for k, gate in enumerate(gates) if not gate.is_ball]
    moved, bearing = solid[case.seed % len(solid)], case.drawn(21).uniform(0, 2 * np.pi)
    steps = [list(map(float, step)) for step in course.gate_moved_m or [STILL] * len(gates)]
    steps[moved][0] += case.size * math.cos(bearing)
    steps[moved][1] += case.size * math.sin(bearing)
    course = replace(course, gate_moved_m=tuple((x, y, z) for x, y, z in steps))
    deviations = replace(case.world.deviations, course=course)
    return Mishap(f"gate {moved} off", World.of(case.world.name, deviations, case.track, case.vehicle))


def displaced_pad(case: Case) -> Mishap:
    """Displace the pad horizontally, in a direction drawn from the seed."""
    bearing, pad = case.drawn(21).uniform(0, 2 * np.pi), case.world.deviations.pad
    x, y, z = pad.moved_m
    pad = replace(pad, moved_m=(x + case.size * math.cos(bearing), y + case.size * math.sin(bearing), z))
    world = World.of(case.world.name, replace(case.world.deviations, pad=pad), case.track, case.vehicle)
    return Mishap("pad off", world)


def silence(case: Case, imu: bool) -> Mishap:
    """Lose all images, or all IMU samples, for some time."""
    begin_s = case.begin_s()
    what = f"no {'IMU' if imu else 'video'} from {begin_s:.1f} s"
    return Mishap(what, case.world, begin_s, begin_s + case.size, video=imu, imu=not imu)


def hard_knock(case: Case) -> Mishap:
    """Change velocity, in a horizontal direction drawn from the seed, and body rates, as many rad/s as m/s, from tick to tick."""
    begin_s, rng = case.begin_s(), case.drawn(23)
    bearing, axis = rng.uniform(0, 2 * np.pi), rng.normal(size=3)
    dv_w = case.size * np.array([np.cos(bearing), np.sin(bearing), 0.0])
    knock = StateChange(np.zeros(3), dv_w, case.size * axis / np.linalg.norm(axis))
    return Mishap(f"knock at {begin_s:.1f} s", case.world, begin_s, knock=knock)


def standstill(case: Case) -> Mishap:
    """Suspend the simulator, whose time stands meanwhile."""
    begin_s = case.begin_s()
    return Mishap(f"the simulator stands at {begin_s:.1f} s", case.world, begin_s, stands_s=case.size)


MISHAPS: dict[str, tuple[Callable[[Case], Mishap], float]] = {  # with its usual size
    "none": (no_mishap, 0.0),
    "gate": (displaced_gate, 2.0),  # m
    "pad": (displaced_pad, 1.0),  # m
    "video": (partial(silence, imu=False), 3.0),  # s
    "imu": (partial(silence, imu=True), 0.3),  # s
    "knock": (hard_knock, 3.0),  # m/s
    "standstill": (standstill, 0.5),  # s
}


class DisturbedLink(EmbeddedLink):
    """Lock-step link on which a mishap happens."""

    def __init__(self, simulator: Simulator, eye: LockstepPerception, pilot: AnyPilot, mishap: Mishap):
        super().__init__(simulator, eye)
        self._pilot, self._mishap, self._knock = pilot, mishap, mishap.knock
        self._stands_s = mishap.stands_s  # s, left

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        mishap, step_s = self._mishap, 1 / self.simulator.profile.physics_hz
        since_s = -math.inf if self._pilot.go_t is None else self.simulator.t - self._pilot.go_t
        if not mishap.begin_s <= since_s < mishap.end_s:
            return super().tick(window)
        if self._stands_s > 0:
            self._stands_s -= step_s
            self.t, self.now, self.images = self.t + step_s, self.now + step_s, []
            return []
        received = super().tick(window)
        if self._knock is not None:
            self.simulator.strike(self._knock, Contact(self.t, ColliderKind.RIVAL, 0, 0.0))
            self._knock = None
        self.images = self.images if mishap.video else []
        return received if mishap.imu else [message for message in received if not isinstance(message, Imu)]


def fly(case: Case, mishap: Mishap, recovers: bool) -> dict[str, Any]:
    """Fly one race, until the referee ends it; `recovers`: whether the pilot repeats missed gates and recovers."""
    profile, track, vehicle = load_profile("dcl"), case.track, case.vehicle
    associator = Associator(track.gates, vehicle.camera)
    estimator = make_estimator(DEFAULT, track.start, vehicle, associator.appearance)
    controller = make_controller("mpcc", case.plan, vehicle, track)
    pilot = make_racer(track, vehicle, profile, estimator, associator, controller, retry=recovers)
    simulator = Simulator(mishap.world, profile, case.seed, 1)
    eye = open_perception("projected", "race", mishap.world, vehicle.camera, profile, case.seed)

    def leave(pilot: AnyPilot) -> None:
        if simulator.referee.race.over:
            pilot.abort(EndReason.INTERRUPTED, "the race is over")

    fly_link(pilot, profile, DisturbedLink(simulator, eye, pilot, mishap), Recorder(NoLog()), leave, [])
    race = simulator.referee.race
    finished = race.status is RunStatus.FINISHED
    return {
        "course": track.name, "seed": case.seed, "mishap": mishap.what, "recovery": "on" if recovers else "off",
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


def main() -> int:
    parser = script(__doc__)
    parser.add_argument("tracks", nargs="+", help="names or YAML files")
    parser.add_argument("--mishap", choices=MISHAPS, default="gate", help="what goes wrong (default: gate)")
    parser.add_argument(
        "--size", type=float, help="of the mishap, in m, s, or m/s (default: 2 m, 1 m, 3 s, 0.3 s, 3 m/s)"
    )
    parser.add_argument("--world", default="unknown", help="name of the world (default: unknown)")
    parser.add_argument("--seeds", nargs=2, type=int, default=(1300, 1320), metavar=("FIRST", "END"))
    parser.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    a, vehicle, rows, races = parser.parse_args(), load_vehicle("dcl"), [], []
    make, usual = MISHAPS[a.mishap]
    for name in a.tracks:
        track = load_track(name)
        plan = find_or_make_plan(a.plans, track, vehicle, PlanOptions(), None)
        flown: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for seed in range(*a.seeds):
            world = resolve(a.world if a.world == "as_believed" else f"{a.world}:{seed}", track, vehicle)
            case = Case(track, vehicle, plan, world, usual if a.size is None else a.size, seed)
            for on, some in flown.items():
                some.append(fly(case, make(case), on))
        rows.append(summary(name, a.mishap, flown[True], flown[False]))
        races += flown[True] + flown[False]
    seeds = f"{a.seeds[0]} to {a.seeds[1] - 1}"
    conclude(
        a.json, Result.of("Races with a mishap", rows, a.world, seeds), Result.of("Each race", races, a.world, seeds)
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
