"""Interface of the detectors: image in, corners of every opening out, each with its own covariance."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.common.config import shown
from gate_racer.common.images import decode_image
from gate_racer.common.parts import Part, array_of
from gate_racer.model.quadrilateral import corner_covariance_px2
from gate_racer.perception.roi import SearchWindow
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Mask

BORDER_PX = 2.0  # a corner nearer to the image border may be cut (derived: half a JPEG chroma block)


@dataclass(frozen=True, slots=True)
class Detection:
    """Detection of one gate, wholly or partly in view.

    An edge cut by the image border still constrains its corners across it, but not along it: the covariance of such a corner is
    elongated in one direction, and the corner's position in that direction a guess.

    Examples:
        >>> from gate_racer import Detection
        >>> corners_px = np.array([[300.0, 160], [340, 160], [340, 200], [300, 200]])
        >>> Detection.whole(corners_px, sigma_px=2.0, score=0.9).sigma_px
        2.0
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
        outer_px, outer_cov_px = self.outer_px, self.outer_cov_px
        return {
            "corners_px": np.round(self.corners_px, 3),
            "cov_px": _packed(self.cov_px),
            "visible": self.visible,
            "score": round(self.score, 3),
            "outer_px": [] if outer_px is None else np.round(outer_px, 3),
            "outer_cov_px": [] if outer_cov_px is None else _packed(outer_cov_px),
            "near_face": self.near_face,
        }

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> "Detection":
        """Return the detection of a flight log's entry: the inverse of `record`."""
        px, cov, visible = np.array(record["corners_px"]), _unpacked(record["cov_px"]), np.array(record["visible"])
        outer: tuple[Array | None, Array | None] = None, None  # not measured, or a log of an earlier version
        if record.get("outer_px"):
            outer = np.array(record["outer_px"]), _unpacked(record["outer_cov_px"])
        return cls(px, cov, visible, record["score"], *outer, near_face=bool(record.get("near_face", False)))

    @property
    def sigma_px(self) -> float:
        """Standard deviation of one coordinate, root mean square over the visible corners."""
        cov = self.cov_px[self.visible] if self.visible.any() else self.cov_px
        return float(np.sqrt(np.trace(cov.mean(0)) / 2))


def _packed(cov_px: Array) -> Array:
    return np.round(cov_px.reshape(-1, 4)[:, [0, 1, 3]], 5)


def _unpacked(rows: list[list[float]]) -> Array:
    return np.asarray(np.array(rows)[:, [0, 1, 1, 2]].reshape(-1, 2, 2))


class Detector(ABC):
    """Gate detector for images of a camera's size. Never raises: others give an empty list and are counted in `refused`."""

    def __init__(self, camera: Camera):
        self.camera, self.refused = camera, 0
        self._shape = camera.height_px, camera.width_px, 3

    def detect_encoded(self, data: bytes, window: SearchWindow | None = None) -> list[Detection]:
        """Return the same as `detect` for an encoded image; none, which is counted, if it is not one of the camera's size."""
        return self.detect(decode_image(data, (self.camera.width_px, self.camera.height_px)), window)

    def detect(self, image: Image | None, window: SearchWindow | None = None) -> list[Detection]:
        """Return all gates in an image (H, W, 3) BGR, or at least in the search window, best first. Pixel centres at integers."""
        if not isinstance(image, np.ndarray) or image.shape != self._shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        return self._detect(image, window or SearchWindow(0.0))

    @abstractmethod
    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        """Return the gates in an image of the right form."""


NEEDED = ("detect",)
MOST = 100  # detections of one image; a course shows less than twenty gates (chosen)


class GateDetector(Protocol):
    """Gate detector, a part that a user may bring. Made as `Mine(camera)`; docs/parts.md has an example.

    Examples:
        >>> from gate_racer import Detection, GateDetector
        >>> class Middle(GateDetector):
        ...     def __init__(self, camera):
        ...         self.corners_px = 20.0 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) + [camera.cx_px, camera.cy_px]
        ...
        ...     def detect(self, image):
        ...         return [Detection.whole(self.corners_px, sigma_px=2.0, score=0.1)]
    """

    def detect(self, image: Image) -> list[Detection]:
        """Return the gates in an image (H, W, 3) uint8, BGR; pixel centres at integers. See `Detection.whole` and `partly`."""
        ...


class PartDetector(Detector):
    """Detector of a user's class: no gates where it fails, which `refused` counts as well."""

    def __init__(self, part: Part, camera: Camera):
        super().__init__(camera)
        self._part = part

    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        found, why = self._part.call("detect", image)
        checked = [_checked(one) for one in found] if isinstance(found, list) and len(found) <= MOST else [None]
        if None in checked:
            self.refused += 1
            if not why:
                self._part.fault(f"detect returned {shown(found)}, not a list of Detection with finite entries")
            return []
        return sorted(filter(None, checked), key=lambda one: -one.score)


def _checked(found: object) -> Detection | None:
    """Return what is a `Detection` with finite entries, its corners alone; else None."""
    if not isinstance(found, Detection) or array_of(found.score) is None:
        return None
    px, cov, seen = array_of(found.corners_px, 4, 2), array_of(found.cov_px, 4, 2, 2), array_of(found.visible, 4)
    if px is None or cov is None or seen is None:
        return None
    return Detection(px, cov, seen > 0, float(found.score), near_face=bool(found.near_face))
