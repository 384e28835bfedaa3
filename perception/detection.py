"""What a detector is: a picture in, the corners of every gate's opening out, each with its own covariance."""

from dataclasses import dataclass, replace
from typing import Protocol

import cv2
import numpy as np

from perception.search import Expected
from vehicle.rotation import Array

START_OF_JPEG = b"\xff\xd8"
END_OF_JPEG = b"\xff\xd9"  # cannot occur in the compressed data, so without it the end is missing


@dataclass(frozen=True, slots=True)
class Detection:
    """One gate, seen wholly or in part.

    An edge that is cut by the picture still tells where its corners are across it, if not along it: the covariance of such
    a corner is long in one direction, and the corner's place in that direction a guess.
    """

    corners_px: Array  # (4, 2) of the opening: top-left, top-right, bottom-right, bottom-left as seen in the picture
    cov_px: Array  # (4, 2, 2) px^2 of each corner
    visible: np.ndarray  # (4,) bool: the corner lies in the picture and was measured there
    score: float  # 0..1: how sure it is that this is a gate
    outer_px: Array | None = None  # (4, 2) of the frame's outer square in the same order, where it was seen as well
    outer_cov_px: Array | None = None  # (4, 2, 2) px^2

    @classmethod
    def whole(cls, corners_px: Array, sigma_px: float, score: float) -> "Detection":
        """An opening wholly in view whose corner coordinates all have the standard deviation sigma_px."""
        return cls(corners_px, np.tile(sigma_px**2 * np.eye(2), (4, 1, 1)), np.ones(4, bool), score)

    def moved(self, by_px: Array) -> "Detection":
        """This gate in a larger picture, in which the top left of the present one stands at by_px (2,)."""
        outer_px = None if self.outer_px is None else self.outer_px + by_px
        return replace(self, corners_px=self.corners_px + by_px, outer_px=outer_px)

    @property
    def frame(self) -> float:
        """The frame's size over the opening's as seen, NaN where only one of them was."""
        if self.outer_px is None:
            return np.nan
        outer, inner = (cv2.contourArea(quad.astype(np.float32)) for quad in (self.outer_px, self.corners_px))
        return float(np.sqrt(outer / inner))

    @property
    def sigma_px(self) -> float:
        """Root mean square standard deviation of one coordinate of a visible corner."""
        cov = self.cov_px[self.visible] if self.visible.any() else self.cov_px
        return float(np.sqrt(np.trace(cov.mean(0)) / 2))


class Detector(Protocol):
    """Never raises: a picture of the wrong form gives an empty list and is counted in `refused`."""

    @property
    def refused(self) -> int:
        """How many were."""
        ...

    def detect(self, image: np.ndarray | None, expected: Expected | None = None) -> list[Detection]:
        """All gates in a picture (H, W, 3) BGR uint8, or at least in its window, best first. Pixel centres are at integers."""
        ...


def decode(data: bytes) -> np.ndarray | None:
    """The picture (H, W, 3) BGR uint8, or None if the bytes are none or a JPEG without its end."""
    if not data or (data.startswith(START_OF_JPEG) and END_OF_JPEG not in data):
        return None
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        return None


def from_top_left(corners_px: Array) -> int:
    """Number of the corner (4, 2) that is nearest to the picture's top left: where the order begins."""
    return int(corners_px.sum(-1).argmin())
