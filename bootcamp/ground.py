"""The ground as the downward camera sees it, and back: the floor is a plane, so a picture of it is one homography.

picture ~ K R_cw [e_n  e_e  -p_wb] (north, east, 1)        (Hartley and Zisserman, Multiple View Geometry, 8.1.1)
"""

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bootcamp.api import Box, Location
from bootcamp.scenario import FLOOR_STREAM, Scenario
from vehicle.camera import Camera
from vehicle.rotation import Array, matrix

Image = NDArray[np.uint8]

PX_PER_M = 12  # of the painted floor
RIM_M = 35.0  # painted beyond the boundary, so that a tilted camera still sees ground
PATCHES = 60
BLUE, WHITE, LINE = (200, 90, 20), (245, 245, 245), (60, 60, 200)  # BGR


class GroundCamera:
    """Draws what the camera sees of the floor and its pads."""

    def __init__(self, scenario: Scenario):
        self.camera = scenario.world.camera
        half_m = scenario.world.boundary_m + RIM_M
        # Floor (north, east, 1) to the painted floor's pixel, north at its top.
        self._floor_px = np.array([[0, PX_PER_M, half_m * PX_PER_M], [-PX_PER_M, 0, half_m * PX_PER_M], [0, 0, 1.0]])
        self._floor = _paint(scenario, round(2 * half_m * PX_PER_M), self._floor_px)

    def image(self, p_wb: ArrayLike, q_wb: ArrayLike) -> Image:
        """The picture (height, width, 3) BGR from a body at p_wb (3,) m with attitude q_wb (4,)."""
        ground_px = _homography(self.camera, np.asarray(p_wb, float), matrix(q_wb))
        H = ground_px @ np.linalg.inv(self._floor_px)
        size = (self.camera.width_px, self.camera.height_px)
        drawn: Image = cv2.warpPerspective(self._floor, H, size, flags=cv2.INTER_LINEAR, borderValue=(70, 80, 80))
        return drawn


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
    """Ground (north, east, 1) to picture (u, v, 1) up to scale, (3, 3)."""
    R_cw = camera.R_bc.T @ R_wb.T
    return camera.K @ np.column_stack([R_cw[:, :2], -R_cw @ p_wb])


def _paint(scenario: Scenario, side_px: int, floor_px: Array) -> Image:
    """Meadow with grey and brown patches, the boundary's line, and the pads: blue squares with a white ring."""
    rng = np.random.default_rng([scenario.seed, FLOOR_STREAM])
    tint = np.stack(
        [rng.integers(50, 80, (90, 90)), rng.integers(95, 135, (90, 90)), rng.integers(70, 105, (90, 90))], -1
    )
    floor = cv2.resize(tint.astype(np.uint8), (side_px, side_px), interpolation=cv2.INTER_CUBIC)
    for _ in range(PATCHES):
        a, b = rng.integers(0, side_px, 2), rng.integers(10, 90, 2)
        grey = int(rng.integers(70, 170))
        cv2.rectangle(floor, a.tolist(), (a + b).tolist(), (grey - int(rng.integers(0, 30)), grey, grey), -1)

    def at(north: float, east: float) -> tuple[int, int]:
        column, row, _ = floor_px @ (north, east, 1.0)
        return round(column), round(row)

    edge, half = scenario.world.boundary_m, scenario.world.pad_m / 2
    cv2.rectangle(floor, at(edge, -edge), at(-edge, edge), LINE, 3)
    for pad in scenario.pads:
        cv2.rectangle(floor, at(pad.north + half, pad.east - half), at(pad.north - half, pad.east + half), BLUE, -1)
        cv2.circle(floor, at(*pad), round(0.6 * half * PX_PER_M), WHITE, 3, cv2.LINE_AA)
    return floor
