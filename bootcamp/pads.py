"""Detection of landing pads: blue, roughly square, wholly visible patches."""

import cv2
import numpy as np

from gate_racer.bootcamp.api import Box
from gate_racer.sim.view.texture import Image

BLUE_LOW, BLUE_HIGH = (95, 120, 80), (125, 255, 255)  # HSV of OpenCV, hue 0 to 179
SIDE_MIN_PX = 10  # px, least side of a box (chosen)
ASPECT_MAX = 1.8  # -, greatest ratio of sides: a tilted camera stretches squares (chosen)
FILLED_MIN = 0.4  # -, least share of the box that the contour fills (chosen)


def detect_pads(image: Image) -> list[Box]:
    """Return the bounding boxes of all pads wholly inside an image (H, W, 3) BGR uint8, from left to right."""
    mask = cv2.inRange(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), np.array(BLUE_LOW), np.array(BLUE_HIGH))
    height, width = mask.shape
    boxes = []
    for contour in cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        x, y, w, h = cv2.boundingRect(contour)
        inside = x > 0 and y > 0 and x + w < width and y + h < height
        square = max(w, h) <= ASPECT_MAX * min(w, h) and cv2.contourArea(contour) >= FILLED_MIN * w * h
        if inside and square and min(w, h) >= SIDE_MIN_PX:
            boxes.append(Box(x, y, x + w - 1, y + h - 1))
    return sorted(boxes)
