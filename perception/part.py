"""Gate detectors that a user brings."""

from typing import Protocol

from gate_racer.common.compiled import Image
from gate_racer.common.config import shown
from gate_racer.common.parts import Part, array_of
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.vehicle.camera import Camera

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
        detections = [one for one in checked if one is not None]
        if len(detections) < len(checked):
            self.refused += 1
            if not why:
                self._part.fault(f"detect returned {shown(found)}, not a list of Detection with finite entries")
            return []
        return sorted(detections, key=lambda one: -one.score)


def _checked(found: object) -> Detection | None:
    """Return what is a `Detection` with finite entries, its corners alone; else None."""
    if not isinstance(found, Detection) or array_of(found.score) is None:
        return None
    px, cov, seen = array_of(found.corners_px, 4, 2), array_of(found.cov_px, 4, 2, 2), array_of(found.visible, 4)
    if px is None or cov is None or seen is None:
        return None
    return Detection(px, cov, seen > 0, float(found.score), near_face=bool(found.near_face))
