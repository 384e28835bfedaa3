"""Drawn images in other light: grey, and infrared, where in this world what shines is what is warm."""

import cv2
import numpy as np

from link.rflysim.sensors import GREY, INFRARED, INFRARED_GREY
from sim.view.renderer import Image


def in_light(image: Image, type_id: int) -> Image:
    """(H, W) or (H, W, 3) of 8 bit: a BGR image (H, W, 3) as a camera of another type sees it."""
    if type_id not in (GREY, INFRARED, INFRARED_GREY):
        return image
    grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)
    return np.asarray(cv2.applyColorMap(grey, cv2.COLORMAP_INFERNO), np.uint8) if type_id == INFRARED else grey
