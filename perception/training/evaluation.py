"""Measured quality of detections on labelled images: recall, precision, average precision, errors, and the card's calibration."""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.model.quadrilateral import side_lengths, turned_like
from gate_racer.perception.detection import Detection, overlap
from gate_racer.vehicle.rotation import Array, Mask

IOUS = 0.5, 0.75  # overlaps at which an opening counts as found
LARGE_PX = 60.0  # mean side of a large opening
EVEN, MARGIN = 0.5, 1e-3  # -, probability of a gate; least distance to the next score
REJECTED = 9.21  # squared error over its variance, of which chi-squared of two degrees exceeds 1 %
TRIMS = 5  # fits with outliers left out


@dataclass(frozen=True, slots=True)
class Matches:
    """Detections (N) of a set of images, best first, matched greedily to its labelled openings (M), as COCO does."""

    score: Array  # (N,)
    iou: Array  # (N,) with the opening that it was matched to, 0 if none was left
    error_px: Array  # (N, 4, 2) of its corners; NaN if not matched
    side_px: Array  # (N,) mean side of the matched opening
    measured: Mask  # (N, 4) corners that were seen
    openings_px: Array  # (M,) mean sides of all labelled openings

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
            k = int(np.argmax(ious)) if ious else -1
            if k >= 0 and ious[k] >= IOUS[0]:
                quad = free.pop(k)
                error = one.corners_px - turned_like(quad, one.corners_px)
                rows.append((one.score, ious[k], error, float(side_lengths(quad).mean()), one.visible))
            else:
                rows.append((one.score, 0.0, np.full((4, 2), np.nan), np.nan, one.visible))
    rows.sort(key=lambda row: -row[0])
    return Matches(
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        np.array([row[2] for row in rows]).reshape(-1, 4, 2),
        np.array([row[3] for row in rows]),
        np.array([row[4] for row in rows], bool).reshape(-1, 4),
        np.array(openings),
    )


def corner_deviations(found: Matches) -> tuple[float, float, float]:
    """Return a card's corner_px, corner_side and hidden_side: maximum-likelihood Gaussians of the matched corners' errors.

    Corners at another's peak, whose errors a filter rejects (1 % of a Gaussian's), are left out.
    """
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
