"""Free space for overtaking: the side, of four, with the smallest deviation from the line that is clear of solids."""

from collections.abc import Sequence

import numpy as np

from gate_racer.tracks.solids import SolidBox, bars, of_obstacle, stand
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import DOWN_W, Array

LEVEL = 0.05  # least horizontal share of a direction's length; with less, east counts as right
SPARE_M = 0.3  # m between the body's sphere and any solid


class PassingRoom:
    """Free space of a course: bounds, obstacles, and the frames of the gates."""

    def __init__(self, track: Track, radius_m: float):
        """Create it; `radius_m`: radius of the body."""
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
        """Return right, left, below and above a direction of flight (3,), as unit vectors (3,), world NED."""
        right = np.cross(DOWN_W, along)
        steep = float(np.linalg.norm(right))
        right = right / steep if steep > LEVEL else np.array([0.0, 1.0, 0.0])
        down = np.cross(along, right)
        return right, -right, down, -down

    def free(self, p_w: Array) -> bool:
        """Return whether the body is free of collision at all positions (M, 3) m."""
        if (p_w < self.box_w[0]).any() or (p_w > self.box_w[1]).any():
            return False
        return all((solid.distance(p_w) > self._radius_m).all() for solid in self._solids)
