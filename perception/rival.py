"""Another quadrotor in an image: the box around its outline, and where that puts it in the camera's axes.

A box says where the rival is across the line of sight, and by its size how far away. How large a body looks hangs on its
attitude, which the box does not tell; of what a box offers its longer side depends on that the least. Of a box that the image's
edge cuts, the side along that edge tells the distance, and the opposite edge where it is.
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

    box_px: Array  # (4,) left, top, right and bottom of its outline, as far as that lies in the image
    sigma_px: float  # standard deviation of each
    cut: tuple[bool, bool, bool, bool]  # which of the four the image's edge cuts: one at most, or it is of no use
    score: float  # 0..1: how sure it is that this is one


class RivalRanging:
    """Places vehicles of a known size."""

    def __init__(self, camera: Camera, body_m: Vector):
        """`body_m`: length, width and height of the rivals' bodies."""
        self._camera = camera
        sides_m = _sides(np.array(body_m))
        longer_m = sides_m.max(axis=1)
        self._longer_m, self._longer_spread = float(longer_m.mean()), float(longer_m.std() / longer_m.mean())
        self._side_m, self._side_spread = float(sides_m.mean()), float(sides_m.std() / sides_m.mean())

    def place(self, seen: RivalDetection) -> tuple[Array, Array] | None:
        """Position (3,) m in camera axes, and its covariance (3, 3) m^2; None where more than one edge is cut.

        With the ray r = (x, y, 1) of the box's middle, its longer side s on the plane z = 1, and the mean length l of that side:

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
            axis, before = edge % 2, edge < 2  # whether the part before the cut in the image's direction is missing
            length_m, spread, side = self._side_m, self._side_spread, float(sides[1 - axis])
            middle[axis] = high[axis] - side / 2 if before else low[axis] + side / 2
            doubt[axis] = math.hypot(sigma, math.sqrt(2) * spread * side / 2)
        ray, z = np.array([*middle, 1.0]), length_m / side
        sigma_z = z * math.hypot(spread, math.sqrt(2) * sigma / side)
        return z * ray, z**2 * np.diag([*doubt**2, 0.0]) + sigma_z**2 * np.outer(ray, ray)


def _sides(body_m: Array) -> Array:
    """(N, 2) m, the sides of the box around a body's outline, in all attitudes that it may be seen in."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    sides = []
    for turn in np.linspace(0, 2 * math.pi, TURNS, endpoint=False):
        for way in np.linspace(0, 2 * math.pi, TURNS, endpoint=False):
            for tilt in np.linspace(0, STEEPEST_RAD, TILTS):
                tilted = exp(tilt * np.array([math.cos(way), math.sin(way), 0.0]))
                R = matrix(product(tilted, exp(np.array([0.0, 0.0, turn]))))
                corners = signs * body_m / 2 @ R.T
                sides.append((np.ptp(corners[:, 1]), np.ptp(corners[:, 2])))
    return np.array(sides)
