"""What both networks share: their input and its scale, the file run by OpenCV on the CPU, and peaks to sub-pixel accuracy."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from gate_racer.common.compiled import Float32, Image
from gate_racer.common.errors import UserError
from gate_racer.vehicle.rotation import Array

STRIDE = 2  # image pixels per pixel of a map
PART = 32  # map pixels, divisor of map sizes: the networks halve their maps five times
EPS = 1e-4  # -, below any relevant probability: keeps logarithms finite


class OnnxNetwork:
    """Network of an ONNX file whose input are `blocks`."""

    def __init__(self, file: Path, wrong: str, outputs: Sequence[str] = (), shape: tuple[int, int, int] = (64, 64, 3)):
        """Load a network and run it once.

        Args:
            wrong: what the error says of a file that OpenCV cannot run.
            outputs: names of its outputs; none for all.
            shape: of the first image, (H, W, 3).

        Raises:
            UserError: the file is missing, malformed or without these outputs.
        """
        if not file.is_file():
            raise UserError(f"{file}: no such network of a detector")
        try:
            self._net = cv2.dnn.readNetFromONNX(str(file))
            self._outputs = outputs or self._net.getUnconnectedOutLayersNames()
            self.maps(np.zeros(shape, np.uint8))
        except cv2.error as error:
            raise UserError(f"{file}: {wrong} ({error.err})") from None

    def maps(self, image: Image) -> list[Float32]:
        """Return the outputs (C, h, w) for an image (H, W, 3) BGR."""
        self._net.setInput(blocks(image))
        return [np.asarray(out[0]) for out in self._net.forward(self._outputs)]


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
