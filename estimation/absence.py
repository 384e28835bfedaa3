"""Evidence that a gate stands elsewhere: images that should show its opening, and show nothing there (a likelihood ratio).

    log ratio = sum over images of -log(1 - P_d)

P_d is the detector's probability of detection of an opening with so many corners in view. A corner counts as in view with room
for the errors of the pose; an opening is expected if no other frame and no obstacle may hide it, and it is neither too small nor
too oblique. An image with anything near an expected corner is no evidence; one in which the gate is recognised refutes it all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimation.estimator import ExposureState
from perception.detection import Detection
from perception.roi import SearchWindow
from tracks.gate import Gate
from tracks.solids import SolidBox
from vehicle.camera import Camera
from vehicle.rotation import Array
from vehicle.statistics import greatest_sigma

NOTHING = np.empty((0, 2))  # px


@dataclass(frozen=True, slots=True)
class AbsenceConfig:
    """Parameters of the test."""

    # -, by the number of corners in view (measured: `benchmarks/perception.py`, the worse detector; of whole openings
    # `sim/view/corner_noise.yaml`, the least within `side_px`)
    detected: tuple[float, float, float, float, float] = (0.0, 0.0, 0.49, 0.70, 0.85)
    false_alarm: float = (
        0.02  # -, greatest likelihood of the images if the gate stands where it is believed to (chosen)
    )
    side_px: tuple[float, float] = (
        17.0,
        200.0,
    )  # px, shortest and longest side of an opening that is expected (chosen)
    slant: float = 3.0  # -, greatest ratio of the sides (chosen)
    sigmas: float = 3.0  # -, standard deviations of the pose within which a corner may lie (chosen)
    border_px: float = 10.0  # px, further room at the image's border (chosen)
    frame_m: float = 0.2  # m, room around frames and obstacles that may hide a corner (chosen)
    near_m: float = 1.0  # m, least depth of a corner (chosen)
    step_m: float = 0.3  # m, distance of samples along a line of sight, for obstacles (chosen)


class GateAbsence:
    """Test of one gate of a flight at a time, the next."""

    def __init__(self, gates: Sequence[Gate], obstacles: Sequence[SolidBox], config: AbsenceConfig | None = None):
        """`gates`: of the map, whose frames hide what is behind them."""
        self._gates, self._obstacles, self._config = gates, obstacles, config or AbsenceConfig()
        self._number, self._log_ratio = -1, 0.0

    def missing(self, number: int) -> bool:
        """Return whether the images since the gate before show that gate `number` of the course is not where it is believed."""
        return number == self._number and self._log_ratio > -math.log(self._config.false_alarm)

    def look(
        self,
        number: int,
        gate: Gate,
        at: ExposureState,
        camera: Camera,
        detections: Sequence[Detection],
        recognised: bool,
        window: SearchWindow | None,
    ) -> None:
        """Add an image to the evidence.

        Args:
            number: number of the next gate in the course.
            gate: that gate, where it is believed to stand in the frame of `at.state`.
            camera: as calibrated in flight.
            recognised: whether the image showed the gate.
            window: region that was searched; None: all.
        """
        if recognised or number != self._number:
            self._number, self._log_ratio = number, 0.0
        if recognised:
            return
        expected_px = self._expected(gate, at, camera, window)
        if not any(_near(one, expected_px) for one in detections):
            self._log_ratio -= math.log(1 - self._config.detected[len(expected_px)])

    def _expected(self, gate: Gate, at: ExposureState, camera: Camera, window: SearchWindow | None) -> Array:
        """Return the corners (K, 2) px of the opening that should be in view; none where it need not be seen."""
        config, state, corners_w = self._config, at.state, gate.corners()
        p_wc, R_wc = camera.pose(state.p_wb, state.q_wb)
        p_c = (corners_w - p_wc) @ R_wc
        if gate.local(p_wc)[0] > 0 or p_c[:, 2].min() < config.near_m or self._hidden(gate, corners_w, p_wc):
            return NOTHING
        px = camera.project(p_c)
        sides = np.linalg.norm(px - np.roll(px, -1, 0), axis=1)
        low, high = config.side_px
        if sides.min() < low or sides.max() > min(high, config.slant * sides.min()):
            return NOTHING
        doubt = state.sigma_attitude_rad + greatest_sigma(state.cov_p) / p_c[:, 2].min()
        room = config.border_px + config.sigmas * doubt * camera.fx_px
        left, top, right, bottom = 0, 0, camera.width_px, camera.height_px
        if window is not None and window.region is not None:
            left, top, right, bottom = window.left, window.top, window.right, window.bottom
        return px[((px > [left + room, top + room]) & (px < [right - room, bottom - room])).all(1)]

    def _hidden(self, gate: Gate, corners_w: Array, p_wc: Array) -> bool:
        """Return whether another frame or an obstacle may hide one of the corners (4, 3) m from p_wc (3,) m."""
        room, sight = self._config.frame_m, corners_w - p_wc
        for other in self._gates:
            if not other.has_frame or other.same_frame(gate):
                continue
            eye, toward = other.local(p_wc), sight @ other.R_wg
            with np.errstate(divide="ignore", invalid="ignore"):
                s = -eye[0] / toward[:, 0]
                across = np.abs(eye[1:] + s[:, None] * toward[:, 1:]).max(1)
            if ((s > 0) & (s < 1) & (across > other.half - room) & (across < other.outer_m / 2 + room)).any():
                return True
        along = np.linspace(0, 1, math.ceil(float(np.linalg.norm(sight, axis=1).max()) / self._config.step_m))
        points = p_wc + along[:, None, None] * sight
        return any(bool((solid.distance(points) < room).any()) for solid in self._obstacles)


def _near(detection: Detection, expected_px: Array) -> bool:
    """Return whether a visible corner lies within a quarter of the opening's width of an expected corner (K, 2) px."""
    px = detection.corners_px
    reach = float(np.linalg.norm(px[2] - px[0])) / 4
    return bool((np.linalg.norm(px[detection.visible][:, None] - expected_px, axis=-1) < reach).any())
