"""The detectors by name."""

from typing import Any

import numpy as np

from perception.detection import Detection, Detector
from perception.detector import ColourDetector
from perception.search import Expected
from vehicle.camera import Camera
from vehicle.errors import UserError


class WholePicture:
    """A detector whose net sees whole pictures only, and needs to know nothing of the gates."""

    def __init__(self, detector: Any):
        self._detector = detector

    @property
    def refused(self) -> int:
        refused: int = self._detector.refused
        return refused

    def detect(self, image: np.ndarray | None, expected: Expected | None = None) -> list[Detection]:
        """All gates of the picture, whatever is expected."""
        found: list[Detection] = self._detector.detect(image)
        return found


def _learned(camera: Camera) -> Detector:
    try:
        from perception.learned import LearnedDetector
    except ImportError as error:
        raise UserError(f"--detector learned: cannot be loaded ({error})") from None
    return WholePicture(LearnedDetector(camera))


CLASSICAL = "classical"
DETECTORS = {CLASSICAL: ColourDetector, "learned": _learned}


def open_detector(name: str, camera: Camera) -> Detector:
    """The detector of a name. Raises UserError: no such name, or its files are missing."""
    if name not in DETECTORS:
        raise UserError(f"no detector {name!r}; known: {', '.join(DETECTORS)}")
    return DETECTORS[name](camera)
