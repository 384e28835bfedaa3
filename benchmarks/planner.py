"""Quality and speed of the planner: published problems with published results, and scaling with the number of gates.

python benchmarks/planner.py --problems ../shared/data/planner_problem
"""

import argparse
import json
import resource
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.course.course import resolve
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.peers import read_problem
from gate_racer.planner.search.multistart import plans
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

# Trajectory time / CPU time, s, of peers on the same problems, one core. The last integrates by Euler steps: not feasible.
PEERS = ("CPC", "TOGT AOS", "AOS + refine 0.01 s", "Fast-fly 0.3 m (Euler)")
MARKS = {
    "uzh3": ("4.058 / 63.7", "4.197 / 0.42", "4.0453 / 17.8", "4.068 / 1.7"),
    "uzh7": ("7.392 / 168", "7.607 / 1.64", "7.3915 / 29.1", "7.412 / 5.6"),
    "uzh19": ("18.550 / 649", "17.944 / 6.6", "17.6309 / 99.2", "17.648 / 13.1"),
    "fastfly7": ("-", "8.605 / 1.19", "8.2794 (0.02 s) / 15.8", "8.278 / 3.2"),
}

COUNTS = (7, 19, 57, 200)  # gates of the courses for scaling


def measure(track: Track, vehicle: Vehicle, options: PlanOptions) -> dict:
    """Return time of the certified plan, CPU time of the solution (set-up included, all processes), s, and peak memory, MiB."""
    begin, wall = _cpu(), time.perf_counter()
    task = Task(track, vehicle, options)
    plan, effort = next(plans(resolve(task)))
    cpu, wall = _cpu() - begin, time.perf_counter() - wall
    certificate = certify(plan, task, effort)
    return {
        "track": track.name,
        "gates": len(track.gates),
        "status": certificate.status,
        "time_s": certificate.total_time_s,
        "solve_s": wall,
        "cpu_s": cpu,
        "iterations": certificate.iterations,
        "step_defect_m": certificate.step_defect_m,
        "step_defect_m_s": certificate.step_defect_m_s,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _cpu() -> float:
    """Return the CPU time of this process and of its finished children, s."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def winding(gates: int, seed: int) -> Track:
    """Draw a course of `gates` gates, 8 to 14 m apart, with turns of up to 50 degrees between consecutive ones."""
    rng = np.random.default_rng(seed)
    p, heading, result = np.zeros(3), 0.0, []
    for _ in range(gates):
        heading += rng.uniform(-50, 50)
        step = rng.uniform(8, 14)
        p = p + [step * np.cos(np.radians(heading)), step * np.sin(np.radians(heading)), rng.uniform(-2, 2)]
        result.append(Gate((p[0], p[1], p[2]), heading, 0.0, 1.5, 2.7, 0.26))
    bounds = Bounds((-5e3, -5e3, -5e3), (5e3, 5e3, 5e3))
    return Track(f"winding{gates}", Start((0.0, 0.0, 0.0), 0.0), bounds, tuple(result), False, None)


def main() -> None:
    """Time the planner on published and on winding courses, and write tables and plot."""
    parser = argparse.ArgumentParser(description="Planning time and quality beside published results.")
    parser.add_argument("--problems", type=Path, help="folder of published planning problems")
    parser.add_argument("--gates", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--out", type=Path, default=Path("logs"))
    a = parser.parse_args()
    rows = []
    if a.problems:
        print(f"{'problem':10s} {'ours: s / CPU s':>18s}  " + "  ".join(f"{name:>22s}" for name in PEERS))
        for name, marks in MARKS.items():
            row = measure(*read_problem(a.problems / f"{name}.yaml"))
            rows.append(row)
            ours = f"{row['time_s']:.4f} / {row['cpu_s']:.2f}"
            print(f"{name:10s} {ours:>18s}  " + "  ".join(f"{mark:>22s}" for mark in marks), flush=True)
    print(f"\n{'gates':>5s} {'time s':>8s} {'CPU s':>8s} {'per gate':>8s} {'MiB':>6s}  status")
    growth = []
    for count in a.gates:
        row = measure(winding(count, 1), load_vehicle("dcl"), PlanOptions())
        growth.append(row)
        per_gate = row["cpu_s"] / count
        numbers = f"{count:5d} {row['time_s']:8.2f} {row['cpu_s']:8.2f} {per_gate:8.3f} {row['memory_mib']:6.0f}"
        print(f"{numbers}  {row['status']}", flush=True)
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "planner.json").write_text(json.dumps(rows + growth, indent=2))
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    axis.loglog([row["gates"] for row in growth], [row["cpu_s"] for row in growth], "o-")
    axis.set(xlabel="gates", ylabel="CPU [s]")
    axis.grid(alpha=0.3, which="both")
    figure.savefig(a.out / "planner.png", dpi=90)


if __name__ == "__main__":
    main()
