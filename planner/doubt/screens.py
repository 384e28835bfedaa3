"""Screens: what may stand between the camera and a gate, frames of other gates as flat as their planes, and obstacles."""

import numpy as np

from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

SHORT = 0.98  # -, fraction of a line of sight on which it may be cut: a gate's own frame is at its end


class Screens:
    """Frames and obstacles of a track."""

    def __init__(self, track: Track):
        frames = [gate for gate in track.gates if gate.has_frame]
        self._p_wg = np.reshape([gate.p_wg for gate in frames], (-1, 3))
        self._R_wg = np.reshape([gate.R_wg for gate in frames], (-1, 3, 3))
        self._inner_m = np.array([gate.opening_m / 2 for gate in frames])[:, None]
        self._outer_m = np.array([gate.outer_m / 2 for gate in frames])[:, None]
        self._low = np.reshape([solid.low_m for solid in track.obstacles], (-1, 1, 3))
        self._high = np.reshape([solid.high_m for solid in track.obstacles], (-1, 1, 3))

    def hide(self, eye_w: Array, corners_w: Array) -> bool:
        """Return whether a corner (4, 3) m, or the middle of a side, is out of sight from eye_w (3,) m, all world NED."""
        points = np.concatenate([corners_w, (corners_w + np.roll(corners_w, -1, axis=0)) / 2])
        sight = points - eye_w
        toward, eye_g = sight @ self._R_wg, (eye_w - self._p_wg)[:, None] @ self._R_wg  # (G, 8, 3), (G, 1, 3)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = -eye_g[..., 0] / toward[..., 0]  # (G, 8), of the lines of sight to the frames' planes
            across = np.abs(eye_g[..., 1:] + s[..., None] * toward[..., 1:]).max(axis=-1)
            one, other = (self._low - eye_w) / sight, (self._high - eye_w) / sight  # (O, 8, 3)
        framed = (s > 0) & (s < SHORT) & (across > self._inner_m) & (across < self._outer_m)
        enter, leave = np.fmin(one, other).max(axis=-1), np.fmax(one, other).min(axis=-1)
        return bool(framed.any() or ((enter <= leave) & (leave > 0) & (enter < 1)).any())
