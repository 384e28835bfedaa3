"""Synthetic detections of gates and what they are taken for, for tests of the association."""

import cv2
import numpy as np
from drawing import CAMERA, corners_px

from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import State
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.rotation import matrix

FLAT = GateAppearance(outline_m=0.0, depth_m=0.0, edge_offset_px=0.0, edge_offset_m=0.0)  # the ideal square
SIGMA_RAD = 0.01
NEES_BAND = (2.5, 3.5)  # of a mean NEES with 3 degrees of freedom and hundreds of samples


def seen(gates, p_wb, q_wb, rng, sigma_px=0.3):
    """Detections of all gates wholly in the image, clockwise from anywhere, and the gates' numbers."""
    found, rng = [], np.random.default_rng(rng)
    R_wc = matrix(q_wb) @ CAMERA.R_bc
    for j, gate in enumerate(gates):
        if (((gate.corners() - p_wb) @ R_wc)[:, 2] > 0.5).all():
            px = corners_px(gate, p_wb, q_wb)
            side_px = np.linalg.norm(px - np.roll(px, 1, 0), axis=-1).min()
            if CAMERA.sees(px).all() and side_px > 8:
                px = px if cv2.contourArea(px.astype(np.float32), oriented=True) > 0 else px[::-1]
                px = np.roll(px, rng.integers(4), 0) + rng.normal(0, sigma_px, (4, 2))
                found.append((j, Detection.whole(px, sigma_px, 1.0)))
    return [d for _, d in found], [j for j, _ in found]


def associated(gates, detections, p_wb, q_wb, variance=1.0, sigma_rad=SIGMA_RAD):
    """Fixes and the number of refused detections, of gates as ideal squares, by a prior at p_wb with a variance, m^2."""
    associator = gates if isinstance(gates, Associator) else Associator(gates, CAMERA, FLAT)
    return associator.associate(prior(0.0, p_wb, q_wb, variance, sigma_rad), detections)


def prior(t, p_wb, q_wb, variance, sigma_rad) -> State:
    return State(t, p_wb, np.asarray(q_wb), cov=np.diag([*[variance] * 6, *[sigma_rad**2] * 3]))


def nees(error, cov) -> float:
    return float(error @ np.linalg.solve(cov, error))
