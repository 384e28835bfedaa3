"""Lesson 4: from a pixel to the ground.

The camera looks 18 deg ahead of straight down, and the drone tilts as it flies.
"""

import numpy as np

from gate_racer.program import Go, Land, Location, Null, Status
from gate_racer.vehicle.rotation import matrix

SCENARIO = "locate"


def locate(box, report):
    """The place whose image is the middle of a box: pixel ~ H (north, east, 1), H = K R_cw [e_n  e_e  -p]."""
    R_cw = (matrix(report.q_wb) @ report.camera.R_bc).T  # from world axes to the camera's
    p = np.array([*report.position, -report.height])  # of the drone: north, east, down
    origin_c = ...  # where the origin of the ground lies, in camera axes
    H = report.camera.K @ np.column_stack([R_cw[:, 0], R_cw[:, 1], origin_c])
    pixel = np.array([(box.left + box.right) / 2, (box.top + box.bottom) / 2, 1.0])
    north, east, scale = ...  # the ground point up to scale: the inverse of H on the pixel
    return Location(north / scale, east / scale)


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    if not pads:  # it stands above the pad, which lies behind what the camera sees
        return Land()
    pad = pads[0]
    return Go(pad.north - report.position.north, pad.east - report.position.east)
