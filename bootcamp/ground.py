"""Projection of the ground into the downward camera, and back: the floor is a plane, so its image is one homography.

image ~ K R_cw [e_n  e_e  -p_wb] (north, east, 1)        (Hartley and Zisserman, Multiple View Geometry, 8.1.1)
"""

import cv2
import numpy as np
from numpy.typing import ArrayLike

from gate_racer.bootcamp.api import Box, Location, Report
from gate_racer.bootcamp.floor import make_floor
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.bootcamp.world import NOISE
from gate_racer.sim.view.texture import Image
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, matrix

SPARE_PX = 64  # px by which the noise field exceeds the image; it is shifted at random at every step
BEYOND = (70, 80, 80)  # BGR, outside the floor


class GroundCamera:
    """Renderer of the camera's view of the floor and its pads."""

    def __init__(self, scenario: Scenario):
        """Draw the floor.

        Raises:
            UserError: the map cannot be read.
        """
        self.camera, self._seed = scenario.world.camera, scenario.seed
        floor, self._floor_px = make_floor(scenario)
        # Four channels are warped 2.5 times as fast as three, with the same bits.
        self._floor = cv2.cvtColor(floor, cv2.COLOR_BGR2BGRA)
        self._noise: tuple[Image, Image] | None = None  # its positive part, and its negative part
        if scenario.conditions.noise:
            size = (self.camera.height_px + SPARE_PX, self.camera.width_px + SPARE_PX, 3)
            rng = np.random.default_rng([scenario.seed, NOISE])
            noise = np.round(rng.normal(0.0, scenario.conditions.noise, size))
            more, less = (np.clip(sign * noise, 0, 255).astype(np.uint8) for sign in (1, -1))
            self._noise = more, less

    def frame(self, p_wb: ArrayLike, report: Report) -> Image:
        """Return the image received at a step: with noise, and black if it is lost."""
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
        """Return the image (height, width, 3) BGR from a body at p_wb (3,) m with attitude q_wb (4,)."""
        ground_px = _homography(self.camera, np.asarray(p_wb, float), matrix(q_wb))
        H = ground_px @ np.linalg.inv(self._floor_px)
        size = (self.camera.width_px, self.camera.height_px)
        drawn = cv2.warpPerspective(self._floor, H, size, flags=cv2.INTER_LINEAR, borderValue=BEYOND)
        image: Image = cv2.cvtColor(drawn, cv2.COLOR_BGRA2BGR)
        return image


def locate(box: Box, height_m: float, position: Location, q_wb: ArrayLike, camera: Camera) -> Location | None:
    """Return the intersection of the ray through a box's centre with the ground; None if there is none."""
    u, v = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    ray_c = np.array([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, 1.0])
    north, east, down = (matrix(q_wb) @ camera.R_bc @ ray_c).tolist()
    if not down > 0:
        return None
    reach = height_m / down
    return Location(position.north + reach * north, position.east + reach * east)


def _homography(camera: Camera, p_wb: Array, R_wb: Array) -> Array:
    """Return the homography (3, 3) from the ground (north, east, 1) to the image (u, v, 1)."""
    R_cw = camera.R_bc.T @ R_wb.T
    return camera.K @ np.column_stack([R_cw[:, :2], -R_cw @ p_wb])
