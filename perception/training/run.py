"""`train-detector`: teach the taught detector the gates of labelled photographs, and say how well it knows them.

The last fifth of the images by name is held out: neighbouring frames are nearly the same, so images held out at random
would promise too much.

A sheet shows the losses, the detector's precision over recall, and held-out images with labels and detections.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
from ruamel.yaml import YAML

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.compiled import Image, warm_up
from gate_racer.common.errors import UserError
from gate_racer.common.files import drafted, write_figure
from gate_racer.common.settings import settings_of
from gate_racer.perception.detection import Detection
from gate_racer.perception.registry import TAUGHT
from gate_racer.perception.taught.detector import GateNetwork, NetworkCard, find_gates
from gate_racer.perception.training.cli import TeachingSettings
from gate_racer.perception.training.evaluation import IOUS, LARGE_PX, Matches, corner_deviations, match
from gate_racer.perception.training.labels import Photograph, read_photographs
from gate_racer.vehicle.rotation import Array

HELD_OUT = 0.2  # share of the images
FEWEST = 5  # labelled openings in either part
UNCALIBRATED = NetworkCard("", "", 0.5, 1.0, 0.02, 0.1)


def run(arguments: argparse.Namespace) -> int:
    """Train as the command line requests. Raises UserError for unusable images or labels, or without PyTorch."""
    settings = settings_of(arguments, TeachingSettings)
    out, steps, batch, seed = settings.out, settings.steps, settings.batch, settings.seed
    if out.suffix != TAUGHT:
        raise UserError(f"--out {out}: must end in {TAUGHT}")
    sheet, card_file = out.with_suffix(".png"), out.with_suffix(".yaml")
    require_outputs((out, sheet, card_file, arguments.json), *arguments.folder.rglob("*"))
    photographs = read_photographs(arguments.folder)
    taught, held_out = split(photographs, str(arguments.folder))
    print(
        f"{len(taught)} images to learn from with {openings(taught)} openings, {len(held_out)} held out with {openings(held_out)}"
    )
    missing = [name for name in ("torch", "onnx") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"train-detector needs PyTorch and ONNX: pip install gate-racer[train] ({' and '.join(missing)} not found)"
        )
    from gate_racer.perception.training.fit import Losses, export, fit

    warm_up()  # the processes that draw samples find all compiled
    curve: list[Losses] = []

    def tell(now: Losses) -> None:
        curve.append(now)
        left_s = now.elapsed_s / now.step * (steps - now.step)
        remark(
            f"step {now.step} of {steps}: loss of corners {now.corners:.4f}, gates {now.gates:.3f},"
            f" offsets {now.offsets:.3f}; {left_s / 60:.0f} minutes left"
        )

    net = fit(taught, steps, batch, seed, tell)
    out.parent.mkdir(parents=True, exist_ok=True)
    with drafted(out) as draft:
        export(net, draft)
    command = f"train-detector {arguments.folder} --set steps={steps} batch={batch} seed={seed}"
    source = f"{len(taught)} images of {arguments.folder} with {openings(taught)} openings"
    network = GateNetwork(out, replace(UNCALIBRATED, source=source, command=command))
    all_found = [(find_gates(network, one.image), one.corners_px) for one in held_out]
    matches = match(all_found)
    card = calibrated(network.card, matches)
    with drafted(card_file) as draft, draft.open("w") as stream:
        YAML().dump(asdict(card), stream)
    write_sheet(sheet, held_out, all_found, matches, card.score, curve)
    figures = matches.above(card.score).figures() | {
        f"ap_{int(100 * iou)}": matches.average_precision(iou) for iou in (0.5, 0.75)
    }
    say_figures(figures)
    print(f"written: {out}, {card_file.name}, {sheet.name}. To use it: detect-gates ... --detector {out}")
    write_json(arguments.json, figures | {"card": asdict(card)})
    return 0


def split(photographs: list[Photograph], where: str) -> tuple[list[Photograph], list[Photograph]]:
    """Return the images to learn from and those held out, the last by time. Raises UserError if either has too few openings."""
    first = round(len(photographs) * (1 - HELD_OUT))
    parts = photographs[:first], photographs[first:]
    if min(openings(part) for part in parts) < FEWEST:
        raise UserError(
            f"{where}: {openings(photographs)} labelled openings, of which {openings(parts[1])} in the last fifth of the images;"
            f" at least {FEWEST} are needed there and before"
        )
    return parts


def openings(photographs: list[Photograph]) -> int:
    """Return the number of labelled openings."""
    return sum(len(one.corners_px) for one in photographs)


def calibrated(card: NetworkCard, matches: Matches) -> NetworkCard:
    """Return the card with least score and standard deviations from held-out matches."""
    score = matches.best_score()
    corner_px, corner_side, hidden_side = corner_deviations(matches.above(score))
    return replace(
        card,
        score=round(score, 3),
        corner_px=round(corner_px, 3),
        corner_side=round(corner_side, 4),
        hidden_side=round(hidden_side, 3),
    )


def say_figures(figures: dict[str, float]) -> None:
    """Print the figures of the held-out images."""
    of = {name: f"{value:.3f}" for name, value in figures.items()}
    if not figures["recall"]:
        print(
            f"held out, {figures['openings']:.0f} openings: none found, so this network is of no use yet; give it more steps"
        )
        return
    print(
        f"held out, {figures['openings']:.0f} openings: precision {of['precision']}; recall {of['recall']} at IoU 0.5,"
        f" {of['recall_75']} at 0.75, {of['recall_large']} of those over {LARGE_PX:.0f} px; AP {of['ap_50']} and {of['ap_75']};"
        f" corners off by {figures['corner_error_median']:.1%} of the side (median), {figures['corner_error_p90']:.1%} (90 %)"
    )


if TYPE_CHECKING:
    from gate_racer.perception.training.fit import Losses

SHOWN, COLUMNS = 12, 4  # images on the sheet
LABEL, FOUND = (0, 220, 255), (0, 255, 0)  # BGR
SHIFT = 4  # fixed-point bits of drawn coordinates


def write_sheet(
    file: Path,
    photographs: list[Photograph],
    found: list[tuple[list[Detection], Array]],
    matches: Matches,
    score: float,
    curve: "Sequence[Losses]",
) -> None:
    """Draw a sheet: labels in yellow, detections of at least `score` in green."""
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
        kept = [one for one in found[number][0] if one.score >= score]
        axes.imshow(drawn(photographs[number], kept)[..., ::-1])
        axes.set_title(photographs[number].name, fontsize=8)
        axes.axis("off")
    write_figure(file, figure)


def drawn(photograph: Photograph, detections: list[Detection]) -> Image:
    """Return an image with its labels and detections."""
    image = photograph.image.copy()
    quads = [(quad, LABEL) for quad in photograph.corners_px if np.isfinite(quad).all()]
    for quad, colour in quads + [(one.corners_px, FOUND) for one in detections]:
        cv2.polylines(image, [np.round(quad * (1 << SHIFT)).astype(np.int32)], True, colour, 1, cv2.LINE_AA, SHIFT)
    return image
