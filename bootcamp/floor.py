"""The floor from above, its projection into the downward camera, and the pads on it.

North is at the top; the floor is a painted meadow or tiles of a map, with boundary, pads and distractors. It is a plane,
so its image is one homography (Hartley and Zisserman, Multiple View Geometry, 8.1.1):

    image ~ K R_cw [e_n  e_e  -p_wb] (north, east, 1)

Pads are detected as blue, roughly square, wholly visible patches.
"""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import ArrayLike

from gate_racer.bootcamp.api import Box, Location, Report
from gate_racer.bootcamp.scenario import DISTRACTORS, FLOOR, NOISE, Scenario
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_bytes
from gate_racer.common.images import IMAGE_BYTES, MOST_PX, decode_image
from gate_racer.sim.view.texture import Image
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, matrix

BLUE_LOW, BLUE_HIGH = (95, 120, 80), (125, 255, 255)  # HSV of OpenCV, hue 0 to 179
SIDE_MIN_PX = 10  # px, least side of a box (chosen)
ASPECT_MAX = 1.8  # -, greatest ratio of sides: a tilted camera stretches squares (chosen)
FILLED_MIN = 0.4  # -, least share of the box that the contour fills (chosen)


def detect_pads(image: Image) -> list[Box]:
    """Return the bounding boxes of all pads wholly inside an image (H, W, 3) BGR uint8, from left to right."""
    mask = cv2.inRange(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), np.array(BLUE_LOW), np.array(BLUE_HIGH))
    height, width = mask.shape
    boxes = []
    for contour in cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        x, y, w, h = cv2.boundingRect(contour)
        inside = x > 0 and y > 0 and x + w < width and y + h < height
        square = max(w, h) <= ASPECT_MAX * min(w, h) and cv2.contourArea(contour) >= FILLED_MIN * w * h
        if inside and square and min(w, h) >= SIDE_MIN_PX:
            boxes.append(Box(x, y, x + w - 1, y + h - 1))
    return sorted(boxes)


PX_PER_M = 12  # resolution of the floor's image (chosen)
RIM_M = 35.0  # m painted beyond the boundary, for the view of a tilted camera
PATCHES = 60  # number of patches on the meadow
BLUE, WHITE, LINE = (200, 90, 20), (245, 245, 245), (60, 60, 200)  # BGR
APART_M = 3.0  # m, least distance from a distractor to pads and other distractors (chosen)
TRIES = 1000  # greatest number of draws of distractors
Place = Callable[[float, float], tuple[int, int]]  # (north, east) in m to (column, row)


def make_floor(scenario: Scenario) -> tuple[Image, Array]:
    """Return the floor's image BGR, and the matrix (3, 3) from the ground (north, east, 1) to its pixels.
    Raises UserError for a map that cannot be read."""
    half_m = scenario.world.boundary_m + RIM_M
    floor_px = np.array([[0, PX_PER_M, half_m * PX_PER_M], [-PX_PER_M, 0, half_m * PX_PER_M], [0, 0, 1.0]])
    side = round(2 * half_m * PX_PER_M)

    def at(north: float, east: float) -> tuple[int, int]:
        column, row, _ = floor_px @ (north, east, 1.0)
        return round(column), round(row)

    if scenario.world.map:
        floor = _tiled(scenario, side, at)
    else:
        floor = _meadow(np.random.default_rng([scenario.seed, FLOOR]), side)
        edge = scenario.world.boundary_m
        cv2.rectangle(floor, at(edge, -edge), at(-edge, edge), LINE, 3)
    for pad in scenario.pads:
        _square(floor, at, pad, scenario.world.pad_m, BLUE)
        cv2.circle(floor, at(*pad), round(0.3 * scenario.world.pad_m * PX_PER_M), WHITE, 3, cv2.LINE_AA)
    _distract(floor, at, scenario)
    return floor, floor_px


def _meadow(rng: np.random.Generator, side: int) -> Image:
    """Draw a green meadow (side, side, 3) with grey and brown patches."""
    tint = np.stack([rng.integers(low, high, (90, 90)) for low, high in ((50, 80), (95, 135), (70, 105))], -1)
    floor: Image = cv2.resize(tint.astype(np.uint8), (side, side), interpolation=cv2.INTER_CUBIC)
    for _ in range(PATCHES):
        a, b = rng.integers(0, side, 2), rng.integers(10, 90, 2)
        grey = int(rng.integers(70, 170))
        cv2.rectangle(floor, a.tolist(), (a + b).tolist(), (grey - int(rng.integers(0, 30)), grey, grey), -1)
    return floor


