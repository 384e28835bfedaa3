"""Races in which the video falls silent: python benchmarks/video_silence.py vq1 --seconds 3 --begin 0.8 1.6 --seeds 730 734

Projected camera and IMU in lock-step, profile `dcl`, controller `mpcc`; the seed also draws the world. `--no-retry` disables
the recovery of a lost estimate, the search for displaced gates and repeated attempts.
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would hide the rooms of their names

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.campaign.flight import NoLog
from benchmarks.displaced_gate import default_racer
from link.messages import Telemetry
from link.profile import load_profile
from perception.roi import SearchWindow
from pilot.drivers.lockstep import EmbeddedLink, fly_link
from pilot.drivers.lockstep_perception import LockstepPerception, open_perception
from pilot.flight import Retry
from pilot.pilot import AnyPilot
from pilot.records.recorder import Recorder
from planner.options import PlanOptions
from planner.plan import Plan
from planner.planning import find_or_make_plan
from sim.referee import Race, RunStatus
from sim.simulator import Simulator
from sim.worlds.distribution import resolve
from tracks.track import Track, load_track
from vehicle.errors import exit_code
from vehicle.vehicle import Vehicle, load_vehicle


class SilentVideo(EmbeddedLink):
    """Lock-step link without images for `seconds` from `begin` s after GO."""

    def __init__(self, simulator: Simulator, eye: LockstepPerception, pilot: AnyPilot, begin: float, seconds: float):
        super().__init__(simulator, eye)
        self._pilot, self._begin, self._end = pilot, begin, begin + seconds

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        received, go_t = super().tick(window), self._pilot.go_t
        if go_t is not None and self._begin <= self.t - go_t < self._end:
            self.images = []
        return received


def fly(
    track: Track, vehicle: Vehicle, plan: Plan, world_name: str, seed: int, begin: float, seconds: float, retry: bool
) -> tuple[Race, list[Retry]]:
    """Fly one race; `retry`: whether a lost estimate is recovered and missed gates are repeated."""
    profile = load_profile("dcl")
    pilot = default_racer(track, vehicle, plan, profile, retry)
    world = resolve(world_name if world_name == "as_believed" else f"{world_name}:{seed}", track, vehicle)
    simulator = Simulator(world, profile, seed, 1)
    eye = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    link = SilentVideo(simulator, eye, pilot, begin, seconds)
    fly_link(pilot, profile, link, Recorder(NoLog()), lambda _: None, [])
    return simulator.referee.race, pilot.guidance.passages.retries


def run(arguments: argparse.Namespace) -> int:
    vehicle = load_vehicle("dcl")
    for name in arguments.tracks:
        track = load_track(name)
        plan = find_or_make_plan(arguments.plans, track, vehicle, PlanOptions(), None)
        finished, seeds = 0, range(*arguments.seeds)
        for k, seed in enumerate(seeds):
            begin = arguments.begin[k % len(arguments.begin)]
            race, retries = fly(
                track, vehicle, plan, arguments.world, seed, begin, arguments.seconds, not arguments.no_retry
            )
            finished += race.status is RunStatus.FINISHED
            repeated = "; ".join(f"gate {one.gate} at {one.time_s:.1f} s: {one.why}" for one in retries)
            outcome = race.cause or f"{race.gate_times_s[-1]:.3f} s"
            print(f"{name} seed {seed}, {arguments.seconds:g} s from {begin:g} s: {outcome} {repeated}", flush=True)
        print(f"{name}: {finished} of {len(seeds)} finish", flush=True)
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tracks", nargs="+", help="names or YAML files")
    arguments.add_argument("--seconds", type=float, default=3.0, metavar="S", help="length of the silence (default: 3)")
    arguments.add_argument("--begin", type=float, nargs="+", default=[2.0], metavar="S", help="since GO, in turn")
    arguments.add_argument("--seeds", nargs=2, type=int, default=(700, 708), metavar=("FIRST", "END"))
    arguments.add_argument("--world", default="unknown", help="name of the world (default: unknown)")
    arguments.add_argument("--no-retry", action="store_true", help="disable recovery and repeated attempts")
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
