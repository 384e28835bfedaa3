"""Sheet of a training: its losses, the detector's precision over recall, and held-out images with labels and detections."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.common.files import write_figure
from gate_racer.perception.detection import Detection
from gate_racer.perception.training.evaluation import IOUS, Matches
from gate_racer.perception.training.labels import Photograph
from gate_racer.vehicle.rotation import Array

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
