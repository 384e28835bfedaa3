"""Camera rotation between two images, by optical flow of corners: the only measurement of rotation that no sign
convention of telemetry affects.

A camera that rotates by theta (RDF axes) moves the point of rays (x, y, 1) by (Longuet-Higgins and Prazdny 1980, eq. 2.6)

    dx = x y theta_x - (1 + x^2) theta_y + y theta_z,    dy = (1 + y^2) theta_x - x y theta_y - x theta_z
"""

import cv2
import numpy as np

from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.image_file import decode_image
from gate_racer.vehicle.rotation import Array

CORNERS, QUALITY, APART_PX = 150, 0.01, 7
FEWEST = 12  # least corners for a rotation
WINDOW_PX, LEVELS = 15, 3  # window and levels of the pyramid for tracking
HALF = 2  # images are processed in half size
ROUNDS = 6  # iterations of reweighting: parallax and moving objects are outliers


def half_size(jpeg: bytes, camera: Camera) -> np.ndarray | None:
    """Return the camera's image in grey and half size; None if the bytes are not an image of its size."""
    return decode_image(jpeg, (camera.width_px, camera.height_px), cv2.IMREAD_REDUCED_GRAYSCALE_2)


def turn_between(a: np.ndarray, b: np.ndarray, camera: Camera) -> Array | None:
    """Return the rotation vector (3,) rad, body FRD, from image a to b (both `half_size`); None with too few corners."""
    if a.shape != b.shape:
        return None
    corners = cv2.goodFeaturesToTrack(a, CORNERS, QUALITY, APART_PX)
    if corners is None or len(corners) < FEWEST:
        return None
    moved, found, _ = cv2.calcOpticalFlowPyrLK(a, b, corners, None, winSize=(WINDOW_PX, WINDOW_PX), maxLevel=LEVELS)
    kept = found.ravel() == 1
    if kept.sum() < FEWEST:
        return None
    centre, focal = np.array([camera.cx_px, camera.cy_px]), np.array([camera.fx_px, camera.fy_px])
    before, after = (((HALF * points[kept].reshape(-1, 2)) - centre) / focal for points in (corners, moved))
    (x, y), flow = before.T, (after - before).reshape(-1)
    A = np.stack([[x * y, -(1 + x * x), y], [1 + y * y, -x * y, -x]]).transpose(2, 0, 1).reshape(-1, 3)
    theta, weight = np.zeros(3), np.ones(len(flow))
    for _ in range(ROUNDS):
        theta = np.linalg.lstsq(A * weight[:, None], flow * weight, rcond=None)[0]
        residual = np.repeat(np.linalg.norm((flow - A @ theta).reshape(-1, 2), axis=1), 2)
        weight = 1.0 / (1.0 + (residual / max(float(np.median(residual)), 1e-4)) ** 2)
    return camera.R_bc @ theta
