"""Calibration of the gate crossings predicted by `planner.uncertainty`: python benchmarks/risk_calibration.py logs/vq1 logs/vq2

Reads campaigns of `race-bench --worlds unknown`. Of all margins of a gate, from the vehicle's centre to the nearest edge, as many
should be below a predicted quantile as the quantile says. Prints these fractions over all gates, with their binomial 95 %
intervals (Clopper and Pearson 1934), and the number of gates at which the fraction lies in the binomial 95 % band about the
predicted one; and, gate by gate, the predicted and flown spread.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom, binomtest

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.common.errors import UserError, exit_code
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import plan_path
from gate_racer.planner.task import Task
from gate_racer.planner.uncertainty.prediction import Crossing, predict
from gate_racer.race.campaign.case import Row, Store
from gate_racer.race.campaign.choice import USUAL, plan_options
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import load_vehicle

LEVELS = (0.001, 0.01, 0.05, 0.16, 0.5)  # probabilities of margins below the predicted quantiles
BAND = 0.95  # probability of the bands
# Uncertainty of the worlds flown, `sim/worlds/unknown.yaml`, where it is smaller than the default: the scale of the map, and the
# gates' offsets, 0.1 m on each axis, independent, so 0.1 m sqrt(1 + 1/4) beyond half of the previous gate's.
FLOWN = Doubt(scale=0.004, map_m=0.112)
AXES = ("right", "down")


def share(predicted: float, by_gate: list[Array]) -> dict[str, float]:
    """Return the fraction of margins below the quantile of a probability and its interval, %, and the gates in the band.

    by_gate: for each gate the predicted probabilities of less than the margins flown.
    """
    hits = [int((u < predicted).sum()) for u in by_gate]
    test = binomtest(sum(hits), sum(map(len, by_gate)))
    found = test.proportion_ci(BAND)
    bands = [binom.interval(BAND, len(u), predicted) for u in by_gate]
    inside = sum(bool(low <= k <= high) for k, (low, high) in zip(hits, bands, strict=True))
    values = {"": 100 * test.statistic, " low": 100 * found.low, " high": 100 * found.high, " in band": inside}
    return {f"{100 * predicted:g} %{what}": value for what, value in values.items()}


def calibrate(
    name: str, rows: list[Row], crossings: tuple[Crossing, ...]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Compare the flights of one plan with its prediction: a row with each `share`, and the spread gate by gate.

    Raises UserError where no gate was passed.
    """
    probabilities, gates = [], []
    for k, one in enumerate(crossings):
        some = [row.outcome for row in rows if k < len(row.outcome.crossing_m)]
        if one.gate.is_ball or not some:
            continue
        probabilities.append(one.below(np.array([outcome.margin_m[k] for outcome in some])))
        off = np.array([outcome.crossing_m[k] for outcome in some]) - one.planned_m
        wrong = np.array([outcome.misjudged_m[k] for outcome in some])
        for i, axis in enumerate(AXES):
            gates.append({
                "flights": name, "gate": k, "axis": axis, "drawn m": one.drawn_m[i], "mean m": off[:, i].mean(),
                "predicted sigma m": np.sqrt(one.cov_across[i, i]), "std m": off[:, i].std(),
                "estimate sigma m": np.sqrt(one.estimate_across[i, i]), "estimate rms m": np.sqrt((wrong[:, i] ** 2).mean()),
            })  # fmt: skip
    if not gates:
        raise UserError(f"{name}: no flight passed a gate")
    finished = sum(row.outcome.finished for row in rows)
    found = {"flights": name, "finished": finished, "of": len(rows), "gates": len(probabilities)}
    for level in LEVELS:
        found |= share(level, probabilities)
    return found, gates


def of_campaign(folder: Path, tracks: dict[str, Track]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the calibration of every plan of a campaign; `tracks` has those that are files. Raises UserError."""
    groups: dict[tuple[str, str, int, str, str], list[Row]] = {}
    for row in Store.existing(folder).rows():
        case = row.case
        groups.setdefault((case.track, case.vehicle, case.laps, case.plan, case.world), []).append(row)
    found = []
    for (name, of, laps, asked, world), rows in groups.items():
        track, vehicle, options = tracks.get(name) or load_track(name), load_vehicle(of), plan_options(asked, laps)
        plan = read_plan(plan_path(folder / "plans" / asked, track, vehicle, options))
        plan.require(track, vehicle)
        prediction = predict(plan, Task(track, vehicle, options), FLOWN)
        found.append(calibrate(f"{name}, {of}, {asked or USUAL}, {world}", rows, prediction.crossings))
    return found


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("campaigns", nargs="+", type=Path, help="campaign folders of race-bench")
    parser.add_argument("--tracks", nargs="+", default=[], metavar="FILE", help="tracks that are files")
    a = parser.parse_args()
    tracks = {track.name: track for track in map(load_track, a.tracks)}
    found = [one for folder in a.campaigns for one in of_campaign(folder, tracks)]
    conclude(
        a.json,
        Result.of("Flown fractions of margins below the predicted quantiles, %", [row for row, _ in found], digits=2),
        Result.of("Predicted and flown crossings", [gate for _, gates in found for gate in gates]),
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
