"""Floor from above, north at the top: a painted meadow or tiles of a map, with boundary, pads and distractors."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from gate_racer.bootcamp.api import Location
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.bootcamp.world import DISTRACTORS, FLOOR
from gate_racer.sim.view.texture import Image
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.files import read_bytes
from gate_racer.vehicle.image_file import IMAGE_BYTES, MOST_PX, decode_image
from gate_racer.vehicle.rotation import Array

PX_PER_M = 12  # resolution of the floor's image (chosen)
RIM_M = 35.0  # m painted beyond the boundary, for the view of a tilted camera
PATCHES = 60  # number of patches on the meadow
BLUE, WHITE, LINE = (200, 90, 20), (245, 245, 245), (60, 60, 200)  # BGR
APART_M = 3.0  # m, least distance from a distractor to pads and other distractors (chosen)
TRIES = 1000  # greatest number of draws of distractors
Place = Callable[[float, float], tuple[int, int]]  # (north, east) in m to (column, row)


def make_floor(scenario: Scenario) -> tuple[Image, Array]:
    """Return the floor's image BGR, and the matrix (3, 3) from the ground (north, east, 1) to its pixels.

    Raises:
        UserError: the map cannot be read.
    """
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
    tint = np.stack(
        [rng.integers(50, 80, (90, 90)), rng.integers(95, 135, (90, 90)), rng.integers(70, 105, (90, 90))], -1
    )
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
                tiles[path] = _tile(path)
            tile = cv2.resize(tiles[path], (right - left, bottom - top), interpolation=cv2.INTER_AREA)
            rows, columns = slice(max(top, 0), max(bottom, 0)), slice(max(left, 0), max(right, 0))
            part = floor[rows, columns]
            part[:] = tile[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]
    return floor


def _tile(path: Path) -> Image:
    tile = decode_image(read_bytes(path, IMAGE_BYTES))
    if tile is None:
        raise UserError(
            f"{path}: not an image of at most {MOST_PX >> 20} Mpx; a map needs default.png, boundary.png and tiles like 0_-1.png"
        )
    return np.asarray(tile, np.uint8)


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
