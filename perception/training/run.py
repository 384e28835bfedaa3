"""`train-detector`: teach the taught detector the gates of labelled photographs, and say how well it knows them.

The last fifth of the images by name is held out: neighbouring frames are nearly the same, so images held out at random
would promise too much. Measured on them are recall, precision, average precision, errors, and the card's calibration.

A sheet shows the losses, the detector's precision over recall, and held-out images with labels and detections.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.compiled import warm_up
from gate_racer.common.config import write
from gate_racer.common.errors import UserError
from gate_racer.common.files import drafted, write_figure
from gate_racer.common.settings import settings_of
from gate_racer.model.quadrilateral import overlap, side_lengths, turned_like
from gate_racer.perception.detection import Detection
from gate_racer.perception.taught.detector import GateNetwork, NetworkCard, find_gates
from gate_racer.perception.training.cli import TeachingSettings
from gate_racer.perception.training.labels import Photograph, read_photographs
from gate_racer.vehicle.rotation import Array, Mask

IOUS = 0.5, 0.75  # overlaps at which an opening counts as found
LARGE_PX = 60.0  # mean side of a large opening
EVEN, MARGIN = 0.5, 1e-3  # -, probability of a gate; least distance to the next score
REJECTED = 9.21  # squared error over its variance, of which chi-squared of two degrees exceeds 1 %
TRIMS = 5  # fits with outliers left out
NO_ROWS = np.empty(0), np.empty(0), np.empty((0, 4, 2)), np.empty(0), np.empty((0, 4), bool)


@dataclass(frozen=True, slots=True)
class Matches:
    """Detections (N) of a set of images, best first, matched greedily to its labelled openings (M), as COCO does."""

    openings_px: Array  # (M,) mean sides of all labelled openings
    score: Array  # (N,)
    iou: Array  # (N,) with the opening that it was matched to, 0 if none was left
    error_px: Array  # (N, 4, 2) of its corners; NaN if not matched
    side_px: Array  # (N,) mean side of the matched opening
    measured: Mask  # (N, 4) corners that were seen

    def curve(self, iou: float) -> tuple[Array, Array]:
        """Return recall and precision (N,) by decreasing score at an overlap."""
        true = np.cumsum(self.iou >= iou)
        return true / max(len(self.openings_px), 1), true / np.arange(1, len(true) + 1)

    def average_precision(self, iou: float) -> float:
        """Return the area under the envelope of the precision (Everingham et al., 2010, all points)."""
        recall, precision = self.curve(iou)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        return float(np.diff(recall, prepend=0.0) @ envelope)

    def best_score(self) -> float:
        """Return the least score that maximises F1 at the smaller overlap, of several that do the one nearest to even odds."""
        if not len(self.score):
            return EVEN
        recall, precision = self.curve(IOUS[0])
        last = int((2 * recall * precision / np.maximum(recall + precision, 1e-9)).argmax())
        following = self.score[last + 1] if last + 1 < len(self.score) else 0.0
        return float(np.clip(EVEN, following + MARGIN, max(self.score[last], following + MARGIN)))

    def above(self, score: float) -> "Matches":
        """Return the matches of at least a score."""
        n = int((self.score >= score).sum())
        cut = {name: getattr(self, name)[:n] for name in ("score", "iou", "error_px", "side_px", "measured")}
        return replace(self, **cut)

    def figures(self) -> dict[str, float]:
        """Return the figures that are reported: of all detections, and errors of measured corners over the opening's side."""
        found, large = self.iou >= IOUS[0], self.openings_px > LARGE_PX
        share = (np.linalg.norm(self.error_px, axis=-1) / self.side_px[:, None])[found]
        share = share if len(share) else np.full((1, 4), np.nan)
        count = max(len(self.openings_px), 1)
        return {
            "openings": len(self.openings_px),
            "recall": float(found.sum() / count),
            "recall_75": float((self.iou >= IOUS[1]).sum() / count),
            "recall_large": float((found & (self.side_px > LARGE_PX)).sum() / max(large.sum(), 1)),
            "precision": float(found.sum() / max(len(found), 1)),
            "corner_error_median": float(np.median(share)),
            "corner_error_p90": float(np.quantile(share, 0.9)),
        }


