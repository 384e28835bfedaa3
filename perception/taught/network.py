"""Network of the taught detector, run by OpenCV on the CPU: whole gates at three scales, and corners at high resolution.

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
from gate_racer.perception.sampling import PixelBox
from gate_racer.vehicle.rotation import Array

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


@dataclass(frozen=True, slots=True)
class NetworkCard:
    """Provenance and calibration of a network's file, beside it as YAML."""

    source: str  # images that it was trained on
    command: str  # command of the training
    score: float  # -, least score of a gate
    corner_px: float  # standard deviation of a coordinate of a measured corner,
    corner_side: float  # ... and the share of the side that is added to it in square
    hidden_side: float  # share of the side, standard deviation of a corner without a peak

    def __post_init__(self) -> None:
        if not 0 <= self.score <= 1 or min(self.corner_px, self.corner_side, self.hidden_side) <= 0:
            raise ValueError("score must lie between 0 and 1, and the standard deviations must be positive")


@dataclass(frozen=True, slots=True)
class Proposals:
    """Openings as the cells report them, the likeliest first; several cells may report one."""

    score: Array  # (N,) probability
    corners_px: Array  # (N, 4, 2)


class GateNetwork:
    """Network of a file, for images of any size."""

    def __init__(self, file: Path, card: NetworkCard | None = None):
        """Load a network and its card, unless that is given.

        Raises:
            UserError: the file or its card is missing, malformed or of another network.
        """
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

    def look(self, image: Image) -> tuple[Proposals, Array]:
        """Return proposals, and the peaks (P, 2) px of visible corners, in an image (H, W, 3) BGR."""
        height, width = image.shape[:2]
        if min(height, width) < STRIDE:
            return Proposals(np.zeros(0), np.zeros((0, 4, 2))), np.zeros((0, 2))
        corners, *heads = self._maps(image)
        peaks = find_peaks(corners[0, : height // STRIDE, : width // STRIDE])
        found = [_reports(head, stride) for head, stride in zip(heads, HEAD_STRIDES, strict=True)]
        score, quads = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(-score, kind="stable")[:CELLS_MOST]
        return Proposals(score[order], quads[order]), to_image(peaks)


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
    u_offset, v_offset = (
        peak_offset(heat[v - dv, u - du], heat[v, u], heat[v + dv, u + du]) for du, dv in ((1, 0), (0, 1))
    )
    return np.stack([u + u_offset, v + v_offset], -1)


def blocks(image: Image) -> Float32:
    """Return the network's input for an image (H, W, 3) BGR: 2 x 2 blocks as channels (1, 12, h, w), -0.5 to 0.5.

    Map sizes h and w are multiples of 2^5, as the network halves them five times; the padding is 0.
    """
    h, w = image.shape[0] // STRIDE, image.shape[1] // STRIDE
    x = image[: STRIDE * h, : STRIDE * w].reshape(h, STRIDE, w, STRIDE, 3).transpose(4, 1, 3, 0, 2).reshape(-1, h, w)
    whole = np.zeros((1, len(x), -(-h // PART) * PART, -(-w // PART) * PART), np.float32)
    np.multiply(x, np.float32(1 / 255), out=whole[0, :, :h, :w])
    whole[0, :, :h, :w] -= np.float32(0.5)
    return whole


def padded(box: PixelBox, width: int, height: int) -> PixelBox:
    """Return the part of an image that contains a box, enlarged to the sizes to which `blocks` pads anyway."""
    parts = []
    for start, size, most in ((box.u, box.width, width), (box.v, box.height, height)):
        length = min(-(-size // (STRIDE * PART)) * STRIDE * PART, most)
        middle = start + size // 2 - length // 2
        parts.append((min(max(middle, 0), most - length) // STRIDE * STRIDE, length))
    (u, w), (v, h) = parts
    return PixelBox(u, v, w, h)


def to_image(at: Array) -> Array:
    """Convert map to image pixels: map pixel i covers image pixels 2 i and 2 i + 1, so its centre is 2 i + 0.5."""
    return STRIDE * at + (STRIDE - 1) / 2


def to_map(px: Array) -> Array:
    """Convert image to map pixels."""
    return (px - (STRIDE - 1) / 2) / STRIDE


def probability(log_odds: Float32) -> Array:
    """Return the probabilities of log-odds."""
    return np.asarray(1 / (1 + np.exp(-log_odds.astype(float))))


def peak_offset(before: Array, at: Array, after: Array) -> Array:
    """Return the offset (N,) of a peak's vertex from its pixel by the probabilities there and beside it.

    The logarithm of a Gaussian peak is a parabola, whose vertex follows from three samples.
    """
    before, at, after = (np.log(height + EPS) for height in (before, at, after))
    return np.asarray(np.clip((after - before) / (2 * np.maximum(2 * at - before - after, 1e-3)), -0.5, 0.5))
