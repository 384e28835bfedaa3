"""Taught detector: a network reports whole gates and corners; each gate's corners are those peaks that it predicts.

image -> network -> cells merged to gates -> corners at their peaks -> Detection

The network is run by OpenCV on the CPU. It reports whole gates at three scales, and corners at high resolution.

Outputs for an image (H, W), in its pixels:

| map | at stride | holds |
|---|---|---|
| corners | 2 | log-odds of a visible corner |
| gates | 8, 16, 32 | log-odds that the cell is near an opening's centre, and the offsets from it to the four corners |

Small gates are reported by the finest cells, large ones by the coarsest, as in FCOS (Tian et al., 2019), with corners in place of
a box as in YOLO-pose (Maji et al., 2022). So a hidden or cut corner is predicted from the rest of its gate, and gates seen
through each other do not compete for a cell. `perception/training` has the training.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from gate_racer.common.compiled import Float32, Image
from gate_racer.common.config import load
from gate_racer.common.errors import UserError
from gate_racer.common.settings import Limited, limited
from gate_racer.model.quadrilateral import first_corner, is_convex, is_inside, overlap, side_lengths, turned_like
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Mask

STRIDE = 2  # image pixels per pixel of the corner map, and of the network's input
PART = 32  # map pixels, divisor of map sizes: the network halves its maps five times
HEAD_STRIDES = (8, 16, 32)  # image pixels per cell of each head
OFFSET_UNIT = 4.0  # strides, unit of the offsets
OUTPUTS = ("corners", *(f"gates{stride}" for stride in HEAD_STRIDES))
INPUT = "blocks"
SHIPPED = Path(__file__).parent / "gates.onnx"  # taught by drawn frames, see `tools/training`
# Thresholds, chosen.
CELL_MIN = 0.15  # -, least probability of a cell that reports an opening
CELLS_MOST = 100  # greatest number of such cells, the likeliest: bounds the time (a gate has about eight)
PEAK_MIN = 0.12  # -, least height of a corner's peak
PEAKS_MOST = 200  # greatest number of peaks, the highest
EPS = 1e-4  # -, below any relevant probability: keeps logarithms finite
ABOVE_MEAN = 1.1  # -, least ratio of a peak to the mean of its 3 x 3 neighbourhood: a plateau has no peak


@dataclass(frozen=True)
class NetworkCard(Limited):
    """Provenance and calibration of a network's file, beside it as YAML."""

    source: str  # images that it was trained on
    command: str  # command of the training
    score: float = limited(least=0.0, most=1.0)  # -, least score of a gate
    corner_px: float = limited(positive=True)  # standard deviation of a coordinate of a measured corner,
    corner_side: float = limited(positive=True)  # ... and the share of the side that is added to it in square
    hidden_side: float = limited(positive=True)  # share of the side, standard deviation of a corner without a peak