def _tiled(scenario: Scenario, side: int, at: Place) -> Image:
    """Draw the floor from tiles, each the ground of one image.

    X_Y.png is X tiles east and Y tiles south of the start; default.png replaces a missing one; boundary.png is used where a
    tile's centre lies beyond the boundary.
    """
    world, folder = scenario.world, Path(scenario.world.map)
    floor, view = np.zeros((side, side, 3), np.uint8), world.view_m
    reach = [int(np.ceil((world.boundary_m + RIM_M) / size + 0.5)) for size in view]
    tiles: dict[Path, Image] = {}
    for y in range(-reach[0], reach[0] + 1):
        for x in range(-reach[1], reach[1] + 1):
            middle = Location(-y * view.north, x * view.east)
            own, outside = folder / f"{x}_{y}.png", max(map(abs, middle)) > world.boundary_m
            path = folder / "boundary.png" if outside else own if own.exists() else folder / "default.png"
            (left, top), (right, bottom) = (
                at(middle.north + sign * view.north / 2, middle.east - sign * view.east / 2) for sign in (1, -1)
            )
            if path not in tiles:
                found = decode_image(read_bytes(path, IMAGE_BYTES))
                if found is None:
                    needs = "a map needs default.png, boundary.png and tiles like 0_-1.png"
                    raise UserError(f"{path}: not an image of at most {MOST_PX >> 20} Mpx; {needs}")
                tiles[path] = np.asarray(found, np.uint8)
            tile = cv2.resize(tiles[path], (right - left, bottom - top), interpolation=cv2.INTER_AREA)
            rows, columns = slice(max(top, 0), max(bottom, 0)), slice(max(left, 0), max(right, 0))
            part = floor[rows, columns]
            part[:] = tile[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]
    return floor


def _square(floor: Image, at: Place, middle: Location, side_m: float, colour: tuple[int, int, int]) -> None:
    half = side_m / 2
    corners = at(middle.north + half, middle.east - half), at(middle.north - half, middle.east + half)
    cv2.rectangle(floor, *corners, colour, -1)


def _distract(floor: Image, at: Place, scenario: Scenario) -> None:
    """Draw blue distractors in view of the pads: discs, bars, squares too small, and squares without a ring."""
    rng, side = np.random.default_rng([scenario.seed, DISTRACTORS]), scenario.world.pad_m
    reach, taken = 0.45 * np.array(scenario.world.view_m), list(scenario.pads)
    middle = np.array([scenario.world.ahead_m(scenario.conditions), 0.0])
    if scenario.waypoint is not None:
        middle = np.array(scenario.waypoint)
    for _ in range(TRIES):
        kind = len(taken) - len(scenario.pads)
        if kind == scenario.conditions.distractors:
            break
        place = Location(*(middle + rng.uniform(-reach, reach)).tolist())
        if min(map(place.distance, taken), default=APART_M) < APART_M:
            continue
        taken.append(place)
        north, east = place
        if kind % 4 == 0:
            cv2.circle(floor, at(*place), round(side / 2 * PX_PER_M), BLUE, -1, cv2.LINE_AA)
        elif kind % 4 == 1:
            ends = at(north + 0.2 * side, east - 0.6 * side), at(north - 0.2 * side, east + 0.6 * side)
            cv2.rectangle(floor, *ends, BLUE, -1)
        else:
            _square(floor, at, place, side / 2 if kind % 4 == 2 else side, BLUE)


SPARE_PX = 64  # px by which the noise field exceeds the image; it is shifted at random at every step
BEYOND = (70, 80, 80)  # BGR, outside the floor


class GroundCamera:
    """Renderer of the camera's view of the floor and its pads."""

    def __init__(self, scenario: Scenario):
        """Draw the floor. Raises UserError if the map cannot be read."""
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
        height, width = self.camera.height_px, self.camera.width_px
        if not report.has_image:
            return np.zeros((height, width, 3), np.uint8)
        image = self.image(p_wb, report.q_wb)
        if self._noise is not None:
            row, column = np.random.default_rng([self._seed, NOISE, report.step]).integers(0, SPARE_PX, 2)
            more, less = (field[row : row + height, column : column + width] for field in self._noise)
            cv2.add(image, more, image)
            cv2.subtract(image, less, image)
        return image

    def image(self, p_wb: ArrayLike, q_wb: ArrayLike) -> Image:
        """Return the image (height, width, 3) BGR from a body at p_wb (3,) m with attitude q_wb (4,)."""
        R_cw = self.camera.R_bc.T @ matrix(q_wb).T
        ground_px = self.camera.K @ np.column_stack([R_cw[:, :2], -R_cw @ np.asarray(p_wb, float)])
        H = ground_px @ np.linalg.inv(self._floor_px)
        size = (self.camera.width_px, self.camera.height_px)
        drawn = cv2.warpPerspective(self._floor, H, size, flags=cv2.INTER_LINEAR, borderValue=BEYOND)
        image: Image = cv2.cvtColor(drawn, cv2.COLOR_BGRA2BGR)
        return image


def locate(box: Box, height_m: float, position: Location, q_wb: ArrayLike, camera: Camera) -> Location | None:
    """Return the intersection of the ray through a box's centre with the ground; None if there is none."""
    ray_c = np.append(camera.rays([(box.left + box.right) / 2, (box.top + box.bottom) / 2]), 1.0)
    north, east, down = (matrix(q_wb) @ camera.R_bc @ ray_c).tolist()
    if not down > 0:
        return None
    reach = height_m / down
    return Location(position.north + reach * north, position.east + reach * east)
