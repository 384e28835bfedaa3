"""Where there is room to pass somebody: the side, of four, on which the line is left the least and nothing stands."""

from collections.abc import Sequence

import numpy as np

from tracks.solids import SolidBox, bars, of_obstacle, stand
from tracks.track import Track
from vehicle.rotation import Array

DOWN_W = np.array([0.0, 0.0, 1.0])
SPARE_M = 0.3  # between the body's ball and whatever stands


class PassingRoom:
    """What stands about a course: bounds, obstacles, and the frames of the gates."""

    def __init__(self, track: Track, radius_m: float):
        """`radius_m` of the body."""
        self._low, self._high = (np.array(corner) for corner in (track.bounds.low_m, track.bounds.high_m))
        frames = [bar for gate in track.gates if gate.has_frame for bar in bars(gate)]
        stands = [box for k in range(len(track.gates)) if (box := stand(track, k)) is not None]
        self._solids: Sequence[SolidBox] = [*map(of_obstacle, track.obstacles), *frames, *stands]
        self._radius_m = radius_m + SPARE_M

    @staticmethod
    def sides(along: Array) -> tuple[Array, Array, Array, Array]:
        """Right, left, below and above a direction of flight (3,), as (3,) unit vectors of the world."""
        right = np.cross(DOWN_W, along)
        right /= max(float(np.linalg.norm(right)), 1e-6)
        down = np.cross(along, right)
        return right, -right, down, -down

    def free(self, p_w: Array) -> bool:
        """Whether the body fits at all of these places (M, 3)."""
        if (p_w < self._low + self._radius_m).any() or (p_w > self._high - self._radius_m).any():
            return False
        return all((solid.distance(p_w) > self._radius_m).all() for solid in self._solids)
