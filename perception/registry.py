"""Detectors by name, or by the file of a network that `train-detector` taught."""

from pathlib import Path

from gate_racer.common.compiled import warm_up
from gate_racer.common.errors import UserError
from gate_racer.perception.detection import Detector
from gate_racer.vehicle.camera import Camera

CLASSICAL, LEARNED = "classical", "learned"
DETECTORS = CLASSICAL, LEARNED
TAUGHT = ".onnx"  # suffix of a network's file


def open_detector(name: str, camera: Camera) -> Detector:
    """Return the detector called `name`, or of the network's file `name`, for the images of a camera.

    Raises:
        UserError: there is no such detector, or its files are missing or malformed.

    Examples:
        >>> import numpy as np
        >>> from gate_racer import open_detector
        >>> detector = open_detector("classical", vehicle.camera)
        >>> detector.detect(np.zeros((360, 640, 3), np.uint8))  # BGR
        []
    """
    detector = _opened(name, camera)
    warm_up()
    return detector


def _opened(name: str, camera: Camera) -> Detector:
    if name == CLASSICAL:
        from gate_racer.perception.classical.detector import ColourDetector

        return ColourDetector(camera)
    if name == LEARNED:
        from gate_racer.perception.learned.detector import LearnedDetector

        return LearnedDetector(camera)
    if not name.endswith(TAUGHT):
        raise UserError(f"no detector {name!r}; known: {', '.join(DETECTORS)}, or FILE{TAUGHT} of train-detector")
    from gate_racer.perception.taught.detector import TaughtDetector

    return TaughtDetector(camera, Path(name))
