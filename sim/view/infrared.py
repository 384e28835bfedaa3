"""Rendered images in other spectra: grey, and infrared, with brightness taken for temperature."""

import cv2
import numpy as np

from gate_racer.link.rflysim.sensors import GREY, INFRARED, INFRARED_GREY
from gate_racer.sim.view.texture import Image


def in_light(image: Image, type_id: int) -> Image:
    """Convert a BGR image (H, W, 3) to the spectrum of a camera type: (H, W) or (H, W, 3), 8 bit."""
    if type_id not in (GREY, INFRARED, INFRARED_GREY):
        return image
    grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)
    return np.asarray(cv2.applyColorMap(grey, cv2.COLORMAP_INFERNO), np.uint8) if type_id == INFRARED else grey
