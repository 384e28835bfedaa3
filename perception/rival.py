"""Another quadrotor in an image: the box around its outline, and where that puts it in the camera's axes.

A box says where the rival is across the line of sight, and by its size how far away. How large a body looks hangs on its
attitude, which the box does not tell; of what a box offers its longer side depends on that the least.
"""

import math
from dataclasses import dataclass

import numpy as np

from vehicle.camera import Camera
from vehicle.rotation import Array, exp, matrix, product
from vehicle.vehicle import Vector

STEEPEST_RAD = math.radians(80)  # tilt of a racing quadrotor
TURNS, TILTS = 12, 6  # of the attitudes tried, all turns and directions of tilt alike


@dataclass(frozen=True, slots=True)
class RivalDetection:
    """Another vehicle as a detector reports it."""

    box_px: Array  # (4,) left, top, right and bottom of its outline, wholly in the image
    sigma_px: float  # standard deviation of each
    score: float  # 0..1: how sure it is that this is one


class RivalRanging:
    """Places vehicles of a known size."""

    def __init__(self, camera: Camera, body_m: Vector):
        """`body_m`: length, width and height of the rivals' bodies."""
        self._camera = camera
        longer_m = _longer_sides(np.array(body_m))
        self._length_m, self._spread = float(longer_m.mean()), float(longer_m.std() / longer_m.mean())

    def place(self, seen: RivalDetection) -> tuple[Array, Array]:
        """Position (3,) m in camera axes, and its covariance (3, 3) m^2.

        With the ray r = (x, y, 1) of the box's middle, its longer side s on the plane z = 1, and the mean length l of that side:

            p = z r,   z = l / s,   cov p = z^2 sigma^2 / 2 diag(1, 1, 0) + sigma_z^2 r r',
            (sigma_z / z)^2 = spread^2 + 2 (sigma / s)^2

        a converted measurement (Lerro and Bar-Shalom, 1993), whose bias is small at these angles.
        """
        (left, top), (right, bottom) = self._camera.rays(seen.box_px.reshape(2, 2))
        sigma = seen.sigma_px / self._camera.fx_px
        side = max(right - left, bottom - top, sigma)
        ray, z = np.array([(left + right) / 2, (top + bottom) / 2, 1.0]), self._length_m / side
        sigma_z = z * math.hypot(self._spread, math.sqrt(2) * sigma / side)
        across = z**2 * sigma**2 / 2 * np.diag([1.0, 1.0, 0.0])
        return z * ray, across + sigma_z**2 * np.outer(ray, ray)


def _longer_sides(body_m: Array) -> Array:
    """(N,) m, the longer side of the box around a body's outline, in all attitudes that it may be seen in."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    sides = []
    for turn in np.linspace(0, 2 * math.pi, TURNS, endpoint=False):
        for way in np.linspace(0, 2 * math.pi, TURNS, endpoint=False):
            for tilt in np.linspace(0, STEEPEST_RAD, TILTS):
                tilted = exp(tilt * np.array([math.cos(way), math.sin(way), 0.0]))
                R = matrix(product(tilted, exp(np.array([0.0, 0.0, turn]))))
                corners = signs * body_m / 2 @ R.T
                sides.append(max(np.ptp(corners[:, 1]), np.ptp(corners[:, 2])))
    return np.array(sides)
