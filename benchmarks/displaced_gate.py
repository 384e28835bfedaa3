"""Races with one gate displaced by 2 m, unknown to the pilot: python benchmarks/displaced_gate.py vq1 vq2 --seeds 200 225

Projected camera and IMU in lock-step, profile `dcl`, controller `mpcc`, otherwise as believed. The displaced gate alternates
with the seed, which also draws the horizontal direction. `--no-retry` disables repeated attempts and the search for the gate.
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would hide the rooms of their names

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.campaign.flight import NoLog
from estimation.registry import DEFAULT, make_estimator
from link.profile import Profile, load_profile
from mpc.make import make_controller
from perception.association import Associator
from pilot.drivers.lockstep import EmbeddedLink, fly_link
from pilot.drivers.lockstep_perception import open_perception
from pilot.flight import EndReason, Retry
from pilot.make import Racer, make_racer
from pilot.pilot import AnyPilot
from pilot.records.recorder import Recorder
from planner.options import PlanOptions
from planner.plan import Plan
from planner.planning import find_or_make_plan
from sim.referee import RunStatus
from sim.simulator import Simulator
from sim.worlds.deviations import AS_BELIEVED, CourseDeviation
from sim.worlds.world import World
from tracks.track import Track, load_track
from vehicle.errors import exit_code
from vehicle.vehicle import Vehicle, load_vehicle

STILL = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Flight:
    """Outcome of a race."""

    status: str
    cause: str
    time_s: float  # s, race time; NaN unless it finished
    retries: list[Retry]

    @property
    def finished(self) -> bool:
        return self.status == "finished"


def displaced_world(track: Track, vehicle: Vehicle, seed: int, by_m: float) -> tuple[World, int]:
    """Return the world of a seed, and the index of its displaced gate; `by_m`: displacement, m."""
    solid = [k for k, gate in enumerate(track.gates) if not gate.is_ball]
    gate, bearing = solid[seed % len(solid)], np.random.default_rng([seed, 21]).uniform(0, 2 * np.pi)
    step = (by_m * float(np.cos(bearing)), by_m * float(np.sin(bearing)), 0.0)
    moved = tuple(step if k == gate else STILL for k in range(len(track.gates)))
    deviations = replace(AS_BELIEVED, course=CourseDeviation(gate_moved_m=moved))
    return World.of(f"gate {gate} off by {by_m:g} m", deviations, track, vehicle), gate


def default_racer(track: Track, vehicle: Vehicle, plan: Plan, profile: Profile, retry: bool) -> Racer:
    """Return the pilot with the default estimator and `mpcc`; `retry`: whether it repeats missed gates and recovers."""
    associator = Associator(track.gates, vehicle.camera)
    estimator = make_estimator(DEFAULT, track.start, vehicle, associator.appearance)
    controller = make_controller("mpcc", plan, vehicle, track)
    return make_racer(track, vehicle, profile, estimator, associator, controller, retry=retry)


def fly(track: Track, vehicle: Vehicle, plan: Plan, world: World, seed: int, retry: bool) -> Flight:
    """Fly one race, until the referee ends it; `retry`: whether a missed gate is repeated."""
    profile = load_profile("dcl")
    pilot = default_racer(track, vehicle, plan, profile, retry)
    eye = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    simulator = Simulator(world, profile, seed, 1)

    def leave(pilot: AnyPilot) -> None:
        if simulator.referee.race.over:
            pilot.abort(EndReason.INTERRUPTED, "the race is over")

    fly_link(pilot, profile, EmbeddedLink(simulator, eye), Recorder(NoLog()), leave, [])
    race = simulator.referee.race
    time_s = race.gate_times_s[-1] if race.status is RunStatus.FINISHED else float("nan")
    cause = race.cause if race.over else pilot.cause
    return Flight(race.status, cause, time_s, pilot.guidance.passages.retries)


def run(arguments: argparse.Namespace) -> int:
    vehicle = load_vehicle("dcl")
    for name in arguments.tracks:
        track = load_track(name)
        plan = find_or_make_plan(arguments.plans, track, vehicle, PlanOptions(), None)
        flights = []
        for seed in range(*arguments.seeds):
            world, gate = displaced_world(track, vehicle, seed, arguments.by)
            flight = fly(track, vehicle, plan, world, seed, not arguments.no_retry)
            flights.append(flight)
            repeated = "; ".join(f"gate {one.gate} again at {one.time_s:.1f} s: {one.why}" for one in flight.retries)
            print(f"{name} seed {seed} gate {gate}: {flight.cause or f'{flight.time_s:.3f} s'} {repeated}", flush=True)
        done = [flight for flight in flights if flight.finished]
        at_once = sum(not flight.retries for flight in done)
        median_s = float(np.median([flight.time_s for flight in done])) if done else float("nan")
        print(f"{name}: {len(done)} of {len(flights)} finish, {at_once} at first, median {median_s:.3f} s", flush=True)
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tracks", nargs="+", help="names or YAML files")
    arguments.add_argument("--by", type=float, default=2.0, metavar="M", help="displacement, m (default: 2)")
    arguments.add_argument("--seeds", nargs=2, type=int, default=(200, 225), metavar=("FIRST", "END"))
    arguments.add_argument(
        "--no-retry", action="store_true", help="disable repeated attempts and the search for displaced gates"
    )
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
