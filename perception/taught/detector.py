"""Taught detector: a network reports whole gates and corners; each gate's corners are those peaks that it predicts.

image -> network -> cells merged to gates -> corners at their peaks -> Detection
"""

from pathlib import Path

import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model.quadrilateral import first_corner, is_convex, is_inside, side_lengths, turned_like
from gate_racer.perception.detection import Detection, Detector, overlap
from gate_racer.perception.roi import SearchWindow
from gate_racer.perception.taught.network import GateNetwork, NetworkCard, Proposals
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Mask

# Thresholds, chosen, except where a source is named.
# -, overlap above which two quadrilaterals are one opening's; gates in a row have 0.45 or less
SAME_IOU = 0.55
SIDE_MIN_PX = 5.0  # least side of an opening
SNAP_PX = 2.0  # greatest distance from a predicted corner to its peak, the network's stride,
# ... or this share of the side, if greater: three standard deviations of the prediction (measured)
SNAP_SIDE = 0.12
BORDER_PX = 1.0  # a corner nearer to the image border may be cut
CORNERS_MIN = 2  # least number of visible corners


class TaughtDetector(Detector):
    """Gate detector by a network, for gates with at least two visible corners."""

    def __init__(self, camera: Camera, file: Path):
        """Load a network.

        Raises:
            UserError: the network's file or its card is missing, malformed or of another network.
        """
        super().__init__(camera)
        self._network = GateNetwork(file)

    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        rows, columns = window.region or (slice(0, None), slice(0, None))
        least = self._network.card.score
        found = [one for one in find_gates(self._network, image[rows, columns]) if one.score >= least]
        return [one.moved(np.array([columns.start, rows.start])) for one in found]


def find_gates(network: GateNetwork, image: Image) -> list[Detection]:
    """Return the gates in an image (H, W, 3) BGR of whatever score, best first."""
    proposals, peaks_px = network.look(image)
    scores, quads = merge(proposals)
    found = []
    for score, predicted in zip(scores, quads, strict=True):
        corners_px, measured = snap(predicted, peaks_px)
        seen = measured & is_inside(corners_px, image, BORDER_PX)
        if seen.sum() >= CORNERS_MIN and is_convex(corners_px[None])[0]:
            order = (np.arange(4) + first_corner(corners_px)) % 4
            sigma_px = corner_sigma_px(corners_px, measured, network.card)
            cov_px = sigma_px[:, None, None] ** 2 * np.eye(2)
            found.append(Detection(corners_px[order], cov_px[order], seen[order], float(score)))
    return found


def merge(proposals: Proposals) -> tuple[Array, Array]:
    """Return the scores (Q,) and corners (Q, 4, 2) of the openings that cells report.

    The corners are means over the reports that overlap the likeliest, weighted by the squares of their scores. Cells may name the
    corners from a different first one.
    """
    groups: list[tuple[Array, list[float], list[Array]]] = []
    usable = is_convex(proposals.corners_px) & (side_lengths(proposals.corners_px).min(-1) > SIDE_MIN_PX)
    for score, quad in zip(proposals.score[usable], proposals.corners_px[usable], strict=True):
        for first, scores, quads in groups:
            if overlap(first, quad) > SAME_IOU:
                scores.append(score)
                quads.append(turned_like(quad, first))
                break
        else:
            groups.append((quad, [score], [quad]))
    means = [np.average(quads, axis=0, weights=np.square(scores)) for _, scores, quads in groups]
    return np.array([scores[0] for _, scores, _ in groups]), np.array(means).reshape(-1, 4, 2)


def snap(predicted_px: Array, peaks_px: Array) -> tuple[Array, Mask]:
    """Move predicted corners (4, 2) to the nearest peaks (P, 2), if near enough. Returns them, and which were moved (4,)."""
    if not len(peaks_px):
        return predicted_px, np.zeros(4, bool)
    away = np.linalg.norm(peaks_px - predicted_px[:, None], axis=-1)
    nearest = away.argmin(1)
    most_px = max(SNAP_PX, SNAP_SIDE * float(side_lengths(predicted_px).mean()))
    near = away[np.arange(4), nearest] < most_px
    return np.where(near[:, None], peaks_px[nearest], predicted_px), near


def corner_sigma_px(corners_px: Array, measured: Mask, card: NetworkCard) -> Array:
    """Return the standard deviation (4,) of each coordinate of corners (4, 2), measured at a peak (4,) or predicted."""
    side_px = float(side_lengths(corners_px).mean())
    return np.where(measured, np.hypot(card.corner_px, card.corner_side * side_px), card.hidden_side * side_px)
