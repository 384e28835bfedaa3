"""Races with one mishap each, with recovery and without: python benchmarks/recovery.py vq1 --mishap video --seeds 1300 1320

Projected camera and IMU in lock-step, profile `dcl`, controller `mpcc`; the seed draws the world, and the place or the moment of
the mishap. `--recovery off` disables repeated attempts at a gate, recovery of a lost estimate and the search for displaced gates.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gate_racer.benchmarks.campaign.flight import NoLog
from gate_racer.estimation.registry import DEFAULT, make_estimator
from gate_racer.link.messages import Imu, Telemetry
from gate_racer.link.profile import load_profile
from gate_racer.mpc.make import make_controller
from gate_racer.perception.association import Associator
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.drivers.lockstep import EmbeddedLink, fly_link
from gate_racer.pilot.drivers.lockstep_perception import LockstepPerception, open_perception
from gate_racer.pilot.flight import EndReason, Retry
from gate_racer.pilot.make import make_racer
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.sim.heat.encounter import StateChange
from gate_racer.sim.physics.contact import ColliderKind, Contact
from gate_racer.sim.referee import Race, RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.deviations import PadDeviation
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.errors import UserError, exit_code
from gate_racer.vehicle.rotation import Array
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
    size: float | None  # of the mishap, in its unit; None: the usual one
    gate: int | None  # to be displaced; None: drawn
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
    gates, by_m = case.track.gates, 2.0 if case.size is None else case.size
    solid = [k for k, gate in enumerate(gates) if not gate.is_ball]
    moved = solid[case.seed % len(solid)] if case.gate is None else case.gate % len(gates)
    steps = [list(step) for step in case.world.deviations.course.gate_moved_m or [STILL] * len(gates)]
    bearing = case.drawn(21).uniform(0, 2 * np.pi)
    steps[moved] = [
        *(np.array(steps[moved][:2]) + by_m * np.array([np.cos(bearing), np.sin(bearing)])),
        steps[moved][2],
    ]
    course = replace(case.world.deviations.course, gate_moved_m=tuple((float(x), float(y), z) for x, y, z in steps))
    deviations = replace(case.world.deviations, course=course)
    return Mishap(f"gate {moved} off", World.of(case.world.name, deviations, case.track, case.vehicle))


def displaced_pad(case: Case) -> Mishap:
    """Displace the pad horizontally, in a direction drawn from the seed."""
    by_m, bearing = 1.0 if case.size is None else case.size, case.drawn(21).uniform(0, 2 * np.pi)
    pad = case.world.deviations.pad
    x, y, z = pad.moved_m
    pad = PadDeviation(
        (x + by_m * math.cos(bearing), y + by_m * math.sin(bearing), z), *(pad.yaw_deg, pad.pitch_deg, pad.roll_deg)
    )
    world = World.of(case.world.name, replace(case.world.deviations, pad=pad), case.track, case.vehicle)
    return Mishap(f"pad off by {by_m:g} m", world)


def silence(case: Case, usual_s: float, imu: bool) -> Mishap:
    """Lose all images, or all IMU samples, for some time."""
    begin_s, seconds = case.begin_s(), usual_s if case.size is None else case.size
    what = f"no {'IMU' if imu else 'video'} for {seconds:g} s from {begin_s:.1f} s"
    return Mishap(what, case.world, begin_s, begin_s + seconds, video=imu, imu=not imu)


def hard_knock(case: Case) -> Mishap:
    """Change velocity, in a horizontal direction drawn from the seed, and body rates, as many rad/s as m/s, from tick to tick."""
    size, begin_s, rng = 3.0 if case.size is None else case.size, case.begin_s(), case.drawn(23)
    bearing, axis = rng.uniform(0, 2 * np.pi), rng.normal(size=3)
    dv_w, domega_b = size * np.array([np.cos(bearing), np.sin(bearing), 0.0]), size * axis / np.linalg.norm(axis)
    return Mishap(
        f"knock of {size:g} m/s at {begin_s:.1f} s", case.world, begin_s, knock=StateChange(np.zeros(3), dv_w, domega_b)
    )


def standstill(case: Case) -> Mishap:
    """Suspend the simulator, whose time stands meanwhile."""
    begin_s, seconds = case.begin_s(), 0.5 if case.size is None else case.size
    return Mishap(f"the simulator stands for {seconds:g} s at {begin_s:.1f} s", case.world, begin_s, stands_s=seconds)


MISHAPS: dict[str, Callable[[Case], Mishap]] = {
    "none": no_mishap,
    "gate": displaced_gate,
    "pad": displaced_pad,
    "video": partial(silence, usual_s=3.0, imu=False),
    "imu": partial(silence, usual_s=0.3, imu=True),
    "knock": hard_knock,
    "standstill": standstill,
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


@dataclass(frozen=True)
class Flown:
    """Outcome of a race."""

    race: Race
    cause: str  # human-readable; empty after a finish
    retries: list[Retry]

    @property
    def finished(self) -> bool:
        return self.race.status is RunStatus.FINISHED

    @property
    def time_s(self) -> float:
        """Race time, s; NaN unless it finished."""
        return self.race.gate_times_s[-1] if self.finished else math.nan

    def __str__(self) -> str:
        again = "".join(f"; gate {one.gate} again at {one.time_s:.1f} s: {one.why}" for one in self.retries)
        margin = f", least margin {min(self.race.gate_margins_m):.2f} m" if self.race.gate_margins_m else ""
        passed = f"{len(self.race.gate_times_s)} gates, {self.cause}"
        return (f"{self.time_s:.3f} s" if self.finished else passed) + margin + again


def fly(case: Case, mishap: Mishap, recovers: bool) -> Flown:
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
    cause = race.cause if race.over else pilot.cause or "finished by its own estimate only"
    return Flown(race, cause, pilot.guidance.passages.retries)


def summary(flown: dict[str, list[Flown]]) -> str:
    """Return one row: finished races with and without recovery, and time and least margin where both finish."""
    counts = [f"{sum(one.finished for one in races)} of {len(races)} {name}" for name, races in flown.items()]
    both = [pair for pair in zip(*flown.values(), strict=True) if all(one.finished for one in pair)]
    if len(flown) < 2 or not both:
        return ", ".join(counts)
    times_s = np.array([[one.time_s for one in pair] for pair in both])
    margins_m = np.array([[min(one.race.gate_margins_m) for one in pair] for pair in both])
    slower = int((times_s[:, 0] > times_s[:, 1] + 1e-3).sum())
    margins = f"least {_pair(margins_m.min(0), 2)} m, mean {_pair(margins_m.mean(0), 2)} m"
    lost = f"{slower} slower by up to {np.diff(times_s[:, ::-1]).max():.2f} s"
    return f"{', '.join(counts)}; {len(both)} common: mean {_pair(times_s.mean(0))} s, {lost}, margins: {margins}"


def _pair(values: Array, digits: int = 3) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def run(arguments: argparse.Namespace) -> int:
    vehicle = load_vehicle("dcl")
    settings = {"on": [True], "off": [False], "both": [True, False]}[arguments.recovery]
    for name in arguments.tracks:
        track = load_track(name)
        if arguments.gate is not None and not -len(track.gates) <= arguments.gate < len(track.gates):
            raise UserError(f"--gate {arguments.gate}: {name} has {len(track.gates)} gates")
        plan = find_or_make_plan(arguments.plans, track, vehicle, PlanOptions(), None)
        flown: dict[str, list[Flown]] = {"with recovery" if on else "without": [] for on in settings}
        for seed in range(*arguments.seeds):
            world = arguments.world if arguments.world == "as_believed" else f"{arguments.world}:{seed}"
            case = Case(track, vehicle, plan, resolve(world, track, vehicle), arguments.size, arguments.gate, seed)
            mishap = MISHAPS[arguments.mishap](case)
            for on, (setting, races) in zip(settings, flown.items(), strict=True):
                races.append(fly(case, mishap, on))
                print(f"{name} seed {seed} {mishap.what}, {setting}: {races[-1]}", flush=True)
        print(f"{name}, {arguments.mishap}, {arguments.world}: {summary(flown)}", flush=True)
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tracks", nargs="+", help="names or YAML files")
    arguments.add_argument("--mishap", choices=MISHAPS, default="gate", help="what goes wrong (default: gate)")
    arguments.add_argument(
        "--size", type=float, help="of the mishap, in m, s, or m/s (default: 2 m, 1 m, 3 s, 0.3 s, 3 m/s)"
    )
    arguments.add_argument("--gate", type=int, help="number of the displaced gate (default: alternates)")
    arguments.add_argument("--world", default="unknown", help="name of the world (default: unknown)")
    arguments.add_argument("--seeds", nargs=2, type=int, default=(1300, 1320), metavar=("FIRST", "END"))
    arguments.add_argument("--recovery", choices=("on", "off", "both"), default="both")
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
