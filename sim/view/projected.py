"""`ProjectedCamera`: what a detector would make of the rendered picture, without rendering: for Monte-Carlo.

The holes of the gates are projected by the pinhole; those hidden, cut or too small are left out, the rest get the misses and
errors that `benchmarks/corner_noise.py` has measured on rendered pictures. Misses are drawn frame by frame: that a lamp or
the corridor may hide a gate for many frames on end is not modelled, and no false gates are.
"""

from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from sim.view.gates import drawn_gates, hole_m
from sim.view.look import Look
from tracks.track import Track
from vehicle.camera import Camera
from vehicle.config import load
from vehicle.rotation import Array

NOISE = Path(__file__).parent / "corner_noise.yaml"
BORDER_PX = 2.0  # an opening nearer to the picture's edge may be cut
NEXT = [1, 2, 3, 0]  # corner of each corner
NEAR_M = 0.3  # corners nearer than that are out of any picture of a whole gate
SLANT = 5.0  # longest over shortest side of an opening that is still recognised


@dataclass(frozen=True)
class CornerNoise:
    """Detection of openings over their least side in the picture. Columns of one length, interpolated in log size."""

    source: str
    side_px: tuple[float, ...]  # rising
    found: tuple[float, ...]  # share of the openings that are detected
    swell_px: tuple[float, ...]  # mean outward shift of all edges
    swell_std_px: tuple[float, ...]  # ... and its standard deviation from detection to detection
    corner_px: tuple[float, ...]  # standard deviation of the rest, each coordinate of each corner for itself
    wild: tuple[float, ...]  # share of detections with a gross error
    wild_px: tuple[float, ...]  # standard deviation of the corners then
    sigma_px: tuple[float, ...]  # what the detector states, median
    score: tuple[float, ...]  # what the detector states, median

    def __post_init__(self) -> None:
        columns = [column for column in astuple(self) if isinstance(column, tuple)]
        if (
            len(self.side_px) < 2
            or {len(column) for column in columns} != {len(self.side_px)}
            or list(self.side_px) != sorted(set(self.side_px))
        ):
            raise ValueError("side_px must rise over two values or more, and all columns must be as long")


@dataclass(frozen=True, slots=True)
class SeenGate:
    """One opening as a detector reports it."""

    corners_px: Array  # (4, 2), clockwise as seen, from the one nearest to the picture's top left
    sigma_px: float  # standard deviation of one corner coordinate
    score: float  # 0..1


@dataclass(frozen=True, slots=True)
class Visible:
    """The openings that can be seen from a pose, without noise."""

    gate: np.ndarray  # (K,) index into the course's drawn gates
    corners_px: Array  # (K, 4, 2), clockwise as seen, from the one nearest to the picture's top left
    side_px: Array  # (K,) least side


