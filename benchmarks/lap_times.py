"""Comparison of lap times of configurations: python benchmarks/lap_times.py tracks/vq1.yaml --controllers tracking --seeds 20

Flies by the engine of `race-bench`, prints race and lap times against the plan and the time lost per leg, and compares every
configuration with the first on common seeds.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from gate_racer.benchmarks.campaign.case import Outcome
from gate_racer.benchmarks.campaign.cli import add_choices, fly, write_cases
from gate_racer.benchmarks.campaign.compare import against_first, table
from gate_racer.benchmarks.campaign.report import course_of, lost_s, name_of
from gate_racer.benchmarks.campaign.store import Row
from gate_racer.vehicle.errors import exit_code


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Group flights by course and configuration."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((course_of(row), name_of(row)), []).append(row)
    return groups


def line(rows: list[Row]) -> str:
    """Return the times of one configuration over its finished flights, as text."""
    done = [row.outcome for row in rows if row.outcome.finished]
    text = f"finished {len(done)} of {len(rows)}"
    if not done:
        return text
    race = np.array([o.race_s for o in done])
    text += f", {race.mean():.3f} s +- {race.std():.3f}, planned {done[0].planned_s:.3f}"
    text += f", point mass {done[0].bound_s:.3f}" if done[0].bound_s else ""
    flying = [min(o.lap_s[1:]) for o in done if len(o.lap_s) > 1]
    text += f"; first lap {np.mean([o.lap_s[0] for o in done]):.3f}" if flying else ""
    text += f", best flying lap {np.mean(flying):.3f}" if flying else ""
    lost = np.mean([lost_s(row) for row in rows if row.outcome.finished], axis=0)
    worst = int(lost.argmax())
    return text + f"; loses {lost.sum():+.3f} s, most on leg {worst} ({lost[worst]:+.3f})"


def draw(path: Path, rows: list[Row], value: Callable[[Outcome], list[float]], label: str) -> None:
    """Plot values as dots, one column per course and configuration."""
    groups = grouped(rows)
    figure, axis = plt.subplots(figsize=(4 + len(groups), 4.5), layout="constrained")
    for k, some in enumerate(groups.values()):
        found = [number for row in some for number in value(row.outcome)]
        axis.plot(k + np.linspace(-0.15, 0.15, len(found)), found, "o", alpha=0.5, markersize=4)
    axis.set_xticks(range(len(groups)), [f"{course}\n{name}" for course, name in groups], fontsize=7)
    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=90)


def race_times(outcome: Outcome) -> list[float]:
    """Return the race time, s, of a finished flight, in a list."""
    return [outcome.race_s] if outcome.race_s is not None else []


def run(arguments: argparse.Namespace) -> int:
    """Fly the configurations, and print and draw their times; returns the exit code."""
    _, rows = fly(arguments, arguments.tracks)
    for (course, name), some in grouped(rows).items():
        print(f"{course}; {name}: {line(some)}")
    print(f"\n{table(*found)}" if (found := against_first(rows, ("share finished", "race time s"))) else "")
    write_cases(arguments.out / "lap_times.json", rows)
    draw(arguments.out / "lap_times.png", rows, race_times, "race time [s]")
    return 0


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Lap times of configurations side by side.")
    parser.add_argument("tracks", nargs="*", default=["tracks/vq1.yaml"])
    add_choices(parser, ["projected"])
    sys.exit(exit_code(lambda: run(parser.parse_args())))


if __name__ == "__main__":
    main()
