"""Flights with and without replanning: python benchmarks/replanning.py vq1 --worlds unknown drag_scale=0.6 --seeds 100 110

With projected camera and IMU in lock-step, profile `dcl`, controller `mpcc`; a requested plan arrives after a fixed simulated
time. `--latency` instead replans the rest of the course from points all along the plan, for vehicles with other drag, and
prints the CPU time.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.benchmarks.campaign.flight import NoLog
from gate_racer.benchmarks.campaign.measure import EvaluationRecorder
from gate_racer.estimation.registry import DEFAULT, make_estimator
from gate_racer.link.profile import load_profile
from gate_racer.mpc.make import make_controller
from gate_racer.perception.association import Associator
from gate_racer.pilot.drivers.lockstep import fly_lockstep
from gate_racer.pilot.drivers.lockstep_perception import open_perception
from gate_racer.pilot.flight import Replan
from gate_racer.pilot.make import make_racer
from gate_racer.pilot.replanning.handover import Replanning
from gate_racer.pilot.replanning.planners import InlinePlanner
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.planner.replanning import Remainder, Replanner
from gate_racer.sim.worlds.deviations import AS_BELIEVED
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.errors import exit_code
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

FROM_S, EVERY_S = 0.6, 0.4  # s of plan time, first point and spacing of the points from which replanning is timed
DRAGS = (0.6, 0.8, 1.0, 1.3)  # factors on the quadratic drag


@dataclass(frozen=True)
class Flight:
    """Result of one flight."""

    finished: bool
    time_s: float
    margin_m: float
    replans: list[Replan]


def fly(track: Track, vehicle: Vehicle, plan: Plan, world: World, seed: int, again: bool) -> Flight:
    """Fly once, with replanning if `again`."""
    profile, associator = load_profile("dcl"), Associator(track.gates, vehicle.camera)
    estimator = make_estimator(DEFAULT, track.start, vehicle, associator.appearance)
    controller = make_controller("mpcc", plan, vehicle, track)
    replanning = Replanning(controller, plan, track, vehicle, PlanOptions(), InlinePlanner(vehicle)) if again else None
    pilot = make_racer(track, vehicle, profile, estimator, associator, controller, replanning=replanning)
    perception = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    recorder = EvaluationRecorder(NoLog(), track, estimator)
    _, verdict = fly_lockstep(pilot, world, profile, perception, seed, 1, recorder, lambda _: None)
    times, margins = verdict.gate_times_s or [np.nan], verdict.gate_margins_m or [np.nan]
    return Flight(verdict.status == "finished", times[-1], min(margins), pilot.guidance.passages.replans)


def world_of(named: str, seed: int, track: Track, vehicle: Vehicle) -> World:
    """Return the world of a plant deviation such as `drag_scale=0.6`, or of a world's file with the flight's seed."""
    name, _, value = named.partition("=")
    if not value:
        return resolve(f"{named}:{seed}" if named != "as_believed" else named, track, vehicle)
    plant = replace(AS_BELIEVED.plant, **{name: float(value)})
    return World.of(named, replace(AS_BELIEVED, plant=plant), track, vehicle)


def row(name: str, flights: list[Flight], common: list[int]) -> str:
    """Return one line of the table; times are means over the flights that finish both with and without replanning."""
    requests = [one for flight in flights for one in flight.replans]
    taken = sum(one.taken_s is not None for one in requests)
    mean = np.mean([flights[k].time_s for k in common]) if common else np.nan
    done = [flight for flight in flights if flight.finished]
    least = min((flight.margin_m for flight in done), default=np.nan)
    return (
        f"{name:<24} {len(done)} of {len(flights)}  {mean:7.3f} s  {least:5.2f} m  adopted {taken} of {len(requests)}"
    )


def rests(track: Track, vehicle: Vehicle, plan: Plan) -> Iterator[tuple[float, int, bool]]:
    """Yield CPU time (s), iterations and success of replanning from points all along a plan."""
    replan, (t, x, _) = Replanner(vehicle), plan.dense(vehicle, 8)
    for from_s in np.arange(FROM_S, plan.total_time - FROM_S, EVERY_S):
        at = np.array([np.interp(from_s, t, column) for column in x.T])
        for drag in DRAGS:
            other = replace(vehicle, drag_quadratic_1_m=drag * vehicle.drag_quadratic_1_m)
            begin = time.process_time()
            done = replan(Remainder(plan, float(from_s), at, track, other, PlanOptions()))
            yield time.process_time() - begin, done.iterations, done.ok


def run(arguments: argparse.Namespace) -> int:
    """Fly with and without replanning, or time it; returns the exit code."""
    vehicle = load_vehicle("dcl")
    for name in arguments.tracks:
        track = load_track(name)
        plan = find_or_make_plan(arguments.plans, track, vehicle, PlanOptions(), None)
        if arguments.latency:
            cpu_s, iterations, ok = (np.array(column) for column in zip(*rests(track, vehicle, plan), strict=True))
            print(
                f"{track.name}: {ok.sum()} of {len(ok)} replanning requests solved, {np.median(iterations):.0f} iterations,"
                f" CPU {np.median(cpu_s):.2f} s median, 95th percentile {np.quantile(cpu_s, 0.95):.2f} s,"
                f" greatest {cpu_s.max():.2f} s"
            )
            continue
        for world in arguments.worlds:
            flown: dict[bool, list[Flight]] = {False: [], True: []}
            for seed in range(*arguments.seeds):
                for again, flights in flown.items():
                    true = world_of(world, seed, track, vehicle)
                    flights.append(fly(track, vehicle, plan, true, seed, again))
            pairs = enumerate(zip(*flown.values(), strict=True))
            common = [k for k, both in pairs if all(one.finished for one in both)]
            print(row(f"{track.name} {world}", flown[False], common), flush=True)
            print(row("  --replan", flown[True], common), flush=True)
    return 0


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tracks", nargs="+", help="names or YAML files")
    arguments.add_argument(
        "--worlds", nargs="+", default=["as_believed"], help="files, or deviations of the plant as NAME=VALUE"
    )
    arguments.add_argument("--seeds", nargs=2, type=int, default=(100, 110), metavar=("FIRST", "END"))
    arguments.add_argument("--latency", action="store_true", help="only time replanning, without flights")
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
