"""Detectors by name, or by the file of a network that `train-detector` taught."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gate_racer.common.errors import UserError
from gate_racer.common.parts import CLASS, PATIENCE_S, Part, is_part

if TYPE_CHECKING:
    from gate_racer.perception.detection import Detector
    from gate_racer.vehicle.camera import Camera

CLASSICAL, LEARNED = "classical", "learned"
DETECTORS = CLASSICAL, LEARNED
TAUGHT = ".onnx"  # suffix of a network's file


def open_detector(name: str, camera: Camera, patience_s: float = PATIENCE_S) -> Detector:
    """Return the detector called `name`, or of the network's file or the user's class `name`, for the images of a camera.

    Raises:
        UserError: there is no such detector, its files are missing or malformed, or the class cannot be loaded or made.

    Examples:
        >>> import numpy as np
        >>> from gate_racer import open_detector
        >>> detector = open_detector("classical", vehicle.camera)
        >>> detector.detect(np.zeros((360, 640, 3), np.uint8))  # BGR
        []
    """
    from gate_racer.common.compiled import warm_up

    detector = _opened(name, camera, patience_s)
    warm_up()
    return detector


def _opened(name: str, camera: Camera, patience_s: float) -> Detector:
    if name == CLASSICAL:
        from gate_racer.perception.classical.detector import ColourDetector

        return ColourDetector(camera)
    if name == LEARNED:
        from gate_racer.perception.classical.detector import ColourDetector
        from gate_racer.perception.taught.detector import SHIPPED, GateNetwork

        return ColourDetector(camera, network=GateNetwork(SHIPPED))
    if is_part(name):
        from gate_racer.perception.detection import NEEDED, PartDetector

        return PartDetector(Part(name, "gate detector", NEEDED, (camera,), patience_s), camera)
    if not name.endswith(TAUGHT):
        known = f"{', '.join(DETECTORS)}, FILE{TAUGHT} of train-detector, or {CLASS}"
        raise UserError(f"no detector {name!r}; known: {known}")
    from gate_racer.perception.taught.detector import TaughtDetector

    return TaughtDetector(camera, Path(name))
