"""What a detector is: a picture in, the corners of every gate's opening out, each with its own covariance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from perception.search import Expected
from perception.squares import AFTER, BEFORE
from vehicle.camera import Camera
from vehicle.picture import decode_picture
from vehicle.rotation import Array

UNSEEN_PX = 30.0  # least std of a side that is not seen


def crossings_cov_px(corners_px: Array, measured: np.ndarray, sigma_px: Array) -> Array:
    """Covariances (..., 4, 2, 2) px^2 of the corners (..., 4, 2) in which the lines of the sides meet.

    A line holds a corner across itself: the information of both adds up.

    Args:
        measured: (..., 4) bool; a side that was not is known to about its length.
        sigma_px: (..., 4, 2) standard deviations across the measured lines, at their starts and ends.
    """
    along = corners_px[..., AFTER, :] - corners_px
    side_px = np.linalg.norm(along, axis=-1)
    outward = np.stack([along[..., 1], -along[..., 0]], -1) / np.maximum(side_px, 1.0)[..., None]
    sigma = np.where(measured[..., None], sigma_px, np.maximum(side_px, UNSEEN_PX)[..., None])
    n = np.stack([outward[..., BEFORE, :], outward], -2)  # (..., 4, 2 lines, 2)
    weight = 1 / np.stack([sigma[..., BEFORE, 1], sigma[..., 0]], -1) ** 2
    information = np.swapaxes(n * weight[..., None], -1, -2) @ n
    information += np.eye(2) / (10 * UNSEEN_PX) ** 2  # parallel lines have no corner
    return np.asarray(np.linalg.inv(information))


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

    @classmethod
    def partly(
        cls, corners_px: Array, measured: np.ndarray, visible: np.ndarray, sigma_px: float, score: float
    ) -> "Detection":
        """An opening of which only some sides (4,) were measured, each with the standard deviation sigma_px across it."""
        cov_px = crossings_cov_px(corners_px, measured, np.full((4, 2), sigma_px))
        return cls(corners_px, cov_px, visible, score)

    def moved(self, by_px: Array) -> "Detection":
        """This gate in a larger picture, in which the top left of the present one stands at by_px (2,)."""
        outer_px = None if self.outer_px is None else self.outer_px + by_px
        return replace(self, corners_px=self.corners_px + by_px, outer_px=outer_px)

    def record(self) -> dict[str, Any]:
        """What a flight log keeps of it: px to 0.001, covariances as uu, uv, vv, nothing of a frame that was not seen."""
        outer = None if self.outer_px is None or self.outer_cov_px is None else (self.outer_px, self.outer_cov_px)
        return {
            "corners_px": np.round(self.corners_px, 3),
            "cov_px": _packed(self.cov_px),
            "visible": self.visible,
            "score": round(self.score, 3),
            "outer_px": np.round(outer[0], 3) if outer else [],
            "outer_cov_px": _packed(outer[1]) if outer else [],
        }

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> "Detection":
        """From a flight log."""
        px, cov, visible = np.array(record["corners_px"]), _unpacked(record["cov_px"]), np.array(record["visible"])
        if not record.get("outer_px"):  # not seen, or of a log older than that
            return cls(px, cov, visible, record["score"])
        outer = np.array(record["outer_px"]), _unpacked(record["outer_cov_px"])
        return cls(px, cov, visible, record["score"], *outer)

    @property
    def sigma_px(self) -> float:
        """Root mean square standard deviation of one coordinate of a visible corner."""
        cov = self.cov_px[self.visible] if self.visible.any() else self.cov_px
        return float(np.sqrt(np.trace(cov.mean(0)) / 2))


def _packed(cov_px: Array) -> Array:
    return np.round(cov_px.reshape(-1, 4)[:, [0, 1, 3]], 5)


def _unpacked(rows: list[list[float]]) -> Array:
    return np.array(rows)[:, [0, 1, 1, 2]].reshape(-1, 2, 2)


class Detector(Protocol):
    """Never raises: a picture of the wrong form gives an empty list and is counted in `refused`."""

    @property
    def refused(self) -> int:
        """How many were."""
        ...

    @property
    def camera(self) -> Camera:
        """Whose pictures it takes."""
        ...

    def detect(self, image: np.ndarray | None, expected: Expected | None = None) -> list[Detection]:
        """All gates in a picture (H, W, 3) BGR uint8, or at least in its window, best first. Pixel centres are at integers."""
        ...


def decode(data: bytes, camera: Camera) -> np.ndarray | None:
    """The camera's picture (H, W, 3) BGR uint8, or None if the bytes are none of its size."""
    return decode_picture(data, (camera.width_px, camera.height_px))


def from_top_left(corners_px: Array) -> int:
    """Number of the corner (4, 2) that is nearest to the picture's top left: where the order begins."""
    return int(corners_px.sum(-1).argmin())
