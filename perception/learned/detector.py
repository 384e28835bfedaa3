"""Learned detector, stage by stage: that of Swift (Nature 2023) at half resolution, on the CPU, with measured edges.

The network maps the part of an image that is redder than green to heat maps of corners and fields of edges. These propose gates,
which the image verifies: the edges between the corners are measured in it, and the frame around them must be equally wide on all
sides.

    preprocess -> maps -> group corners -> measure edges -> verify
"""

from dataclasses import replace

import cv2
import numpy as np

from gate_racer.perception.common.gate_model import DRAWN_GATE
from gate_racer.perception.common.preprocessing import PixelBox, gate_region, normalise_exposure
from gate_racer.perception.common.types import Image
from gate_racer.perception.detection import Detection
from gate_racer.perception.learned.config import LearnedConfig
from gate_racer.perception.learned.heatmaps import CornerGroup, group_corners
from gate_racer.perception.learned.measure import measure
from gate_racer.perception.learned.network import STRIDE, GateNetwork, padded
from gate_racer.perception.learned.verify import is_same_gate, verify
from gate_racer.perception.roi import SearchWindow
from gate_racer.perception.suppression import suppress_duplicates
from gate_racer.vehicle.camera import Camera


class LearnedDetector:
    """Gate detector by a network, for gates with at least two visible corners. `refused` counts images of the wrong form."""

    def __init__(self, camera: Camera, config: LearnedConfig | None = None):
        """Load the network.

        Raises:
            UserError: the network's file is missing or has the wrong outputs.
        """
        self.refused = 0
        self.camera = camera
        self._config = config or LearnedConfig()
        self._shape = (camera.height_px, camera.width_px, 3)
        self._network = GateNetwork(self._shape)

    def detect(self, image: Image | None, window: SearchWindow | None = None) -> list[Detection]:
        """Return all gates in an image (H, W, 3) BGR, or at least in the search window, best first."""
        if not isinstance(image, np.ndarray) or image.shape != self._shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        card, config = self._network.card, self._config
        image = normalise_exposure(image, config.exposure)
        red = cv2.extractChannel(image, 2)
        box = self._reddish(image, red, window)
        groups = self._propose(image, box) if box.width else []
        if not groups:
            return []
        measured = measure(red, groups, card, self.camera.fx_px, config)
        # The depth of frames narrower than usual appears as wide as theirs.
        frame_ratio = window.frame_ratio if window is not None else 0.0
        ratio = max(DRAWN_GATE.silhouette_ratio_of(frame_ratio), DRAWN_GATE.silhouette_ratio)
        found = verify(red, measured, ratio, card, config)
        return suppress_duplicates(found, lambda a, b: is_same_gate(a, b, config.acceptance))

    def _reddish(self, image: Image, red: Image, window: SearchWindow | None) -> PixelBox:
        """Return the part of the image, or of its window, in which gates may be."""
        region = window.region if window is not None else None
        rows, columns = region or (slice(0, image.shape[0]), slice(0, image.shape[1]))
        box = gate_region(cv2.subtract(red[rows, columns], image[rows, columns, 1]), self._config.region)[1]
        return box._replace(u=box.u + columns.start, v=box.v + rows.start)

    def _propose(self, image: Image, box: PixelBox) -> list[CornerGroup]:
        """Return groups of corners in and around a box of the image, in map pixels of the whole image."""
        u, v, w, h = padded(box, image.shape[1], image.shape[0])
        groups = group_corners(self._network.maps(image[v : v + h, u : u + w]), self._config.heatmaps)
        likely = [group for group in groups if group.score >= self._network.card.score]
        return [replace(group, at=group.at + np.array([u, v]) / STRIDE) for group in likely]
