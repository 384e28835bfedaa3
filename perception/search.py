"""What is known of a picture before it is looked at: where the gates of a course will stand, and how their frames are built."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracks.gate import Gate
from vehicle.camera import Camera
from vehicle.rotation import Array

WHOLE_EVERY_S, WHOLE_S = 0.5, 0.04  # between looks at whole pictures, and for how long: a picture or two
LOSS_S = 0.3  # without a gate recognised, after which whole pictures are looked at
AGE_S = 0.05  # a pose is so much older or younger than the picture that it stands for
SIGMAS = 3.0  # standard deviations that a window reaches out
MAP_M = 0.5  # ... and what the gates may stand elsewhere than on the map
OUTLINE = 1.15  # of the frame: beyond it its end shows
LEAST_PX = 7.0  # openings that look smaller are not looked for
NEAR_M = 0.3  # corners nearer to the picture's plane than this have no usable projection
PASSING_M = 8.0  # a gate with such corners that is farther off is beside or behind the camera


class Expected(NamedTuple):
    """Made of numbers only, to be put into shared memory."""

    proportion: float  # the frame's side over the opening's; 0: not known
    left: int = (
        0  # px, of the window that gates are looked for in, all 0: in the whole picture, and of other colours too
    )
    top: int = 0
    right: int = 0  # beyond its last column
    bottom: int = 0

    @property
    def window(self) -> tuple[slice, slice] | None:
        """Rows and columns, or None for the whole picture."""
        if self.right <= self.left or self.bottom <= self.top:
            return None
        return slice(self.top, self.bottom), slice(self.left, self.right)


class Windows:
    """Windows on the gates of a course."""

    def __init__(self, gates: Sequence[Gate], camera: Camera):
        self._camera = camera
        square = [gate for gate in gates if gate.visible and gate.opening_m > 0]
        shares = [gate.outer_m / gate.opening_m for gate in square]
        self._proportion = max(set(shares), key=shares.count, default=0.0)
        self._corners_w = np.array([gate.corners(OUTLINE * gate.outer_m) for gate in square]).reshape(-1, 4, 3)
        self._opening_m = np.array([gate.opening_m for gate in square])

    @property
    def anywhere(self) -> Expected:
        """A search of the whole picture."""
        return Expected(self._proportion)

    def due(self, t: float, unseen_s: float, *pose: Any) -> Expected:
        """Of a picture at about t: the whole picture at intervals, and after so long without a gate; else `about` a pose."""
        if unseen_s > LOSS_S or t % WHOLE_EVERY_S < WHOLE_S:
            return self.anywhere
        return self.about(*pose)

    def about(
        self, p_wb: Array, q_wb: Array, v_w: Array, omega_b: Array, cov_p: Array, sigma_attitude_rad: float
    ) -> Expected:
        """The least window that shows all gates of a course as long as the pose errs no more than it says.

        Args:
            p_wb, q_wb, v_w, omega_b: the state of the body at about the time of the picture.
            cov_p: (3, 3) m^2, of p_wb.
            sigma_attitude_rad: of q_wb, about each axis.
        """
        camera = self._camera
        p_wc, R_wc = camera.pose(p_wb, q_wb)
        corners_c = (self._corners_w - p_wc) @ R_wc
        depth, range_m = corners_c[..., 2], np.linalg.norm(corners_c.mean(1), axis=-1)
        ahead = depth.min(-1) > NEAR_M
        passing = ~ahead & (depth.max(-1) > NEAR_M) & (range_m < PASSING_M)
        seen = ahead & (self._opening_m * camera.fx_px > LEAST_PX * range_m)
        if passing.any() or not seen.any():
            return self.anywhere
        off_m = SIGMAS * np.sqrt(np.linalg.eigvalsh(cov_p)[-1]) + MAP_M + AGE_S * np.linalg.norm(v_w)
        off_rad = SIGMAS * sigma_attitude_rad + AGE_S * np.linalg.norm(omega_b)
        margin_px = camera.fx_px * (off_rad + off_m / depth[seen].min(-1))[:, None, None]
        px = camera.project(corners_c[seen])
        size = camera.width_px, camera.height_px
        low = np.clip(np.floor(px - margin_px).min(1), 0, size)
        high = np.clip(np.ceil(px + margin_px).max(1) + 1, 0, size)
        shows = (high > low).all(-1)
        if not shows.any():
            return self.anywhere
        return Expected(
            self._proportion, *low[shows].min(0).astype(int).tolist(), *high[shows].max(0).astype(int).tolist()
        )
