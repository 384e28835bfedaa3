"""What a detector is: an image in, the corners of every gate's opening out, each with its own covariance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from perception.common.covariance import corner_covariance_px2
from perception.common.types import Image, Mask
from perception.roi import SearchWindow
from vehicle.camera import Camera
from vehicle.image_file import decode_image
from vehicle.rotation import Array


@dataclass(frozen=True, slots=True)
class Detection:
    """One gate, seen wholly or in part.

    An edge that is cut by the image still tells where its corners are across it, if not along it: the covariance of such a
    corner is long in one direction, and the corner's place in that direction a guess.
    """

    corners_px: Array  # (4, 2) of the opening: top-left, top-right, bottom-right, bottom-left as seen in the image
    cov_px: Array  # (4, 2, 2) px^2 of each corner
    visible: Mask  # (4,) the corner lies in the image and was measured there
    score: float  # 0..1: how sure it is that this is a gate
    outer_px: Array | None = None  # (4, 2) of the frame's silhouette in the same order, where it was seen as well
    outer_cov_px: Array | None = None  # (4, 2, 2) px^2
    near_face: bool = (
        False  # the corners are the nominal ones of the near face's opening; else of the hole that is seen through
    )

    @classmethod
    def whole(cls, corners_px: Array, sigma_px: float, score: float) -> "Detection":
        """An opening wholly in view whose corner coordinates all have the standard deviation sigma_px."""
        return cls(corners_px, np.tile(sigma_px**2 * np.eye(2), (4, 1, 1)), np.ones(4, bool), score)

    @classmethod
    def partly(cls, corners_px: Array, measured: Mask, visible: Mask, sigma_px: float, score: float) -> "Detection":
        """An opening of which only some sides (4,) were measured, each with the standard deviation sigma_px across it."""
        cov_px = corner_covariance_px2(corners_px, measured, np.full((4, 2), sigma_px))
        return cls(corners_px, cov_px, visible, score)

    def moved(self, by_px: Array) -> "Detection":
        """This gate in a larger image, in which the top left of the present one stands at by_px (2,)."""
        outer_px = None if self.outer_px is None else self.outer_px + by_px
        return replace(self, corners_px=self.corners_px + by_px, outer_px=outer_px)

    def record(self) -> dict[str, object]:
        """What a flight log keeps: px to 0.001, covariances as uu, uv, vv, and no silhouette where none was seen."""
        outer = None if self.outer_px is None or self.outer_cov_px is None else (self.outer_px, self.outer_cov_px)
        return {
            "corners_px": np.round(self.corners_px, 3),
            "cov_px": _packed(self.cov_px),
            "visible": self.visible,
            "score": round(self.score, 3),
            "outer_px": np.round(outer[0], 3) if outer else [],
            "outer_cov_px": _packed(outer[1]) if outer else [],
            "near_face": self.near_face,
        }

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> "Detection":
        """Read what `record` gave, from a flight log."""
        px, cov, visible = np.array(record["corners_px"]), _unpacked(record["cov_px"]), np.array(record["visible"])
        found = cls(px, cov, visible, record["score"], near_face=bool(record.get("near_face", False)))
        if not record.get("outer_px"):  # not seen, or of a log older than that
            return found
        outer_px, outer_cov_px = np.array(record["outer_px"]), _unpacked(record["outer_cov_px"])
        return replace(found, outer_px=outer_px, outer_cov_px=outer_cov_px)

    @property
    def sigma_px(self) -> float:
        """Root mean square standard deviation of one coordinate of a visible corner."""
        cov = self.cov_px[self.visible] if self.visible.any() else self.cov_px
        return float(np.sqrt(np.trace(cov.mean(0)) / 2))


def _packed(cov_px: Array) -> Array:
    return np.round(cov_px.reshape(-1, 4)[:, [0, 1, 3]], 5)


def _unpacked(rows: list[list[float]]) -> Array:
    return np.asarray(np.array(rows)[:, [0, 1, 1, 2]].reshape(-1, 2, 2))


class Detector(Protocol):
    """Never raises: an image of the wrong form gives an empty list and is counted in `refused`."""

    @property
    def refused(self) -> int:
        """How many were."""
        ...

    @property
    def camera(self) -> Camera:
        """Whose images it takes."""
        ...

    def detect(self, image: Image | None, window: SearchWindow | None = None) -> list[Detection]:
        """All gates in an image (H, W, 3) BGR, or at least in a search window, best first. Pixel centres are at integers."""
        ...


def decode(data: bytes, camera: Camera) -> Image | None:
    """The camera's image (H, W, 3) BGR, or None if the bytes are none of its size."""
    return decode_image(data, (camera.width_px, camera.height_px))
