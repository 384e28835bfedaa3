"""Registry of the detectors by name, which is read by command lines and loads a detector when it is opened."""

from collections.abc import Callable

from gate_racer.common.compiled import warm_up
from gate_racer.common.errors import UserError
from gate_racer.perception.detection import Detector
from gate_racer.vehicle.camera import Camera


def _classical(camera: Camera) -> Detector:
    from gate_racer.perception.classical.detector import ColourDetector

    return ColourDetector(camera)


def _learned(camera: Camera) -> Detector:
    try:
        from gate_racer.perception.learned.detector import LearnedDetector
    except ImportError as error:
        raise UserError(f"--detector learned: cannot be loaded ({error})") from None
    return LearnedDetector(camera)


CLASSICAL = "classical"
DETECTORS: dict[str, Callable[[Camera], Detector]] = {CLASSICAL: _classical, "learned": _learned}


def open_detector(name: str, camera: Camera) -> Detector:
    """Return the detector called `name`, for the images of a camera.

    Raises:
        UserError: there is no such detector, or its files are missing.

    Examples:
        >>> import numpy as np
        >>> from gate_racer import open_detector
        >>> detector = open_detector("classical", vehicle.camera)
        >>> detector.detect(np.zeros((360, 640, 3), np.uint8))  # BGR
        []
    """
    if name not in DETECTORS:
        raise UserError(f"no detector {name!r}; known: {', '.join(DETECTORS)}")
    detector = DETECTORS[name](camera)
    warm_up()
    return detector
