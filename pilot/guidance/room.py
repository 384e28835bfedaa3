"""Room about the pad, whose walls, ceiling and floor an explorer has to keep away from."""

import math
from dataclasses import astuple, dataclass

import numpy as np

from gate_racer.tracks.track import Bounds
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array

MARGIN_M = 0.8  # m from every side: half of a drone, and the explorer's error of position (chosen)
BRAKE = 2.0  # m/s^2, deceleration before a wall, half of what an explorer commands (chosen)
LAG_S = 0.4  # s from a commanded velocity to the vehicle's, by the velocity controller's gain of 2/s (chosen)


@dataclass(frozen=True)
class Room:
    """Box in the axes of the explorer's map: distances (m) of its sides from the pad; infinite ones do not exist."""

    north: float = math.inf
    east: float = math.inf
    south: float = math.inf
    west: float = math.inf
    up: float = math.inf
    down: float = math.inf  # of the floor below the pad, 0 for a pad on the floor

    def __post_init__(self) -> None:
        *sides, down = astuple(self)
        if not all(side > MARGIN_M for side in sides) or not down >= 0:
            raise ValueError("a side is too near")

    @property
    def corners(self) -> tuple[Array, Array]:
        """Corners (3,) m, of the lowest and of the highest coordinates, world NED, from the pad."""
        return np.array([-self.south, -self.west, -self.up]), np.array([self.north, self.east, self.down])

    @property
    def _free(self) -> tuple[Array, Array]:
        """Corners of the space to fly in."""
        low, high = self.corners
        return low + MARGIN_M, high - MARGIN_M

    def contains(self, p_w: Array) -> bool:
        """Return whether p_w (3,) m lies between the sides."""
        low, high = self.corners
        return bool(((low < p_w) & (p_w < high)).all())

    def inside(self, p_w: Array) -> Array:
        """Return the place (3,) m to fly at that is nearest to p_w (3,) m."""
        return np.clip(p_w, *self._free)

    def reach(self, p_w: Array, way_w: Array, most_m: float) -> float:
        """Return the distance (m) that is free from p_w (3,) m along a unit vector way_w (3,), at most `most_m`."""
        ahead, moving = self._ahead(p_w, way_w), np.abs(way_w) > 1e-9
        return float(np.clip((ahead[moving] / np.abs(way_w[moving])).min(initial=most_m), 0.0, most_m))

    def slowed(self, v_w: Array, p_w: Array) -> Array:
        """Return the velocity v_w (3,) m/s at p_w (3,) m, slowed along its direction so that it can be braked in the room."""
        ahead = np.maximum(self._ahead(p_w, v_w), 0.0)
        limit = BRAKE * (np.sqrt(LAG_S**2 + 2 * ahead / BRAKE) - LAG_S)
        share = np.divide(limit, np.abs(v_w), out=np.ones(3), where=np.abs(v_w) > limit).min()
        return np.asarray(share * v_w + self.inside(p_w) - p_w)  # back by 1 m/s for each metre beyond

    def _ahead(self, p_w: Array, way_w: Array) -> Array:
        """Return the free distances (3,) m along each axis in the direction of way_w (3,)."""
        low, high = self._free
        return np.where(way_w > 0, high - p_w, p_w - low)

    def around(self, p_w: Array, side_m: float, roof_m: float) -> Bounds:
        """Return the part inside the room of the box that reaches `side_m` to each side of p_w (3,) m, and `roof_m` up."""
        low, high = self.corners
        x, y, z = np.maximum(low, p_w - [side_m, side_m, roof_m]).tolist()
        far_x, far_y, floor = np.minimum(high, p_w + [side_m, side_m, 0.0]).tolist()
        return Bounds((x, y, z), (far_x, far_y, floor))


OPEN = Room()


def parse_room(text: str) -> Room:
    """Return the room of NORTH,EAST,SOUTH,WEST,UP,DOWN. Raises UserError unless these are distances that leave space."""
    try:
        north, east, south, west, up, down = (float(part) for part in text.split(","))
        return Room(north, east, south, west, up, down)
    except ValueError:
        raise UserError(
            f"--room {text!r}: expected NORTH,EAST,SOUTH,WEST,UP,DOWN, distances from the pad in m, each greater than"
            f" {MARGIN_M:g}, that of the floor at least 0"
        ) from None
