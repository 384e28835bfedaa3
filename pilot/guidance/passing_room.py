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

    def side(self, line_w: Array, along: Array, rival_w: Array, reach_m: float) -> Array | None:
        """The best of right, left, below and above, as (3,) unit vector of the world; None: there is room on none.

        Args:
            line_w, along: one's own line (M, 3) while both are side by side, and its direction there.
            rival_w: (M, 3) m, where the rival is then.
            reach_m: to keep from it.
        """
        mean = along.mean(axis=0)
        right = np.cross(DOWN_W, mean)
        right /= max(float(np.linalg.norm(right)), 1e-6)
        down = np.cross(mean, right)
        best, least_m = None, np.inf
        for side in (right, -right, down, -down):
            shifts = np.maximum(reach_m - (line_w - rival_w) @ side, 0.0)
            if shifts.max() < least_m and self._free(line_w + shifts[:, None] * side):
                best, least_m = side, float(shifts.max())
        return best

    def _free(self, p_w: Array) -> bool:
        """Whether the body fits at all of these places (M, 3)."""
        if (p_w < self._low + self._radius_m).any() or (p_w > self._high - self._radius_m).any():
            return False
        return all((solid.distance(p_w) > self._radius_m).all() for solid in self._solids)
