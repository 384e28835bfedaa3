"""Landing pads in images: blue patches of about square shape, wholly visible."""

import cv2
import numpy as np

from bootcamp.api import Box
from bootcamp.floor import Image

BLUE_LOW, BLUE_HIGH = (95, 120, 80), (125, 255, 255)  # HSV of OpenCV, hue 0 to 179
SIDE_MIN_PX = 10
ASPECT_MAX = 1.8  # a tilted camera stretches squares
FILLED_MIN = 0.4  # of the box, the ring excepted


def detect_pads(image: Image) -> list[Box]:
    """The bounding boxes of all pads wholly inside an image (H, W, 3) BGR uint8, from left to right."""
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
