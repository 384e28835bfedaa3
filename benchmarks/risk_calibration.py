"""Calibration of the gate crossings predicted by `planner.doubt`: python benchmarks/risk_calibration.py logs/vq1 logs/vq2

Reads campaigns of `race-bench --worlds unknown`. Of all margins of a gate, from the vehicle's centre to the nearest edge, as many
should be below a predicted quantile as the quantile says. Prints these fractions over all gates, with their binomial 95 %
intervals (Clopper and Pearson 1934), the number of gates at which the fraction lies in the binomial 95 % band about the
predicted one, and the predicted and flown spread at each gate. Writes JSON and a reliability diagram.
"""

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom, binomtest

from gate_racer.benchmarks.campaign.choice import USUAL, plan_options
from gate_racer.benchmarks.campaign.store import Row, Store
from gate_racer.planner.doubt.prediction import Crossing, predict
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import plan_path
from gate_racer.planner.task import Task
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.command import write_json
from gate_racer.vehicle.doubt import Doubt
from gate_racer.vehicle.errors import UserError, exit_code
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import load_vehicle

LEVELS = (0.001, 0.01, 0.05, 0.16, 0.5)  # probabilities of margins below the predicted quantiles
BAND = 0.95  # probability of the bands
# Uncertainty of the worlds flown, `sim/worlds/unknown.yaml`, where it is smaller than the default: the scale of the map, and the
# gates' offsets, 0.1 m on each axis, independent, so 0.1 m sqrt(1 + 1/4) beyond half of the previous gate's.
FLOWN = Doubt(scale=0.004, map_m=0.112)
DRAWN = (0.16, 0.05)  # levels of which the fractions at each gate are drawn
AXES = ("right", "down")


@dataclass(frozen=True)
class Share:
    """Fraction of n margins below the quantile of this predicted probability."""

    predicted: float
    flown: float
    low: float  # 95 % interval of the fraction
    high: float
    n: int
    gates: int  # number of gates at which the fraction lies in the band

    @property
    def text(self) -> str:
        """Predicted and flown fraction with its interval, in %, and the number of gates in the band."""
        return (
            f"{100 * self.predicted:g} %: {100 * self.flown:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}],"
            f" in the band at {self.gates} gates"
        )


@dataclass(frozen=True)
class GateSpread:
    """Predicted and flown margins and spread at one gate; offsets from the planned crossing, m, right and down."""

    flights: int
    below: list[float]  # fraction of the margins below each quantile of `LEVELS`
    drawn_m: list[float]  # predicted shift by the controller's corridor
    sigma_m: list[float]  # predicted standard deviation, one-sided displacements excluded
    estimate_sigma_m: list[float]  # part of the estimation error in it
    mean_m: list[float]  # flown
    std_m: list[float]
    estimate_rms_m: list[float]  # flown, rms of the estimation error


@dataclass(frozen=True)
class Calibration:
    """Calibration over all flights of a plan."""

    name: str
    flights: int
    finished: int
    margins: list[Share]
    gates: list[GateSpread]


def share(predicted: float, by_gate: list[Array]) -> Share:
    """Return the fraction of margins below a quantile, from the predicted probabilities of less than each, by gate."""
    hits = [int((u < predicted).sum()) for u in by_gate]
    n = sum(map(len, by_gate))
    found = binomtest(sum(hits), n).proportion_ci(BAND)
    inside = sum(in_band(predicted, k, len(u)) for k, u in zip(hits, by_gate, strict=True))
    return Share(predicted, sum(hits) / n, float(found.low), float(found.high), n, inside)


def in_band(predicted: float, hits: int, n: int) -> bool:
    """Return whether so many of n lie in the binomial band about a predicted probability."""
    low, high = binom.interval(BAND, n, predicted)
    return bool(low <= hits <= high)


def calibrate(name: str, rows: list[Row], crossings: tuple[Crossing, ...]) -> Calibration:
    """Compare the flights of one plan with its prediction. Raises UserError where no gate was passed."""
    probabilities, gates = [], []
    for k, one in enumerate(crossings):
        some = [row.outcome for row in rows if k < len(row.outcome.crossing_m)]
        if one.gate.is_ball or not some:
            continue
        u = one.below(np.array([outcome.margin_m[k] for outcome in some]))
        off = np.array([outcome.crossing_m[k] for outcome in some]) - one.planned_m
        wrong = np.array([outcome.misjudged_m[k] for outcome in some])
        below = [float((u < level).mean()) for level in LEVELS]
        predicted = one.drawn_m, *(np.sqrt(np.diag(cov)) for cov in (one.across.cov, one.estimate_across))
        flown = off.mean(axis=0), off.std(axis=0), np.sqrt((wrong**2).mean(axis=0))
        probabilities.append(u)
        gates.append(GateSpread(len(some), below, *(part.tolist() for part in (*predicted, *flown))))
    if not gates:
        raise UserError(f"{name}: no flight passed a gate")
    finished = sum(row.outcome.finished for row in rows)
    return Calibration(name, len(rows), finished, [share(level, probabilities) for level in LEVELS], gates)