class ProjectedCamera:
    """Sees what the look's drawn gates would show. The same seed and poses give the same corners."""

    def __init__(self, track: Track, camera: Camera, look: Look, seed: int, noise: CornerNoise | None = None):
        """`noise` defaults to the measured one, in `corner_noise.yaml`."""
        self.camera, self.noise = camera, noise or load(NOISE, CornerNoise)
        self._rng = np.random.default_rng([seed, 2])
        gates = drawn_gates(track)
        self._p_wg = np.array([gate.p_wg for gate in gates]).reshape(-1, 3)
        self._R_wg = np.array([gate.R_wg for gate in gates]).reshape(-1, 3, 3)
        self._side_by_side = np.concatenate([np.empty((3, 0)), *self._R_wg], 1)
        self._half_m = np.array([hole_m(gate, look) / 2 for gate in gates])
        self._outer_m = np.array([gate.outer_m / 2 for gate in gates])
        self._depth_m = look.depth_m
        self._low = np.array([solid.low_m for solid in track.obstacles]).reshape(-1, 3)
        self._high = np.array([solid.high_m for solid in track.obstacles]).reshape(-1, 3)
        self._names = tuple(name.name for name in fields(CornerNoise) if name.name not in ("source", "side_px"))
        self._table = np.array([getattr(self.noise, name) for name in self._names]).T  # a row for each size
        self._log_side, self._rows = np.log(self.noise.side_px), np.arange(len(self._table), dtype=float)

    def see(self, p_wb: ArrayLike, q_wb: ArrayLike) -> list[SeenGate]:
        """The detections of one picture from a body at p_wb (3,) m with attitude q_wb (4,)."""
        seen, rng = self.visible(p_wb, q_wb), self._rng
        found = []
        for corners_px, side in zip(seen.corners_px, seen.side_px, strict=True):
            noise = self._at(side)
            chance, gross = rng.random(2)
            errors = rng.standard_normal((5, 2))
            if chance > noise["found"]:
                continue
            spread = noise["wild_px"] if gross < noise["wild"] else noise["corner_px"]
            swell = noise["swell_px"] + noise["swell_std_px"] * errors[4, 0]
            shifted = corners_px + swell * _outward(corners_px) + spread * errors[:4]
            found.append(SeenGate(shifted, noise["sigma_px"], noise["score"]))
        return sorted(found, key=lambda gate: -gate.score)

    def _at(self, side_px: float) -> dict[str, float]:
        """The row of the noise table for a size, by name."""
        place = np.interp(np.log(side_px), self._log_side, self._rows)
        k = min(int(place), len(self._table) - 2)
        row = self._table[k] + (place - k) * (self._table[k + 1] - self._table[k])
        return dict(zip(self._names, row.tolist(), strict=True))

    def visible(self, p_wb: ArrayLike, q_wb: ArrayLike) -> Visible:
        """The openings wholly in view, near enough, not too slanting and not hidden by gates or obstacles."""
        eye_w, R_wc = self.camera.pose(p_wb, q_wb)
        p_c = (self._p_wg - eye_w) @ R_wc
        far_m = 2 * self._half_m * max(self.camera.fx_px, self.camera.fy_px) / self.noise.side_px[0]
        ahead = np.flatnonzero((p_c[:, 2] > NEAR_M) & (p_c[:, 2] < far_m + self._half_m))
        holes_w = self._holes(ahead, eye_w)
        corners_c = (holes_w - eye_w) @ R_wc
        whole = corners_c[..., 2].min(-1) > NEAR_M
        ahead, holes_w, px = ahead[whole], holes_w[whole], self.camera.project(corners_c[whole])
        high = np.array([self.camera.width_px, self.camera.height_px]) - 1 - BORDER_PX
        sides = np.linalg.norm(px - px[:, NEXT], axis=-1)
        least, most = sides.min(-1), sides.max(-1)
        good = (
            ((px >= BORDER_PX) & (px <= high)).all((1, 2)) & (least >= self.noise.side_px[0]) & (most < SLANT * least)
        )
        good[good] = ~self._hidden(holes_w[good], eye_w)
        return Visible(ahead[good], _as_seen(px[good]), least[good])

    def _holes(self, gate: np.ndarray, eye_w: Array) -> Array:
        """World corners (K, 4, 3) of the rectangles in the planes of gates (K,) that are seen through from eye_w (3,).

        The near and the far face both cut the view; each side belongs to the one that reaches further in.
        """
        eye_g = ((eye_w - self._p_wg[gate])[:, None] @ self._R_wg[gate])[:, 0]
        x = np.copysign(np.maximum(np.abs(eye_g[:, :1]), self._depth_m), eye_g[:, :1])
        eye, half = eye_g[:, 1:], self._half_m[gate][:, None]
        scale = x / (x - self._depth_m / 2 * np.array([-1.0, 1.0]))  # (K, 2): from either face onto the plane
        low = (eye[:, None] + (-half - eye)[:, None] * scale[..., None]).max(1)
        high = (eye[:, None] + (half - eye)[:, None] * scale[..., None]).min(1)
        hole_g = np.zeros((len(gate), 4, 3))
        hole_g[:, [0, 3], 1], hole_g[:, [1, 2], 1] = low[:, :1], high[:, :1]
        hole_g[:, [0, 1], 2], hole_g[:, [2, 3], 2] = low[:, 1:], high[:, 1:]
        return self._p_wg[gate][:, None] + hole_g @ np.swapaxes(self._R_wg[gate], -1, -2)

    def _hidden(self, holes_w: Array, eye_w: Array) -> np.ndarray:
        """Which of K holes (K, 4, 3) have a corner or the middle of a side behind another gate's frame or an obstacle."""
        points = np.concatenate([holes_w, (holes_w + holes_w[:, NEXT]) / 2], 1)  # (K, 8, 3)
        sight = points - eye_w
        toward = (sight.reshape(-1, 3) @ self._side_by_side).reshape(*sight.shape[:2], len(self._p_wg), 3)
        eye_g = ((eye_w - self._p_wg)[:, None] @ self._R_wg)[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            s = -eye_g[:, 0] / toward[..., 0]  # where a line of sight pierces the planes of all gates, (K, 8, G)
            across = np.abs(eye_g[:, 1:] + s[..., None] * toward[..., 1:]).max(-1)
            frame = (s > 0) & (s < 0.98) & (across > self._half_m) & (across < self._outer_m)
        hidden = frame.any((1, 2))
        if len(self._low):
            with np.errstate(divide="ignore", invalid="ignore"):
                enter, leave = (self._low - eye_w) / sight[:, :, None], (self._high - eye_w) / sight[:, :, None]
            first, last = np.fmin(enter, leave).max(-1), np.fmax(enter, leave).min(-1)  # (K, 8, obstacles)
            hidden |= ((first <= last) & (last > 0) & (first < 1)).any((1, 2))
        return hidden


def _outward(corners_px: Array) -> Array:
    """Unit steps (4, 2) of the corners that move every edge of a square outward by one pixel."""
    middle = corners_px - corners_px.mean(0)
    return middle / (np.linalg.norm(middle, axis=-1).mean() / np.sqrt(2))


def _as_seen(corners_px: Array) -> Array:
    """Quadrilaterals (K, 4, 2) clockwise, each begun at its corner nearest to the picture's top left."""
    diagonal = corners_px[:, 2:] - corners_px[:, :2]
    behind = diagonal[:, 0, 0] * diagonal[:, 1, 1] - diagonal[:, 0, 1] * diagonal[:, 1, 0] < 0
    turned = np.where(behind[:, None, None], corners_px[:, ::-1], corners_px)
    first = turned.sum(-1).argmin(-1)
    return np.take_along_axis(turned, ((first[:, None] + np.arange(4)) % 4)[..., None], 1)
