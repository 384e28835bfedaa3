"""Detections of other quadrotors as bounding boxes, and their positions in camera axes.

A box gives the rival's direction, and by its size the range. The apparent size depends on the body's attitude, which is unknown;
the longer side of the box depends on it least. If the image border cuts a box, the side along that border gives the range, and
the opposite edge the direction.
"""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Vector, exp, matrix, product

STEEPEST_RAD = math.radians(80)  # rad, greatest tilt of a racing quadrotor (chosen)
TURNS, TILTS = 12, 6  # numbers of yaw angles, of tilt directions as well, and of tilts sampled


@dataclass(frozen=True, slots=True)
class RivalDetection:
    """Detection of another vehicle."""

    box_px: Array  # (4,) left, top, right and bottom of its outline within the image
    sigma_px: float  # standard deviation of each side
    cut: tuple[bool, bool, bool, bool]  # which of the four the image border cuts: more than one gives no position
    score: float  # 0..1, confidence


class RivalRanging:
    """Monocular ranging of vehicles of known size."""

    def __init__(self, camera: Camera, body_m: Vector):
        """Average the apparent size over attitudes; `body_m`: length, width and height of the rivals' bodies."""
        self._camera = camera
        sides_m = _sides(np.array(body_m))
        longer_m = sides_m.max(axis=1)
        self._longer_m, self._longer_spread = float(longer_m.mean()), float(longer_m.std() / longer_m.mean())
        self._side_m, self._side_spread = float(sides_m.mean()), float(sides_m.std() / sides_m.mean())

    def place(self, seen: RivalDetection) -> tuple[Array, Array] | None:
        """Return the position (3,) m in camera axes RDF and its covariance (3, 3) m^2; None if more than one side is cut.

        With the ray r = (x, y, 1) of the box's centre, its longer side s on the plane z = 1, and the mean length l of that side:

            p = z r,   z = l / s,   cov p = z^2 diag(sigma_x^2, sigma_y^2, 0) + sigma_z^2 r r',
            (sigma_z / z)^2 = spread^2 + 2 (sigma / s)^2

        a converted measurement (Lerro and Bar-Shalom, 1993), whose bias is small at these angles.
        """
        if sum(seen.cut) > 1:
            return None
        low, high = self._camera.rays(seen.box_px.reshape(2, 2))
        sigma = seen.sigma_px / self._camera.fx_px
        sides = np.maximum(high - low, sigma)
        middle, doubt = (low + high) / 2, np.full(2, sigma / math.sqrt(2))
        length_m, spread, side = self._longer_m, self._longer_spread, float(sides.max())
        if any(seen.cut):
            edge = seen.cut.index(True)
            axis, before = edge % 2, edge < 2  # True if the low side is cut
            length_m, spread, side = self._side_m, self._side_spread, float(sides[1 - axis])
            middle[axis] = high[axis] - side / 2 if before else low[axis] + side / 2
            doubt[axis] = math.hypot(sigma, math.sqrt(2) * spread * side / 2)
        ray, z = np.array([*middle, 1.0]), length_m / side
        sigma_z = z * math.hypot(spread, math.sqrt(2) * sigma / side)
        return z * ray, z**2 * np.diag([*doubt**2, 0.0]) + sigma_z**2 * np.outer(ray, ray)


def _sides(body_m: Array) -> Array:
    """Return the sides (N, 2) m of the box around a body's outline, over all sampled attitudes."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    sides = []
    for turn in np.linspace(0, 2 * math.pi, TURNS, endpoint=False):
        for azimuth in np.linspace(0, 2 * math.pi, TURNS, endpoint=False):
            for tilt in np.linspace(0, STEEPEST_RAD, TILTS):
                tilted = exp(tilt * np.array([math.cos(azimuth), math.sin(azimuth), 0.0]))
                R = matrix(product(tilted, exp(np.array([0.0, 0.0, turn]))))
                corners = signs * body_m / 2 @ R.T
                sides.append((np.ptp(corners[:, 1]), np.ptp(corners[:, 2])))
    return np.array(sides)