def of_campaign(folder: Path, tracks: dict[str, Track]) -> list[Calibration]:
    """Return the calibration of every plan of a campaign.

    Args:
        tracks: tracks by name that are not in `tracks/`.

    Raises:
        UserError: no campaign, or its plans, tracks or vehicles differ from the present ones.
    """
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


def report(one: Calibration) -> str:
    """Return a calibration as text."""
    lines = [
        f"{one.name}: {one.finished} of {one.flights} finished, {one.margins[0].n} margins at {len(one.gates)} gates"
    ]
    lines += [f"  below the quantile of {part.text}" for part in one.margins]
    for k, gate in enumerate(one.gates):
        columns = (getattr(gate, name) for name in list(GateSpread.__dataclass_fields__)[2:])
        for axis, drawn, sigma, seen, mean, std, wrong in zip(AXES, *columns, strict=True):
            lines.append(
                f"  gate {k} {axis:5}: predicted {sigma:.3f} (estimate {seen:.3f}) about {drawn:+.3f},"
                f" flown {std:.3f} (estimate {wrong:.3f}) about {mean:+.3f} m"
            )
    return "\n".join(lines)


def draw(path: Path, found: list[Calibration]) -> None:
    """Plot the reliability diagram of all margins of a plan, and the fractions at each gate with the bands about them."""
    figure, (left, *right) = plt.subplots(1, 1 + len(DRAWN), figsize=(16, 5.5), layout="constrained")
    ends = LEVELS[0] / 2, 1.0
    left.plot(ends, ends, color="black", linewidth=0.8)
    for one in found:
        x, y, low, high = np.array([[part.predicted, part.flown, part.low, part.high] for part in one.margins]).T
        least = np.maximum(y, ends[0])
        left.errorbar(
            x, least, [np.maximum(least - low, 0.0), high - least], marker="o", markersize=3, capsize=2, label=one.name
        )
    left.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="predicted probability of less margin")
    left.set(ylabel="flown fraction, with binomial 95 % interval")
    left.legend(fontsize=6)
    for axes, level in zip(right, DRAWN, strict=True):
        at = 0
        for one in found:
            numbers = np.arange(at, at + len(one.gates))
            flown = [gate.below[LEVELS.index(level)] for gate in one.gates]
            bands = np.array([binom.interval(BAND, gate.flights, level) for gate in one.gates]).T
            counts = np.array([gate.flights for gate in one.gates])
            axes.fill_between(numbers, *(bands / counts), step="mid", color="black", alpha=0.15, linewidth=0)
            axes.plot(numbers, flown, "o", markersize=3)
            at += len(one.gates) + 1
        axes.axhline(level, color="black", linewidth=0.8)
        axes.set(xlabel="gates, plan by plan", ylabel=f"flown fraction below the {100 * level:g} % quantile", xticks=[])
    for axes in (left, *right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def run(arguments: argparse.Namespace) -> int:
    """Compare all campaigns and write report and plot; returns the exit code."""
    tracks = {track.name: track for track in map(load_track, arguments.tracks)}
    found = [one for folder in arguments.campaigns for one in of_campaign(folder, tracks)]
    print("\n".join(map(report, found)))
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_json(arguments.out / "risk_calibration.json", [asdict(one) for one in found])
    draw(arguments.out / "risk_calibration.png", found)
    return 0


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Compare predicted gate crossings with those of a campaign.")
    parser.add_argument("campaigns", nargs="+", type=Path, help="campaign folders of race-bench")
    parser.add_argument(
        "--tracks", nargs="+", default=[], metavar="FILE", help="tracks of the campaigns that are files, not names"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("logs/risk"), help="folder of JSON and PNG (default: logs/risk)"
    )
    sys.exit(exit_code(lambda: run(parser.parse_args())))


if __name__ == "__main__":
    main()
