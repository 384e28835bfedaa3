"""Comparison of gate margins between configurations: python benchmarks/gate_margins.py tracks/vq1.yaml --settings 1 projected

Margin as in Swift: distance from the vehicle's centre to the closest point of the gate as it crosses the gate's plane. Flies
by the engine of `race-bench`, prints each gate's mean and the least margin, and compares every configuration with the first on
common seeds.
"""

import argparse
import sys

import numpy as np

from gate_racer.benchmarks.campaign.cli import add_choices, fly, write_cases
from gate_racer.benchmarks.campaign.compare import against_first, table
from gate_racer.benchmarks.campaign.store import Row
from gate_racer.benchmarks.lap_times import draw, grouped
from gate_racer.vehicle.errors import exit_code


def by_gate(rows: list[Row]) -> list[list[float]]:
    """Return the margins at each gate of the course over the flights that passed it, m."""
    gates = max(row.outcome.gates_total for row in rows)
    return [[row.outcome.margin_m[k] for row in rows if k < len(row.outcome.margin_m)] for k in range(gates)]


def line(rows: list[Row]) -> str:
    """Return mean and least margin over all gates, and the gate of the least, as text."""
    gates = by_gate(rows)
    passed = [m for some in gates for m in some]
    if not passed:
        return "no gate passed"
    low = [min(some, default=np.inf) for some in gates]
    per_gate = "  ".join(f"{np.mean(some):.2f}" if some else "-" for some in gates)
    return f"mean {np.mean(passed):.3f} m, least {min(passed):.3f} m at gate {int(np.argmin(low))}; by gate {per_gate}"


def run(arguments: argparse.Namespace) -> int:
    """Fly the configurations, and print and draw their margins; returns the exit code."""
    _, rows = fly(arguments, arguments.tracks)
    for (course, name), some in grouped(rows).items():
        print(f"{course}; {name}: {line(some)}")
    print(f"\n{table(*found)}" if (found := against_first(rows, ("share finished", "least margin m"))) else "")
    write_cases(arguments.out / "gate_margins.json", rows)
    draw(arguments.out / "gate_margins.png", rows, lambda outcome: outcome.margin_m, "margin [m]")
    return 0


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Gate margins of configurations side by side.")
    parser.add_argument("tracks", nargs="*", default=["tracks/vq1.yaml"])
    add_choices(parser, ["projected"])
    sys.exit(exit_code(lambda: run(parser.parse_args())))


if __name__ == "__main__":
    main()