def match(images: list[tuple[list[Detection], Array]]) -> Matches:
    """Match detections to the openings (K, 4, 2) of each image, those with unknown corners left out."""
    rows, openings = [], []
    for detections, corners_px in images:
        free = [quad for quad in corners_px if np.isfinite(quad).all()]
        openings += [float(side_lengths(quad).mean()) for quad in free]
        for one in sorted(detections, key=lambda d: -d.score):
            ious = [overlap(one.corners_px, quad) for quad in free]
            iou, error, side = max(ious, default=0.0), np.full((4, 2), np.nan), np.nan
            if iou >= IOUS[0]:
                quad = free.pop(ious.index(iou))
                error, side = one.corners_px - turned_like(quad, one.corners_px), float(side_lengths(quad).mean())
            rows.append((one.score, iou if iou >= IOUS[0] else 0.0, error, side, one.visible))
    rows.sort(key=lambda row: -row[0])
    columns = map(np.array, zip(*rows, strict=True)) if rows else NO_ROWS
    return Matches(np.array(openings), *columns)


def corner_deviations(found: Matches) -> tuple[float, float, float]:
    """Return a card's corner_px, corner_side and hidden_side: maximum-likelihood Gaussians of errors without outliers."""
    from scipy.optimize import minimize  # slow to load

    good = found.iou >= IOUS[0]
    error, measured = found.error_px[good], found.measured[good]
    side = np.repeat(found.side_px[good, None], 4, 1)
    square, length = (error[measured] ** 2).mean(-1), side[measured]

    def variance(logs: Array) -> Array:
        return np.asarray(np.exp(2 * logs[0]) + np.exp(2 * logs[1]) * length**2)

    def misfit(logs: Array) -> float:
        return float((square / variance(logs) + np.log(variance(logs)))[kept].mean())

    if not len(square):
        return 1.0, 0.02, 0.1
    kept, logs = np.ones(len(square), bool), np.log([1.0, 0.01])
    for _ in range(TRIMS):
        logs = minimize(misfit, logs, method="Nelder-Mead", bounds=[(-4, 4), (-9, 0)]).x
        kept = 2 * square < REJECTED * variance(logs)
    corner = np.exp(logs)
    hidden = error[~measured] / side[~measured, None]
    return float(corner[0]), float(corner[1]), float(np.sqrt((hidden**2).mean())) if len(hidden) else 0.1


HELD_OUT = 0.2  # share of the images
FEWEST = 5  # labelled openings in either part
UNCALIBRATED = 0.5, 1.0, 0.02, 0.1  # score and deviations of a network's card before the calibration


def run(arguments: argparse.Namespace) -> int:
    """Train as the command line requests. Raises UserError for unusable images or labels, or without PyTorch."""
    settings = settings_of(arguments, TeachingSettings)
    out, steps, batch, seed = settings.out, settings.steps, settings.batch, settings.seed
    sheet, card_file = out.with_suffix(".png"), out.with_suffix(".yaml")
    require_outputs((out, sheet, card_file, arguments.json), *arguments.folder.rglob("*"))
    taught, held_out = split(read_photographs(arguments.folder), arguments.folder)
    print(f"to learn from: {len(taught)} images, {openings(taught)} openings")
    print(f"held out: {len(held_out)} images, {openings(held_out)} openings")
    if not (find_spec("torch") and find_spec("onnx")):
        raise UserError("train-detector needs PyTorch and ONNX: pip install gate-racer[train]")
    from gate_racer.perception.training.fit import Losses, export, fit

    warm_up()  # the processes that draw samples find all compiled
    curve: list[Losses] = []

    def tell(now: Losses) -> None:
        curve.append(now)
        left_s = now.elapsed_s / now.step * (steps - now.step)
        losses = f"loss of corners {now.corners:.4f}, gates {now.gates:.3f}, offsets {now.offsets:.3f}"
        remark(f"step {now.step} of {steps}: {losses}; {left_s / 60:.0f} minutes left")

    net = fit(taught, steps, batch, seed, tell)
    out.parent.mkdir(parents=True, exist_ok=True)
    with drafted(out) as draft:
        export(net, draft)
    command = f"train-detector {arguments.folder} --set steps={steps} batch={batch} seed={seed}"
    source = f"{len(taught)} images of {arguments.folder} with {openings(taught)} openings"
    network = GateNetwork(out, NetworkCard(source, command, *UNCALIBRATED))
    all_found = [(find_gates(network, one.image), one.corners_px) for one in held_out]
    matches = match(all_found)
    score = matches.best_score()
    px, side, hidden = (round(sigma, 4) for sigma in corner_deviations(matches.above(score)))
    card = replace(network.card, score=round(score, 3), corner_px=px, corner_side=side, hidden_side=hidden)
    write(card_file, card)
    write_sheet(sheet, held_out, all_found, matches, card.score, curve)
    figures = matches.above(card.score).figures()
    figures |= {f"ap_{int(100 * iou)}": matches.average_precision(iou) for iou in IOUS}
    print("held out: " + ", ".join(f"{name} {value:.3g}" for name, value in figures.items()))
    if not figures["recall"]:
        remark("no gate is found, so this network is of no use yet; give it more steps")
    print(f"written: {out}, {card_file.name}, {sheet.name}. To use it: detect-gates ... --detector {out}")
    write_json(arguments.json, figures | {"card": asdict(card)})
    return 0


