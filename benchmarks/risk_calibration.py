"""Calibration of the gate crossings predicted by `planner.doubt`: python benchmarks/risk_calibration.py logs/vq1 logs/vq2

Reads campaigns of `race-bench --worlds unknown`. Each crossing's offset from the planned one, right and down in the axes of the
true gate, over the predicted standard deviation towards that side should be standard normal. Prints the fractions within
central intervals, with their binomial 95 % intervals (Clopper and Pearson 1934), and the fractions beyond one-sided quantiles
towards the edges nearest to the plan, on which the margins depend. Writes JSON and a reliability diagram.
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would shadow the packages of their names

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtri
from scipy.stats import binomtest

from benchmarks.campaign.choice import USUAL, plan_options
from benchmarks.campaign.store import Row, Store
from planner.doubt.prediction import Crossing, predict
from planner.plan import read_plan
from planner.planning import plan_path
from planner.task import Task
from tracks.track import Track, load_track
from vehicle.command import write_json
from vehicle.doubt import Doubt
from vehicle.errors import UserError, exit_code
from vehicle.rotation import Array
from vehicle.vehicle import load_vehicle

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # probabilities of central intervals
TAILS = (0.16, 0.05, 0.01, 0.001)  # probabilities of one-sided tails
AXES = ("right", "down")


@dataclass(frozen=True)
class Share:
    """Fraction of n offsets, one per crossing and axis, within a region of this predicted probability."""

    predicted: float
    flown: float
    low: float  # 95 % interval of the fraction
    high: float
    n: int

    @property
    def text(self) -> str:
        """Predicted and flown fraction with its interval, in %."""
        return f"{100 * self.predicted:g} %: {100 * self.flown:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}] of {self.n}"


@dataclass(frozen=True)
class GateSpread:
    """Predicted and flown spread at one gate, m, right and down."""

    sigma_more_m: list[float]  # predicted standard deviation towards right and down
    sigma_less_m: list[float]  # predicted standard deviation towards left and up
    estimate_sigma_m: list[float]  # part of the estimation error in it
    mean_m: list[float]  # flown, mean offset from the planned crossing
    std_m: list[float]
    estimate_rms_m: list[float]  # flown, rms of the estimation error


@dataclass(frozen=True)
class Calibration:
    """Calibration over all flights of a plan."""

    name: str
    flights: int
    finished: int
    central: list[Share]
    towards_edges: list[Share]
    ratio: float  # rms of the offsets over their predicted standard deviations
    gates: list[GateSpread]


def share(predicted: float, hits: Array) -> Share:
    """Return the fraction of hits (n,), 0 or 1, with its interval."""
    found = binomtest(int(hits.sum()), len(hits)).proportion_ci()
    return Share(predicted, float(hits.mean()), float(found.low), float(found.high), len(hits))


def calibrate(name: str, rows: list[Row], crossings: tuple[Crossing, ...]) -> Calibration:
    """Compare the flights of one plan with its prediction. Raises UserError where no gate was passed."""
    offs, outs, gates = [], [], []
    for k, one in enumerate(crossings):
        some = [row.outcome for row in rows if k < len(row.outcome.crossing_m)]
        if one.gate.is_ball or not some:
            continue
        off = np.array([outcome.crossing_m[k] for outcome in some]) - one.planned_m
        (more, less), seen = (
            (one.across.sigmas(side * np.eye(2)) for side in (1, -1)),
            np.diag(one.estimate_across) ** 0.5,
        )
        sigma = np.where(off > 0, more, less)
        wrong = np.array([outcome.misjudged_m[k] for outcome in some])
        offs.append(off / sigma)
        outs.append(np.sign(one.planned_m) * off / sigma)
        spread = (more, less, seen, off.mean(axis=0), off.std(axis=0), np.sqrt((wrong**2).mean(axis=0)))
        gates.append(GateSpread(*(part.tolist() for part in spread)))
    if not offs:
        raise UserError(f"{name}: no flight passed a gate")
    z, out = np.concatenate(offs).ravel(), np.concatenate(outs).ravel()
    central = [share(level, np.abs(z) < ndtri((1 + level) / 2)) for level in LEVELS]
    tails = [share(tail, out > -ndtri(tail)) for tail in TAILS]
    finished = sum(row.outcome.finished for row in rows)
    return Calibration(name, len(rows), finished, central, tails, float(np.sqrt((z**2).mean())), gates)


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
        prediction = predict(plan, Task(track, vehicle, options), Doubt())
        found.append(calibrate(f"{name}, {of}, {asked or USUAL}, {world}", rows, prediction.crossings))
    return found


def report(one: Calibration) -> str:
    """Return a calibration as text."""
    lines = [f"{one.name}: {one.finished} of {one.flights} finished, rms offset over predicted sigma {one.ratio:.2f}"]
    lines += ["  within central intervals, %: " + "; ".join(part.text for part in one.central)]
    lines += [
        "  beyond one-sided quantiles towards the edges, %: " + "; ".join(part.text for part in one.towards_edges)
    ]
    for k, gate in enumerate(one.gates):
        for axis, *values in zip(AXES, *asdict(gate).values(), strict=True):
            more, less, seen, mean, std, wrong = values
            lines.append(
                f"  gate {k} {axis:5}: predicted -{less:.3f} +{more:.3f} (estimate {seen:.3f}), flown {std:.3f} about {mean:+.3f}"
                f" (estimate {wrong:.3f}) m"
            )
    return "\n".join(lines)


def draw(path: Path, found: list[Calibration]) -> None:
    """Plot the reliability diagram, and predicted against flown spread at each gate."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    left.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    most = 0.0
    for one in found:
        x, y = np.array([[part.predicted, part.flown] for part in one.central]).T
        ends = np.array([[part.flown - part.low, part.high - part.flown] for part in one.central]).T
        left.errorbar(x, y, np.maximum(ends, 0.0), marker="o", markersize=3, capsize=2, label=one.name)
        names = ("sigma_more_m", "sigma_less_m", "std_m")
        more, less, std = (np.array([getattr(gate, name) for gate in one.gates]).ravel() for name in names)
        sigma = (more + less) / 2
        right.plot(sigma, std, "o", markersize=3, label=one.name)
        most = max(most, float(sigma.max()), float(std.max()))
    right.plot([0, most], [0, most], color="black", linewidth=0.8)
    left.set(xlabel="predicted fraction within the interval", ylabel="flown fraction, with binomial 95 % interval")
    right.set(
        xlabel="predicted standard deviation at a gate, mean of both sides [m]", ylabel="flown standard deviation [m]"
    )
    left.legend(fontsize=7)
    for axis in (left, right):
        axis.grid(alpha=0.3)
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
