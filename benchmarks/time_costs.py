"""Time that each constraint costs a plan: python benchmarks/time_costs.py vq1 vq2 --see 0.5 0.2

One constraint at a time is relaxed; the last rows relax all of them, then omit the dynamics of attitude and thrust altogether
(the point mass, a lower bound).
"""

import argparse
import sys
from dataclasses import replace

import numpy as np

from gate_racer.planner.course.course import resolve
from gate_racer.planner.models import TURNING
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem.point_mass import solve_point_mass
from gate_racer.planner.task import Task
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.errors import exit_code
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

NEARLY = 0.02  # m, margin that leaves the certificate room for its tolerances
FREE = PlanOptions(reserve=1.0, margin_m=NEARLY, see=0.0)


def variants(vehicle: Vehicle, usual: PlanOptions) -> dict[str, tuple[Vehicle, PlanOptions]]:
    """Return vehicle and options of each variant by name, the unrelaxed one first."""
    free, unmixed = vehicle, replace(vehicle, mixer=None)
    if vehicle.mixer is not None:  # of which a plan's share is the whole torque of the real one
        free = replace(vehicle, mixer=vehicle.mixer.scaled(1 / TURNING))
    return {
        "as planned": (vehicle, usual),
        "all of the thrust and rates": (vehicle, replace(usual, reserve=1.0)),
        "all of the torque": (free, usual),
        "torque independent of thrust": (unmixed, usual),
        f"margin {NEARLY:g} m": (vehicle, replace(usual, margin_m=NEARLY)),
        "no view": (vehicle, replace(usual, see=0.0)),
        "all of thrust, rates and torque, no margin, no view": (free, FREE),
        "and torque independent of thrust": (unmixed, FREE),
    }


def point_mass_s(track: Track, vehicle: Vehicle) -> float:
    """Return the time of the point mass, s; NaN if it was not solved."""
    found = solve_point_mass(resolve(Task(track, vehicle, replace(FREE, margin_m=0.0))))
    return found.total_time if found.solved else float("nan")


def planned_s(track: Track, vehicle: Vehicle, options: PlanOptions) -> float:
    """Return the time of the certified plan, s; NaN without one."""
    plan, certificate = make_plan(track, vehicle, options)
    return plan.total_time if certificate.ok else float("nan")


def run(arguments: argparse.Namespace) -> int:
    """Plan and print; returns the exit code."""
    vehicle = load_vehicle(arguments.vehicle)
    for name in arguments.tracks:
        track = load_track(name)
        for see in arguments.see:
            usual = np.nan
            for label, (flown, options) in variants(vehicle, PlanOptions(see=see)).items():
                time_s = planned_s(track, flown, options)
                usual = time_s if np.isnan(usual) else usual
                print(f"{track.name}, view {see:g}: {label:<52} {time_s:7.3f} s {time_s - usual:+7.3f} s", flush=True)
        print(f"{track.name}: {'point mass':<62} {point_mass_s(track, vehicle):7.3f} s", flush=True)
    return 0


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tracks", nargs="+", help="names or YAML files")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file (default: dcl)")
    arguments.add_argument(
        "--see", nargs="+", type=float, default=[PlanOptions().see], help="shares of the legs in view"
    )
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
