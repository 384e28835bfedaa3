"""Task 1: a detector of one's own. Here: the box around everything blue, which is right as long as one pad is in sight."""

import cv2
import numpy as np

from gate_racer.program import Box, Land, Null, Status

SCENARIO = "detector"  # its pad lies where the flight begins


def detect(image):
    """Boxes in an image (height, width, 3), BGR, 8 bit."""
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    x, y, w, h = cv2.boundingRect(cv2.inRange(hsv, np.array([95, 120, 80]), np.array([125, 255, 255])))
    return [Box(x, y, x + w - 1, y + h - 1)] if w and h else []


def decide(report, pads):
    return Land() if pads and report.status is Status.HALTED else Null()