class GateNetwork:
    """Network of a file, for images of any size."""

    def __init__(self, file: Path, card: NetworkCard | None = None):
        """Load a network and its card, unless that is given. Raises UserError: missing, malformed or of another network."""
        if not file.is_file():
            raise UserError(f"{file}: no such network of a detector")
        try:
            self._net = cv2.dnn.readNetFromONNX(str(file))
            self._maps(np.zeros((2 * PART, 2 * PART, 3), np.uint8))
        except cv2.error as error:
            raise UserError(f"{file}: not a network of train-detector ({error.err})") from None
        self.card = card or load(file.with_suffix(".yaml"), NetworkCard)

    def _maps(self, image: Image) -> list[Float32]:
        """Return the outputs (C, h, w) for an image (H, W, 3) BGR."""
        self._net.setInput(blocks(image), INPUT)
        return [np.asarray(out[0]) for out in self._net.forward(OUTPUTS)]

    def look(self, image: Image) -> tuple[Array, Array, Array]:
        """Return scores (N,) and corners (N, 4, 2) px of the openings that cells report in an image (H, W, 3) BGR, the likeliest

        first and one perhaps several times, and the peaks (P, 2) px of visible corners.
        """
        height, width = image.shape[:2]
        if min(height, width) < STRIDE:
            return np.zeros(0), np.zeros((0, 4, 2)), np.zeros((0, 2))
        corners, *heads = self._maps(image)
        peaks = find_peaks(corners[0, : height // STRIDE, : width // STRIDE])
        found = [_reports(head, stride) for head, stride in zip(heads, HEAD_STRIDES, strict=True)]
        score, quads = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(-score, kind="stable")[:CELLS_MOST]
        return score[order], quads[order], to_image(peaks)


def cell_centres(rows: int, columns: int, stride: int) -> Array:
    """Return the centres (rows, columns, 2) px of a head's cells."""
    u, v = np.meshgrid(np.arange(columns), np.arange(rows))
    return np.asarray(np.stack([u, v], -1) * stride + (stride - 1) / 2, float)


def _reports(head: Float32, stride: int) -> tuple[Array, Array]:
    """Return the scores (N,) of a head's cells (9, h, w) above the least, and the corners (N, 4, 2) px that they report."""
    score = probability(head[0])
    v, u = np.nonzero(score > CELL_MIN)
    offsets = head[1:, v, u].T.reshape(-1, 4, 2) * (OFFSET_UNIT * stride)
    cells = cell_centres(score.shape[0], score.shape[1], stride)
    return score[v, u], cells[v, u][:, None] + offsets


def find_peaks(log_odds: Float32) -> Array:
    """Return the local maxima (P, 2) of a corner map (h, w), map pixels to sub-pixel accuracy, the highest first."""
    heat = probability(log_odds)
    above = cv2.dilate(heat, np.ones((3, 3)))
    top = (heat >= above) & (heat > PEAK_MIN) & (heat > ABOVE_MEAN * cv2.blur(heat, (3, 3)))
    top[[0, -1]] = top[:, [0, -1]] = False  # at the border a peak may be a cut edge
    v, u = np.nonzero(top)
    order = np.argsort(-heat[v, u], kind="stable")[:PEAKS_MOST]
    v, u = v[order], u[order]
    u_offset = peak_offset(heat[v, u - 1], heat[v, u], heat[v, u + 1])
    v_offset = peak_offset(heat[v - 1, u], heat[v, u], heat[v + 1, u])
    return np.stack([u + u_offset, v + v_offset], -1)


def blocks(image: Image) -> Float32:
    """Return the network's input for an image (H, W, 3) BGR: 2 x 2 blocks as channels (1, 12, h, w), -0.5 to 0.5, padded."""
    h, w = image.shape[0] // STRIDE, image.shape[1] // STRIDE
    x = image[: STRIDE * h, : STRIDE * w].reshape(h, STRIDE, w, STRIDE, 3).transpose(4, 1, 3, 0, 2).reshape(-1, h, w)
    whole = np.zeros((1, len(x), -(-h // PART) * PART, -(-w // PART) * PART), np.float32)
    np.multiply(x, np.float32(1 / 255), out=whole[0, :, :h, :w])
    whole[0, :, :h, :w] -= np.float32(0.5)
    return whole


def to_image(at: Array) -> Array:
    """Convert map to image pixels: map pixel i covers image pixels 2 i and 2 i + 1, so its centre is 2 i + 0.5."""
    return STRIDE * at + (STRIDE - 1) / 2


def to_map(px: Array) -> Array:
    return (px - (STRIDE - 1) / 2) / STRIDE


def probability(log_odds: Float32) -> Array:
    return np.asarray(1 / (1 + np.exp(-log_odds.astype(float))))


def peak_offset(before: Array, at: Array, after: Array) -> Array:
    """Return the offset (N,) of a peak's vertex from its pixel: the logarithm of a Gaussian is a parabola."""
    before, at, after = (np.log(height + EPS) for height in (before, at, after))
    return np.asarray(np.clip((after - before) / (2 * np.maximum(2 * at - before - after, 1e-3)), -0.5, 0.5))


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
        """Load a network. Errors as `GateNetwork`."""
        super().__init__(camera)
        self._network = GateNetwork(file)

    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        rows, columns = window.region or (slice(0, None), slice(0, None))
        least = self._network.card.score
        found = [one for one in find_gates(self._network, image[rows, columns]) if one.score >= least]
        return [one.moved(np.array([columns.start, rows.start])) for one in found]


def find_gates(network: GateNetwork, image: Image) -> list[Detection]:
    """Return the gates in an image (H, W, 3) BGR of whatever score, best first."""
    score, reported_px, peaks_px = network.look(image)
    scores, quads = merge(score, reported_px)
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


def merge(score: Array, corners_px: Array) -> tuple[Array, Array]:
    """Return the scores (Q,) and corners (Q, 4, 2) of the openings that cells report by scores (N,) and corners (N, 4, 2).

    The corners are means over the reports that overlap the likeliest, weighted by the squares of their scores. Cells may name the
    corners from a different first one.
    """
    groups: list[tuple[Array, list[float], list[Array]]] = []
    usable = is_convex(corners_px) & (side_lengths(corners_px).min(-1) > SIDE_MIN_PX)
    for one, quad in zip(score[usable], corners_px[usable], strict=True):
        for first, scores, quads in groups:
            if overlap(first, quad) > SAME_IOU:
                scores.append(one)
                quads.append(turned_like(quad, first))
                break
        else:
            groups.append((quad, [one], [quad]))
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
