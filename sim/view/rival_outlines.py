"""Model of a rival detector's output without rendering: bounding boxes of the rivals with detection errors.

Detection rates are those of openings of the same size (`corner_noise.yaml`); the errors are a guess, larger than those of
openings, since no detector of rivals has been measured. A rival less than half in the image, or whose centre is occluded by a
frame, an obstacle or another rival, is not reported. No false positives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.sim.heat.traffic import Rival
from gate_racer.sim.view.gates import drawn_gates
from gate_racer.sim.view.projected import NEAR_M, NOISE, CornerNoise
from gate_racer.tracks.solids import SolidBox, bars, of_obstacle
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.config import load
from gate_racer.vehicle.rotation import Array, matrix

EDGE_PX = 1.0  # px, standard deviation of each side of the box; rotor discs have no sharp edge (guess)
LEAST_SHARE = 0.5  # least fraction of the bounding box's area in the image
CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])


@dataclass(frozen=True, slots=True)
class SeenRival:
    """Rival as reported by a detector."""

    box_px: Array  # (4,) left, top, right and bottom of the outline, clipped to the image
    sigma_px: float  # standard deviation of each side
    cut: tuple[bool, bool, bool, bool]  # sides that are cut by the image's border
    score: float  # 0..1


class RivalOutlines:
    """Simulated rival detector. Deterministic for a seed and a sequence of poses."""

    def __init__(self, track: Track, camera: Camera, seed: int, noise: CornerNoise | None = None):
        """Set up with the true camera; `noise`: detection statistics, by default those measured in `corner_noise.yaml`."""
        self._camera, self._noise = camera, noise or load(NOISE, CornerNoise)
        self._rng = np.random.default_rng([seed, 5])
        far_px = np.array([camera.width_px, camera.height_px]) - 1.0
        self._low_px, self._high_px = np.zeros(4), np.tile(far_px, 2)
        frames = [bar for gate in drawn_gates(track) for bar in bars(gate)]
        self._solids: list[SolidBox] = [*map(of_obstacle, track.obstacles), *frames]

    def see(self, p_wb: ArrayLike, q_wb: ArrayLike, rivals: Sequence[Rival]) -> list[SeenRival]:
        """Return the detected rivals in one image from a body at p_wb (3,) m with attitude q_wb (4,)."""
        eye_w, R_wc = self._camera.pose(p_wb, q_wb)
        found = []
        for rival in rivals:
            chance, errors_px = self._rng.random(), EDGE_PX * self._rng.standard_normal(4)
            outline_px = self._outline(rival, eye_w, R_wc)
            if outline_px is None or self._hidden(rival, eye_w, [one for one in rivals if one is not rival]):
                continue
            box_px = np.clip(outline_px, self._low_px, self._high_px)
            side_px = float(min(box_px[2:] - box_px[:2]))
            whole_px = outline_px[2:] - outline_px[:2]
            if side_px < self._noise.side_px[0] or np.prod((box_px[2:] - box_px[:2]) / whole_px) < LEAST_SHARE:
                continue
            if chance < self._at(self._noise.found, side_px):
                cut = outline_px != box_px
                left, top, right, bottom = cut.tolist()
                box_px += np.where(cut, 0.0, errors_px)
                score = self._at(self._noise.score, side_px)
                found.append(SeenRival(box_px, EDGE_PX, (left, top, right, bottom), score))
        return found

    def _outline(self, rival: Rival, eye_w: Array, R_wc: Array) -> Array | None:
        """Return the unclipped bounding box (4,) px: left, top, right, bottom; None where the rival is too near or behind."""
        corners_w = rival.p_wb + CORNERS * rival.body_m @ matrix(rival.q_wb).T
        p_c = (corners_w - eye_w) @ R_wc
        if p_c[:, 2].min() < NEAR_M:
            return None
        px = self._camera.project(p_c)
        return np.concatenate([px.min(axis=0), px.max(axis=0)])

    def _hidden(self, rival: Rival, eye_w: Array, others: Sequence[Rival]) -> bool:
        """Check whether the rival's centre is occluded."""
        sight = rival.p_wb - eye_w
        if any(_pierces(solid, eye_w, sight) for solid in self._solids):
            return True
        for other in others:
            share = float((other.p_wb - eye_w) @ sight / (sight @ sight))
            if 0 < share < 1 and np.linalg.norm(eye_w + share * sight - other.p_wb) < other.radius_m:
                return True
        return False

    def _at(self, column: Sequence[float], side_px: float) -> float:
        """Return a column of the detection statistics, interpolated at a size."""
        return float(np.interp(np.log(side_px), np.log(self._noise.side_px), column))


def _pierces(solid: SolidBox, start_w: Array, step_w: Array) -> bool:
    """Check whether the segment from start_w (3,) along step_w (3,) hits a box (slab method, Kay and Kajiya, 1986)."""
    start, step = (start_w - solid.centre) @ solid.axes, step_w @ solid.axes
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (-solid.half - start) / step, (solid.half - start) / step
    enter, leave = np.fmin(one, other).max(), np.fmax(one, other).min()
    return bool(enter <= leave and leave > 0 and enter < 1)
