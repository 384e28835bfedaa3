"""Focal length of a camera at rest, from the mapped gates in its images at a known pose.

A field of view of 74 deg instead of a nominal 90 moves every gate away from the axis by a third of its predicted offset, so that
a filter with a prior of one percent on the focal length rejects each gate. A gate whose corners differ from the prediction by one
factor s, and hardly in shape, gives it:   s = size / predicted size,   |u - c - s (predicted u - c)| small.
"""

from collections.abc import Sequence

import numpy as np

from gate_racer.model.quadrilateral import area_px2
from gate_racer.model.rims import NEAR_M, GateRims
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array

# Thresholds. Chosen, except where a source is named.
LEAST = 0.6  # -, smallest factor considered: 118 deg of view for a nominal 90
MOST = 1.7  # -, greatest factor considered: 61 deg
NOMINAL = 0.095  # -, deviation from 1 that is ignored: a published map was 7.5 % too small
SAME = 0.05  # -, relative difference of one factor by two gates, whose ranges are known to 1 or 2 %
OFF_RAD = 0.08  # rad, greatest offset of a gate from its prediction: mount and pad, three sigma, both axes
MISSHAPEN = 0.07  # -, greatest rms error of the corners about their centre over the size: 6 deg of roll
IMAGES_LEAST = 5  # least number of images with one agreed factor; also more than half of all


def resting_focal(
    images: Sequence[Sequence[Detection]], rims: GateRims, camera: Camera, p_wb: Array, q_wb: Array
) -> float | None:
    """Return the ratio of the true focal length to the camera's; None if it is near 1, or the images are inconclusive.

    Args:
        images: detections in each image, all taken from this pose.
        rims: of the map's gates.
        p_wb, q_wb: (3,) m and (4,), of the body at rest.
    """
    expected = _expected(rims, camera, p_wb, q_wb)
    found: list[float] = []
    for detections in images:
        factors = _factors(detections, expected, camera)
        near_nominal = any(abs(s - 1) < NOMINAL for s in factors)
        if (best := 1.0 if near_nominal else _agreed(factors)) is not None:
            found.append(best)
    middle = float(np.median(found)) if found else 1.0
    agree = int((np.abs(np.array(found) / middle - 1) < SAME).sum())
    sure = agree >= max(IMAGES_LEAST, len(images) // 2 + 1)
    return middle if sure and abs(middle - 1) >= NOMINAL else None


def _expected(rims: GateRims, camera: Camera, p_wb: Array, q_wb: Array) -> Array:
    """Predict the corners (K, 4, 2) px, from the principal point, of the openings ahead."""
    p_wc, R_wc = camera.pose(p_wb, q_wb)
    gates = np.arange(len(rims.p_wg))
    corners_c = (rims.opening(gates, np.tile(p_wc, (len(gates), 1)))[1] - p_wc) @ R_wc
    ahead = corners_c[corners_c[..., 2].min(-1) > NEAR_M]
    return np.asarray(ahead[..., :2] / ahead[..., 2:] * [camera.fx_px, camera.fy_px])


def _factors(detections: Sequence[Detection], expected: Array, camera: Camera) -> list[float]:
    """Return every factor that maps a predicted gate onto a gate wholly in view."""
    result, sizes, centres = [], np.sqrt(area_px2(expected)), expected.mean(1)
    for detection in detections:
        if not detection.visible.all():
            continue
        px = camera.pinhole(detection.corners_px) - [camera.cx_px, camera.cy_px]
        size, centre = np.sqrt(area_px2(px)), px.mean(0)
        factors = size / sizes
        off = np.linalg.norm(centre - factors[:, None] * centres, axis=-1) / (factors * camera.fx_px)
        bent = px - centre - factors[:, None, None] * (expected - centres[:, None])
        alike = np.sqrt((bent**2).sum(-1).mean(-1)) < MISSHAPEN * size
        possible = (off < OFF_RAD) & alike & (factors > LEAST) & (factors < MOST)
        result += factors[possible].tolist()
    return result


def _agreed(factors: list[float]) -> float | None:
    """Return the factor with which most others agree; None if two different ones have equal support."""
    if not factors:
        return None
    ratio = np.array(factors) / np.array(factors)[:, None]
    agree = np.abs(ratio - 1) < SAME
    votes = agree.sum(1)
    best = votes == votes.max()
    return float(np.median(np.array(factors)[best])) if agree[np.ix_(best, best)].all() else None
