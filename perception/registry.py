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
    from gate_racer.perception.classical.detector import ColourDetector
    from gate_racer.perception.detection import NEEDED, PartDetector
    from gate_racer.perception.taught.detector import SHIPPED, GateNetwork, TaughtDetector

    detector: Detector
    if name in DETECTORS:
        detector = ColourDetector(camera, network=GateNetwork(SHIPPED) if name == LEARNED else None)
    elif is_part(name):
        detector = PartDetector(Part(name, "gate detector", NEEDED, (camera,), patience_s), camera)
    elif name.endswith(TAUGHT):
        detector = TaughtDetector(camera, Path(name))
    else:
        known = f"{', '.join(DETECTORS)}, FILE{TAUGHT} of train-detector, or {CLASS}"
        raise UserError(f"no detector {name!r}; known: {known}")
    warm_up()
    return detector