def split(photographs: list[Photograph], folder: Path) -> tuple[list[Photograph], list[Photograph]]:
    """Return the images to learn from and those held out, the last by time. Raises UserError if either has too few openings."""
    first = round(len(photographs) * (1 - HELD_OUT))
    taught, held_out = photographs[:first], photographs[first:]
    if min(openings(taught), openings(held_out)) < FEWEST:
        has = f"{openings(photographs)} labelled openings, of which {openings(held_out)} in the last fifth"
        raise UserError(f"{folder}: {has} of the images; at least {FEWEST} are needed there and before")
    return taught, held_out


def openings(photographs: list[Photograph]) -> int:
    """Return the number of labelled openings."""
    return sum(len(one.corners_px) for one in photographs)


SHOWN, COLUMNS = 12, 4  # images on the sheet
LABEL, FOUND = (0, 220, 255), (0, 255, 0)  # BGR
SHIFT = 4  # fixed-point bits of drawn coordinates


def write_sheet(
    file: Path,
    photographs: list[Photograph],
    found: list[tuple[list[Detection], Array]],
    matches: Matches,
    score: float,
    curve: Sequence[Any],
) -> None:
    """Draw a sheet: the curve of `Losses`; labels in yellow, detections of at least `score` in green."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 15), layout="constrained")
    grid = figure.add_gridspec(1 + SHOWN // COLUMNS, COLUMNS)
    losses = figure.add_subplot(grid[0, :2])
    for name in ("corners", "gates", "offsets"):
        losses.semilogy([one.step for one in curve], [getattr(one, name) for one in curve], label=name)
    losses.set(xlabel="step", ylabel="loss")
    losses.legend()
    precision = figure.add_subplot(grid[0, 2:])
    for iou in IOUS:
        precision.plot(*matches.curve(iou), label=f"IoU {iou}: AP {matches.average_precision(iou):.3f}")
    precision.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.05))
    precision.legend(loc="lower left")
    for k, number in enumerate(np.linspace(0, len(photographs) - 1, min(SHOWN, len(photographs))).round().astype(int)):
        axes = figure.add_subplot(grid[1 + k // COLUMNS, k % COLUMNS])
        image = photographs[number].image.copy()
        quads = [(quad, LABEL) for quad in photographs[number].corners_px if np.isfinite(quad).all()]
        quads += [(one.corners_px, FOUND) for one in found[number][0] if one.score >= score]
        for quad, colour in quads:
            cv2.polylines(image, [np.round(quad * (1 << SHIFT)).astype(np.int32)], True, colour, 1, cv2.LINE_AA, SHIFT)
        axes.imshow(image[..., ::-1])
        axes.set_title(photographs[number].name, fontsize=8)
        axes.axis("off")
    write_figure(file, figure)
