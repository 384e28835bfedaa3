"""The ground as the downward camera sees it, and back: the floor is a plane, so an image of it is one homography.

image ~ K R_cw [e_n  e_e  -p_wb] (north, east, 1)        (Hartley and Zisserman, Multiple View Geometry, 8.1.1)
"""

import cv2
import numpy as np
from numpy.typing import ArrayLike

from bootcamp.api import Box, Location, Report
from bootcamp.floor import Image, make_floor
from bootcamp.scenario import Scenario
from bootcamp.world import NOISE
from vehicle.camera import Camera
from vehicle.rotation import Array, matrix

SPARE_PX = 64  # a field of noise is so much larger than the image, and shifted anew at every step
BEYOND = (70, 80, 80)  # BGR, where nothing is painted


class GroundCamera:
    """Draws what the camera sees of the floor and its pads."""

    def __init__(self, scenario: Scenario):
        """Raises UserError for a map that cannot be read."""
        self.camera, self._seed = scenario.world.camera, scenario.seed
        floor, self._floor_px = make_floor(scenario)
        self._floor = cv2.cvtColor(
            floor, cv2.COLOR_BGR2BGRA
        )  # warped 2.5 times as fast as three channels, to the same bits
        self._noise: tuple[Image, Image] | None = None  # what is added and what is taken away
        if scenario.conditions.noise:
            size = (self.camera.height_px + SPARE_PX, self.camera.width_px + SPARE_PX, 3)
            rng = np.random.default_rng([scenario.seed, NOISE])
            noise = np.round(rng.normal(0.0, scenario.conditions.noise, size))
            more, less = (np.clip(sign * noise, 0, 255).astype(np.uint8) for sign in (1, -1))
            self._noise = more, less

    def frame(self, p_wb: ArrayLike, report: Report) -> Image:
        """What comes of the image at a step: noisy, and black where it is lost."""
        size = (self.camera.height_px, self.camera.width_px)
        if not report.has_image:
            return np.zeros((*size, 3), np.uint8)
        image = self.image(p_wb, report.q_wb)
        if self._noise is None:
            return image
        row, column = np.random.default_rng([self._seed, NOISE, report.step]).integers(0, SPARE_PX, 2)
        more, less = (field[row : row + size[0], column : column + size[1]] for field in self._noise)
        cv2.add(image, more, image)
        cv2.subtract(image, less, image)
        return image

    def image(self, p_wb: ArrayLike, q_wb: ArrayLike) -> Image:
        """The image (height, width, 3) BGR from a body at p_wb (3,) m with attitude q_wb (4,)."""
        ground_px = _homography(self.camera, np.asarray(p_wb, float), matrix(q_wb))
        H = ground_px @ np.linalg.inv(self._floor_px)
        size = (self.camera.width_px, self.camera.height_px)
        drawn = cv2.warpPerspective(self._floor, H, size, flags=cv2.INTER_LINEAR, borderValue=BEYOND)
        image: Image = cv2.cvtColor(drawn, cv2.COLOR_BGRA2BGR)
        return image


def locate(box: Box, height_m: float, position: Location, q_wb: ArrayLike, camera: Camera) -> Location | None:
    """Where the ray through the middle of a box meets the ground, or None if it never does."""
    u, v = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    ray_c = np.array([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, 1.0])
    north, east, down = (matrix(q_wb) @ camera.R_bc @ ray_c).tolist()
    if not down > 0:
        return None
    reach = height_m / down
    return Location(position.north + reach * north, position.east + reach * east)


def _homography(camera: Camera, p_wb: Array, R_wb: Array) -> Array:
    """Ground (north, east, 1) to image (u, v, 1) up to scale, (3, 3)."""
    R_cw = camera.R_bc.T @ R_wb.T
    return camera.K @ np.column_stack([R_cw[:, :2], -R_cw @ p_wb])
