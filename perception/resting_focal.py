"""The focal length of a camera at rest, by the gates of a map that it shows from a known place.

A field of view of 74 deg where 90 are believed puts every gate a third of its way off the axis from where it is expected, and a
filter that believes the focal length to a percent takes each for none. A gate whose size differs by the same factor as its place
from the image's middle tells the factor:   s = size / expected size,   |u - c - s (expected u - c)| small.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perception.detection import Detection
from perception.rims import NEAR_M, GateRims
from vehicle.camera import Camera
from vehicle.rotation import Array


@dataclass(frozen=True, slots=True)
class RestingFocalConfig:
    """What is believed of a camera at rest. Chosen, but where a source is named."""

    least: float = 0.6  # factor that is looked for, 118 deg wide where 90 are believed,
    most: float = 1.7  # ... to 61 deg
    as_believed: float = 0.095  # nearer to 1 nothing is wrong: a published map was 7.5 % too small, which looks alike
    same: float = 0.05  # relative, of one factor seen in two gates, whose distances are known to 1 or 2 %
    off_rad: float = 0.08  # by which a gate may stand beside its place: mount and pad, three sigma, both axes
    images: int = 5  # at least, in which one factor explains the most gates, and more than half of all


def resting_focal(
    images: Sequence[Sequence[Detection]],
    rims: GateRims,
    camera: Camera,
    p_wb: Array,
    q_wb: Array,
    config: RestingFocalConfig | None = None,
) -> float | None:
    """By what factor the focal length exceeds the camera's; None where it does not by much, or the images do not say.

    Args:
        images: what a detector found in each, all taken from this place.
        rims: of the map's gates.
        p_wb, q_wb: (3,) m and (4,), of the body at rest.
    """
    config = config or RestingFocalConfig()
    centres, sizes = _expected(rims, camera, p_wb, q_wb)
    found: list[float] = []
    for detections in images:
        factors = _factors(detections, centres, sizes, camera, config)
        believed = any(abs(s - 1) < config.as_believed for s in factors)
        if (best := 1.0 if believed else _agreed(factors, config)) is not None:
            found.append(best)
    middle = float(np.median(found)) if found else 1.0
    agree = int((np.abs(np.array(found) / middle - 1) < config.same).sum())
    sure = agree >= max(config.images, len(images) // 2 + 1)
    return middle if sure and abs(middle - 1) >= config.as_believed else None


def _expected(rims: GateRims, camera: Camera, p_wb: Array, q_wb: Array) -> tuple[Array, Array]:
    """Places (K, 2) px from the principal point and sizes (K,) px of the openings that lie ahead."""
    p_wc, R_wc = camera.pose(p_wb, q_wb)
    gates = np.arange(len(rims.p_wg))
    corners_c = (rims.opening(gates, np.tile(p_wc, (len(gates), 1)))[1] - p_wc) @ R_wc
    ahead = corners_c[corners_c[..., 2].min(-1) > NEAR_M]
    px = ahead[..., :2] / ahead[..., 2:] * [camera.fx_px, camera.fy_px]
    return px.mean(1), np.array([_size(one) for one in px])


def _factors(
    detections: Sequence[Detection], centres: Array, sizes: Array, camera: Camera, config: RestingFocalConfig
) -> list[float]:
    """Every factor that makes one of the gates wholly in view an expected one."""
    result = []
    for detection in detections:
        if not detection.visible.all():
            continue
        px = camera.pinhole(detection.corners_px) - [camera.cx_px, camera.cy_px]
        factors = _size(px) / sizes
        off = np.linalg.norm(px.mean(0) - factors[:, None] * centres, axis=-1) / (factors * camera.fx_px)
        result += factors[(off < config.off_rad) & (factors > config.least) & (factors < config.most)].tolist()
    return result


def _agreed(factors: list[float], config: RestingFocalConfig) -> float | None:
    """The one with which most others agree; None where two that differ explain as much."""
    if not factors:
        return None
    ratio = np.array(factors) / np.array(factors)[:, None]
    agree = np.abs(ratio - 1) < config.same
    votes = agree.sum(1)
    best = votes == votes.max()
    return float(np.median(np.array(factors)[best])) if agree[np.ix_(best, best)].all() else None


def _size(px: Array) -> float:
    """The root of the area of a quadrilateral (4, 2)."""
    (x0, y0), (x1, y1) = px[2] - px[0], px[3] - px[1]
    return float(np.sqrt(abs(x0 * y1 - y0 * x1) / 2))
