"""Sensitivity of the classical detector to its thresholds, each in turn set to 0.8 and 1.25 times its value.

python benchmarks/detector_thresholds.py                         all tracks, look `race`
python benchmarks/detector_thresholds.py --looks race mixed --frames 100

Prints those that change the number of missed (from 12 px) or false gates by more than one, or the median corner error by more
than a twentieth, the worst first; the others are flat. `benchmarks/shots.py` defines missed and false gates.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import cv2
import numpy as np

from gate_racer.benchmarks.perception import ROOT, DetectionTally
from gate_racer.benchmarks.shots import BenchmarkShot, flight
from gate_racer.perception.classical.config import ClassicalConfig
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.errors import exit_code
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

FACTORS = (0.8, 1.25)  # on each threshold
LEAST_PX = 12.0  # px, least size of the openings whose recall is reported
ERROR_CHANGE = 0.05  # relative change of the median corner error that is reported


@dataclass(frozen=True, slots=True)
class Quality:
    """Detection quality of one configuration."""

    demanded: int
    missed: int
    false: int
    error_px: float  # median corner error

    def differs(self, other: "Quality") -> bool:
        """Check whether the difference is large enough to report."""
        counts = abs(self.missed - other.missed) > 1 or abs(self.false - other.false) > 1
        return counts or abs(self.error_px / other.error_px - 1) > ERROR_CHANGE


def varied(config: ClassicalConfig) -> Iterator[tuple[str, float, ClassicalConfig]]:
    """Yield name, value and configuration for every number of every stage times every factor."""
    for stage in fields(config):
        part = getattr(config, stage.name)
        for one in fields(part):
            value = getattr(part, one.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            for factor in FACTORS:
                other = max(round(value * factor), 1) if isinstance(value, int) else value * factor
                yield (
                    f"{stage.name}.{one.name}",
                    other,
                    replace(config, **{stage.name: replace(part, **{one.name: other})}),
                )


def quality(config: ClassicalConfig, vehicle: Vehicle, flights: list[list[BenchmarkShot]]) -> Quality:
    """Return the quality over all flights, each with a new detector."""
    demanded = missed = false = 0
    errors: list[np.ndarray] = []
    for shots in flights:
        tally = DetectionTally("", ColourDetector(vehicle.camera, config), np.random.default_rng(0))
        for shot in shots:
            tally.look(shot, None)
        large = [one for one in tally.demanded if one.opening.size_px >= LEAST_PX]
        hits = [np.linalg.norm(one.errors_px[one.compared], axis=-1) for one in large if one.errors_px is not None]
        demanded, missed, false = demanded + len(large), missed + len(large) - len(hits), false + tally.false
        errors += hits
    return Quality(demanded, missed, false, float(np.median(np.concatenate(errors))))


def main() -> None:
    """Print the effect of each threshold that has one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=60, help="number of frames of each track and look")
    parser.add_argument("--tracks", nargs="*", default=["figure8", "splits_swift", "vq1", "vq2"])
    parser.add_argument("--looks", nargs="*", default=["race"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    vehicle, flights = load_vehicle("dcl"), []
    for look in arguments.looks:
        for course in arguments.tracks:
            track = load_track(ROOT / f"tracks/{course}.yaml")
            plan = find_or_make_plan(ROOT / "plans", track, vehicle, PlanOptions(), None)
            flights.append(list(flight(plan, track, vehicle, look, arguments.seed, arguments.frames)))
    config = ClassicalConfig()
    base = quality(config, vehicle, flights)
    print(f"as configured: {base.missed} of {base.demanded} missed, {base.false} false, {base.error_px:.3f} px")
    rows = [(name, value, quality(other, vehicle, flights)) for name, value, other in varied(config)]
    effective = [row for row in rows if row[2].differs(base)]
    names = len({name for name, *_ in rows})
    for name, value, found in sorted(effective, key=lambda row: -(row[2].missed + row[2].false)):
        print(f"{name:36s} {value:8.3g}: {found.missed:4d} missed, {found.false:4d} false, {found.error_px:.3f} px")
    print(f"{names - len({name for name, *_ in effective})} of {names} thresholds have no effect")
    if arguments.json:
        report = [{"threshold": name, "value": value, "missed": q.missed, "false": q.false, "error_px": q.error_px}
                  for name, value, q in rows]  # fmt: skip
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(exit_code(main))
