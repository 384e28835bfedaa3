"""Lesson 3: find the pad. It is a blue square of 2 m with a white ring in it; not everything blue is one."""

import cv2
import numpy as np

from gate_racer.program import Box, Go, Land, Null, Status

SCENARIO = "distractors"
SIDE_PX = 64  # of a pad seen from 30 m: 2 m at 32 px/m
WHITE = np.array([0, 0, 180]), np.array([179, 70, 255])  # hue, saturation, value
BLUE = np.array([95, 120, 80]), np.array([125, 255, 255])


def detect(image):
    hsv = cv2.cvtColor(cv2.medianBlur(image, 5), cv2.COLOR_BGR2HSV)
    blue, white = cv2.inRange(hsv, *BLUE), cv2.inRange(hsv, *WHITE)
    boxes = []
    for contour in cv2.findContours(blue, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        x, y, w, h = cv2.boundingRect(contour)
        right_size = ...  # whether w and h are about SIDE_PX
        has_ring = ...  # whether over 5 % of the box in `white` are set
        if right_size and has_ring:
            boxes.append(Box(x, y, x + w - 1, y + h - 1))
    return boxes


def decide(report, pads):
    if report.status is not Status.HALTED or not pads:
        return Null()
    pad = pads[0]
    if pad.distance(report.position) < 0.4:
        return Land()
    return Go(pad.north - report.position.north, pad.east - report.position.east)
