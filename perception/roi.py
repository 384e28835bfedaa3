"""Regions of interest: predicted window of the course's gates in the next image."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gate_racer.model.states import State
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import LEAST_SIDE_PX, Camera
from gate_racer.vehicle.statistics import greatest_sigma

# Size of windows, and times at which whole images are searched. Chosen for races at up to 25 m/s, unless noted.
WHOLE_EVERY_S = 0.5  # s, period of searches of whole images
WHOLE_FOR_S = 0.04  # s, duration of such a search: an image or two at 30 Hz (derived)
LOSS_S = 0.3  # s without a recognised gate after which whole images are searched
AGE_S = 0.05  # s, greatest time difference between pose and exposure (measured)
SIGMAS = 3.0  # -, margin of a window in standard deviations of the pose
MAP_M = 0.5  # m, margin for offsets of gates from the map
OUTLINE = 1.15  # -, size of the window over the frame's, so that the frame's end is in it
NEAR_M = 0.3  # m, least depth of a corner with a usable projection
PASSING_M = 8.0  # m, range beyond which a gate with a nearer corner is beside or behind the camera


class SearchWindow(NamedTuple):
    """Search request for a detector, of numbers only for shared memory. Without a region it is the whole image."""

    frame_ratio: float  # the frame's side over the opening's; 0 if unknown
    left: int = 0  # px
    top: int = 0  # px
    right: int = 0  # px, exclusive
    bottom: int = 0  # px, exclusive

    @property
    def region(self) -> tuple[slice, slice] | None:
        """Slices of rows and columns, or None for the whole image."""
        if self.right <= self.left or self.bottom <= self.top:
            return None
        return slice(self.top, self.bottom), slice(self.left, self.right)


class RoiPredictor:
    """Predictor of search windows on the gates of a course."""

    def __init__(self, gates: Sequence[Gate], camera: Camera):
        self._camera = camera
        square = [gate for gate in gates if gate.visible and gate.opening_m > 0]
        ratios = [gate.outer_m / gate.opening_m for gate in square]
        self._frame_ratio = max(set(ratios), key=ratios.count, default=0.0)
        outlines = [gate.corners(OUTLINE * gate.outer_m) for gate in square]
        self._corners_w = np.array(outlines).reshape(-1, 4, 3)
        self._opening_m = np.array([gate.opening_m for gate in square])

    @property
    def whole_image(self) -> SearchWindow:
        return SearchWindow(self._frame_ratio)

    def next_window(self, state: State, unseen_s: float) -> SearchWindow:
        """Return the window for an image near a state: whole periodically or with no gate seen for `unseen_s`, else `predict`."""
        if unseen_s > LOSS_S or state.t % WHOLE_EVERY_S < WHOLE_FOR_S:
            return self.whole_image
        return self.predict(state)

    def predict(self, state: State) -> SearchWindow:
        """Return the smallest window that contains all gates of the course in view, given the uncertainty of the pose."""
        camera = self._camera
        p_wc, R_wc = camera.pose(state.p_wb, state.q_wb)
        corners_c = (self._corners_w - p_wc) @ R_wc
        depth, range_m = corners_c[..., 2], np.linalg.norm(corners_c.mean(1), axis=-1)
        ahead = depth.min(-1) > NEAR_M
        passing = ~ahead & (depth.max(-1) > NEAR_M) & (range_m < PASSING_M)
        seen = ahead & (self._opening_m * camera.fx_px > LEAST_SIDE_PX * range_m)
        if passing.any() or not seen.any():
            return self.whole_image
        sigma_m = greatest_sigma(state.cov_p)
        off_m = SIGMAS * sigma_m + MAP_M + AGE_S * np.linalg.norm(state.v_w)
        off_rad = SIGMAS * state.sigma_attitude_rad + AGE_S * np.linalg.norm(state.omega_b)
        margin_px = camera.fx_px * (off_rad + off_m / depth[seen].min(-1))[:, None, None]
        px = camera.project(corners_c[seen])
        size = camera.width_px, camera.height_px
        low = np.clip(np.floor(px - margin_px).min(1), 0, size)
        high = np.clip(np.ceil(px + margin_px).max(1) + 1, 0, size)
        shows = (high > low).all(-1)
        if not shows.any():
            return self.whole_image
        left, top = low[shows].min(0).astype(int).tolist()
        right, bottom = high[shows].max(0).astype(int).tolist()
        return SearchWindow(self._frame_ratio, left, top, right, bottom)
