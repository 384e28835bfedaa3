"""Where there is room to pass somebody: the side, of four, on which the line is left the least and nothing stands."""

from collections.abc import Sequence

import numpy as np

from tracks.solids import SolidBox, bars, of_obstacle, stand
from tracks.track import Track
from vehicle.rotation import Array

DOWN_W = np.array([0.0, 0.0, 1.0])
LEVEL = 0.05  # of a direction's length, in the horizontal: with less, right is where east is
SPARE_M = 0.3  # between the body's ball and whatever stands


class PassingRoom:
    """What stands about a course: bounds, obstacles, and the frames of the gates."""

    def __init__(self, track: Track, radius_m: float):
        """`radius_m` of the body."""
        frames = [bar for gate in track.gates if gate.has_frame for bar in bars(gate)]
        stands = [box for k in range(len(track.gates)) if (box := stand(track, k)) is not None]
        self._solids: Sequence[SolidBox] = [*map(of_obstacle, track.obstacles), *frames, *stands]
        self._radius_m = radius_m + SPARE_M
        self.box_w: Array = np.array([track.bounds.low_m, track.bounds.high_m]) + [
            [self._radius_m],
            [-self._radius_m],
        ]  # (2, 3) m

    @staticmethod
    def sides(along: Array) -> tuple[Array, Array, Array, Array]:
        """Right, left, below and above a direction of flight (3,), as (3,) unit vectors of the world."""
        right = np.cross(DOWN_W, along)
        steep = float(np.linalg.norm(right))
        right = right / steep if steep > LEVEL else np.array([0.0, 1.0, 0.0])
        down = np.cross(along, right)
        return right, -right, down, -down

    def free(self, p_w: Array) -> bool:
        """Whether the body fits at all of these places (M, 3)."""
        if (p_w < self.box_w[0]).any() or (p_w > self.box_w[1]).any():
            return False
        return all((solid.distance(p_w) > self._radius_m).all() for solid in self._solids)
