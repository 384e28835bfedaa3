"""Network: part of an image in, maps of its corners and edges at half the resolution out, run by OpenCV on the CPU.

Map k < 4 holds the log-odds of corner k (top-left, top-right, bottom-right, bottom-left as seen), maps 4 + 2k and 5 + 2k the
unit vector along the edge from corner k to the next. Its training is described in `gate_net.yaml` and `tools/training`.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from gate_racer.perception.common.preprocessing import PixelBox
from gate_racer.perception.common.types import Float32, Image
from gate_racer.vehicle.config import load
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array

NET = Path(__file__).parent / "gate_net.onnx"
CARD = NET.with_suffix(".yaml")
CORNERS, FIELDS = 4, 8  # numbers of maps
STRIDE = 2  # image pixels per map pixel
PART = 32  # map pixels, divisor of map sizes: the network halves its maps five times


@dataclass(frozen=True, slots=True)
class NetworkCard:
    """Provenance and calibration of the network's file."""

    source: str  # origin of the weights
    command: str  # command of the training
    peak: tuple[float, ...]  # heights of a corner's peak, increasing, and
    sigma_px: tuple[float, ...]  # ... standard deviation of a coordinate of its position, from held-out frames
    score: float  # least score of a group to be measured in the image
    sure: float  # least score of a whole gate, times the measured share of its sides
    sure_part: float  # likewise of a partly visible one

    def __post_init__(self) -> None:
        if len(self.peak) != len(self.sigma_px) or list(self.peak) != sorted(set(self.peak)) or min(self.sigma_px) <= 0:
            raise ValueError("peak must increase, sigma_px must be positive, and both must have the same length")


class GateNetwork:
    """Shipped network, for images (H, W, 3) of one size."""

    def __init__(self, shape: tuple[int, int, int]):
        """Load the network and its card.

        Raises:
            UserError: the network's file is missing or has the wrong outputs.
        """
        self.card = load(CARD, NetworkCard)
        try:
            self._net = cv2.dnn.readNetFromONNX(str(NET))
            maps = self.maps(np.zeros(shape, np.uint8))
        except cv2.error as error:
            raise UserError(f"{NET}: cannot be loaded ({error.err})") from None
        if maps.shape[0] != CORNERS + FIELDS:
            raise UserError(f"{NET}: has {maps.shape[0]} output maps, must have {CORNERS + FIELDS}")

    def maps(self, image: Image) -> Float32:
        """Return the maps (12, H / 2, W / 2) of an image (H, W, 3) BGR."""
        self._net.setInput(blocks(image))
        return np.asarray(self._net.forward()[0][:, : image.shape[0] // STRIDE, : image.shape[1] // STRIDE])


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
    """Return the part of an image that contains a box, enlarged to the sizes to which the network pads anyway."""
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
