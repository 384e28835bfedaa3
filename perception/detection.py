"""Interface of the detectors: image in, corners of every gate's opening out, each with its own covariance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gate_racer.perception.common.covariance import corner_covariance_px2
from gate_racer.perception.common.types import Image
from gate_racer.perception.roi import SearchWindow
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.image_file import decode_image
from gate_racer.vehicle.rotation import Array, Mask


@dataclass(frozen=True, slots=True)
class Detection:
    """Detection of one gate, wholly or partly in view.

    An edge cut by the image border still constrains its corners across it, but not along it: the covariance of such a corner is
    elongated in one direction, and the corner's position in that direction a guess.
    """

    corners_px: Array  # (4, 2) of the opening: top-left, top-right, bottom-right, bottom-left as seen in the image
    cov_px: Array  # (4, 2, 2) px^2 of each corner
    visible: Mask  # (4,) corners that lie in the image and were measured there
    score: float  # 0..1, confidence
    outer_px: Array | None = None  # (4, 2) of the frame's silhouette, in the same order; None if not measured
    outer_cov_px: Array | None = None  # (4, 2, 2) px^2
    near_face: bool = False  # corners of the near face's nominal opening; else of the visible hole, see `rims`

    @classmethod
    def whole(cls, corners_px: Array, sigma_px: float, score: float) -> "Detection":
        """Return the detection of an opening wholly in view, with standard deviation sigma_px of all corner coordinates."""
        return cls(corners_px, np.tile(sigma_px**2 * np.eye(2), (4, 1, 1)), np.ones(4, bool), score)

    @classmethod
    def partly(cls, corners_px: Array, measured: Mask, visible: Mask, sigma_px: float, score: float) -> "Detection":
        """Return the detection of an opening with `measured` sides (4,), each with standard deviation sigma_px across it."""
        cov_px = corner_covariance_px2(corners_px, measured, np.full((4, 2), sigma_px))
        return cls(corners_px, cov_px, visible, score)

    def moved(self, by_px: Array) -> "Detection":
        """Return this detection in a larger image, in which the origin of the present one lies at by_px (2,)."""
        outer_px = None if self.outer_px is None else self.outer_px + by_px
        return replace(self, corners_px=self.corners_px + by_px, outer_px=outer_px)

    def record(self) -> dict[str, object]:
        """Return the entry of a flight log: px to 0.001, covariances as uu, uv, vv, and an empty silhouette if not measured."""
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
        """Return the detection of a flight log's entry: the inverse of `record`."""
        px, cov, visible = np.array(record["corners_px"]), _unpacked(record["cov_px"]), np.array(record["visible"])
        found = cls(px, cov, visible, record["score"], near_face=bool(record.get("near_face", False)))
        if not record.get("outer_px"):  # not measured, or a log of an earlier version
            return found
        outer_px, outer_cov_px = np.array(record["outer_px"]), _unpacked(record["outer_cov_px"])
        return replace(found, outer_px=outer_px, outer_cov_px=outer_cov_px)

    @property
    def sigma_px(self) -> float:
        """Standard deviation of one coordinate, root mean square over the visible corners."""
        cov = self.cov_px[self.visible] if self.visible.any() else self.cov_px
        return float(np.sqrt(np.trace(cov.mean(0)) / 2))


def _packed(cov_px: Array) -> Array:
    return np.round(cov_px.reshape(-1, 4)[:, [0, 1, 3]], 5)


def _unpacked(rows: list[list[float]]) -> Array:
    return np.asarray(np.array(rows)[:, [0, 1, 1, 2]].reshape(-1, 2, 2))


class Detector(Protocol):
    """Gate detector. Never raises: an image of the wrong form gives an empty list and is counted in `refused`."""

    @property
    def refused(self) -> int:
        """Number of images of the wrong form."""
        ...

    @property
    def camera(self) -> Camera:
        """Camera of the images."""
        ...

    def detect(self, image: Image | None, window: SearchWindow | None = None) -> list[Detection]:
        """Return all gates in an image (H, W, 3) BGR, or at least in the search window, best first. Pixel centres at integers."""
        ...


def decode(data: bytes, camera: Camera) -> Image | None:
    """Decode an image (H, W, 3) BGR; None if the bytes are not an image of the camera's size."""
    return decode_image(data, (camera.width_px, camera.height_px))
