"""Models of detectors' output on the rendered image, without rendering, for Monte-Carlo; no false positives. And labels.

`ProjectedCamera`: the holes of the gates are projected by the true lens and mount; occluded or too small ones are dropped, the
others receive the miss rates and errors that `tools/fit_corner_noise.py` has measured on rendered images. Of a hole cut by the
image's border the sides in view are measured and the others extrapolated, as by a detector. Misses are independent between
frames; correlated loss of a corner comes from a world's `dropout`, or from a rival, modelled as a ball.

`Labeller`: the truth about a rendered image, the positions and the visibility of the openings' corners.
"""

from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.common.config import load
from gate_racer.sim.traffic import Rival
from gate_racer.sim.view.scene import drawn_gates, hole_m
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.sim.worlds.world import AS_BELIEVED, CameraDeviation, MarkovChain
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, matrix

NOISE = Path(__file__).parent / "corner_noise.yaml"
BORDER_PX = 2.0  # px, margin of the image's border within which an opening may be cut
BEFORE, NEXT = [3, 0, 1, 2], [1, 2, 3, 0]  # neighbours of each corner or side; side k ends at corner k + 1
CUT_SIDE = 0.25  # least fraction of a side in the image for its line to be measured
GUESS = 0.3  # standard deviation of an extrapolated side's offset, over its length
STILL = (0.0, 0.0, 0.0)
NEAR_M = 0.3  # m, least depth of a corner; nearer ones are outside any image of a whole gate
SLANT = 5.0  # largest ratio of longest to shortest side of a detected opening


@dataclass(frozen=True)
class CornerNoise:
    """Detection statistics of openings by their shortest side in the image. Columns of equal length, interpolated in log size."""

    source: str
    side_px: tuple[float, ...]  # shortest side, increasing
    found: tuple[float, ...]  # detection rate of openings entirely in view
    cut_found: tuple[float, ...]  # detection rate of openings cut by the image's border
    edge_offset_px: tuple[float, ...]  # mean outward offset of all edges
    edge_offset_std_px: tuple[float, ...]  # standard deviation of that offset between detections
    corner_px: tuple[float, ...]  # standard deviation of the remaining error, independent per corner coordinate
    wild: tuple[float, ...]  # fraction of detections with a gross error
    wild_px: tuple[float, ...]  # standard deviation of a corner coordinate with a gross error
    sigma_px: tuple[float, ...]  # standard deviation that the detector reports, median
    score: tuple[float, ...]  # score that the detector reports, median

    def __post_init__(self) -> None:
        n, sizes = len(self.side_px), {len(column) for column in astuple(self) if isinstance(column, tuple)}
        if n < 2 or sizes != {n} or list(self.side_px) != sorted(set(self.side_px)):
            raise ValueError("side_px must hold two or more increasing values, and all columns must have its length")

    @cached_property
    def _table(self) -> tuple[Array, Array, tuple[str, ...]]:
        """Logarithm of the sizes, one row of statistics per size, and their names."""
        names = tuple(one.name for one in fields(self) if one.name not in ("source", "side_px"))
        return np.log(self.side_px), np.array([getattr(self, name) for name in names]).T, names

    def at(self, side_px: float) -> dict[str, float]:
        """Return the statistics at a size, by name."""
        log_sides, rows, names = self._table
        place = np.interp(np.log(side_px), log_sides, np.arange(len(rows), dtype=float))
        k = min(int(place), len(rows) - 2)
        return dict(zip(names, (rows[k] + (place - k) * (rows[k + 1] - rows[k])).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class SeenGate:
    corners_px: Array  # (4, 2), clockwise in the image, from the one nearest to its top left
    measured: np.ndarray  # (4,) bool: side from this corner to the next is measured, not extrapolated
    visible: np.ndarray  # (4,) bool: corner in the image, between measured sides
    sigma_px: float  # standard deviation of one coordinate of a visible corner
    score: float  # 0..1


@dataclass(frozen=True, slots=True)
class Visible:
    """Openings visible from a pose, without noise."""

    gate: np.ndarray  # (K,) index into `drawn_gates`
    corners_px: Array  # (K, 4, 2), clockwise in the image, from the one nearest to its top left
    measured: np.ndarray  # (K, 4) bool: at least CUT_SIDE of the side from this corner to the next is in the image
    visible: np.ndarray  # (K, 4) bool: corner in the image, between measured sides
    side_px: Array  # (K,) shortest side

    def without(self, hidden: np.ndarray) -> "Visible":
        """Remove hidden corners (K, 4); a side is measured only between two visible corners."""
        measured = self.measured & ~hidden & ~hidden[:, NEXT]
        visible = self.visible & measured & measured[:, BEFORE]
        some = (measured.sum(-1) >= 2) & visible.any(-1)
        return Visible(*(part[some] for part in (self.gate, self.corners_px, measured, visible, self.side_px)))


class ProjectedCamera:
    """Simulated gate detector on the gates as a style renders them. Deterministic for a seed and a sequence of poses."""

    def __init__(
        self,
        track: Track,
        camera: Camera,
        style: RenderingStyle,
        seed: int,
        noise: CornerNoise | None = None,
        off: CameraDeviation = AS_BELIEVED.camera,
    ):
        """Set up the detector for the true camera, by default with the measured noise; only the dropout of `off` is used."""
        self.camera, self.noise = camera, noise or load(NOISE, CornerNoise)
        self._rng = np.random.default_rng([seed, 2])
        self._gates = Openings(track, style)
        self._hidden_corners: MarkovChain | None = None
        if off.dropout:
            rng = np.random.default_rng([seed, 4])
            self._hidden_corners = MarkovChain(off.dropout, off.dropout_frames, (len(self._gates.p_wg), 4), rng)
        self._side_by_side = np.concatenate([np.empty((3, 0)), *self._gates.R_wg], 1)
        self._readout_s = style.readout_s
        self._low = np.array([solid.low_m for solid in track.obstacles]).reshape(-1, 3)
        self._high = np.array([solid.high_m for solid in track.obstacles]).reshape(-1, 3)

    def see(
        self,
        p_wb: ArrayLike,
        q_wb: ArrayLike,
        v_w: ArrayLike = STILL,
        omega_b: ArrayLike = STILL,
        rivals: tuple[Rival, ...] = (),
    ) -> list[SeenGate]:
        """Return the detections, best score first, from a body at p_wb (3,) m, q_wb (4,), moving at v_w (3,) and omega_b (3,)."""
        seen, rng = self.visible(p_wb, q_wb, v_w, omega_b), self._rng
        if rivals:
            seen = seen.without(self._behind(rivals, seen, p_wb, q_wb))
        if self._hidden_corners is not None:
            seen = seen.without(self._hidden_corners.step()[seen.gate])
        found = []
        columns = seen.corners_px, seen.measured, seen.visible, seen.side_px
        for corners_px, measured, visible, side in zip(*columns, strict=True):
            noise = self.noise.at(side)
            chance, gross = rng.random(2)
            errors = rng.standard_normal((5, 2))
            if chance > noise["found" if visible.all() else "cut_found"]:
                continue
            spread = noise["wild_px"] if gross < noise["wild"] else noise["corner_px"]
            offset = noise["edge_offset_px"] + noise["edge_offset_std_px"] * errors[4, 0]
            shifted = corners_px + offset * outward_shifts(corners_px) + spread * errors[:4]
            if not measured.all():
                shifted += _slid(corners_px, np.where(measured, 0.0, GUESS * rng.standard_normal(4)))
            found.append(SeenGate(shifted, measured, visible, noise["sigma_px"], noise["score"]))
        return sorted(found, key=lambda gate: -gate.score)

    def visible(self, p_wb: ArrayLike, q_wb: ArrayLike, v_w: ArrayLike = STILL, omega_b: ArrayLike = STILL) -> Visible:
        """Return the openings at least partly in view, large enough, not too oblique and not occluded by gates or obstacles."""
        eye_w, R_wc = self.camera.pose(p_wb, q_wb)
        p_c = (self._gates.p_wg - eye_w) @ R_wc
        far_m = 2 * self._gates.half_m * max(self.camera.fx_px, self.camera.fy_px) / self.noise.side_px[0]
        ahead = np.flatnonzero((p_c[:, 2] > NEAR_M) & (p_c[:, 2] < far_m + self._gates.half_m))
        holes_w = self._gates.corners_w(ahead, eye_w)
        corners_c = (holes_w - eye_w) @ R_wc
        whole = corners_c[..., 2].min(-1) > NEAR_M
        ahead, holes_w, corners_c = ahead[whole], holes_w[whole], corners_c[whole]
        px = self.camera.project(corners_c)
        if self._readout_s:
            px = self._rolled(px, corners_c, *(np.asarray(part, float) for part in (q_wb, v_w, omega_b)))
        sides = np.linalg.norm(px - px[:, NEXT], axis=-1)
        least, most = sides.min(-1), sides.max(-1)
        px = _as_seen(px)
        shares, inside = self._in_image(px)
        measured = shares >= CUT_SIDE
        visible = inside & measured & measured[:, BEFORE]
        good = (measured.sum(-1) >= 2) & visible.any(-1) & (least >= self.noise.side_px[0]) & (most < SLANT * least)
        good[good] = ~self._hidden(holes_w[good], eye_w)
        return Visible(ahead[good], px[good], measured[good], visible[good], least[good])

    def _behind(self, rivals: tuple[Rival, ...], seen: Visible, p_wb: ArrayLike, q_wb: ArrayLike) -> np.ndarray:
        """Return the mask (K, 4) of corners occluded by a rival."""
        eye_w, R_wc = self.camera.pose(p_wb, q_wb)
        rays = self.camera.rays(seen.corners_px)
        rays = np.concatenate([rays, np.ones((*rays.shape[:2], 1))], -1)
        rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
        far_m = np.linalg.norm(self._gates.p_wg[seen.gate] - eye_w, axis=-1)[:, None]
        hidden = np.zeros(rays.shape[:2], bool)
        for rival in rivals:
            centre_c = (rival.p_wb - eye_w) @ R_wc
            along = rays @ centre_c
            across = np.sqrt(np.maximum(centre_c @ centre_c - along**2, 0.0))
            hidden |= (along > 0) & (along < far_m) & (across < rival.radius_m)
        return hidden

    def _rolled(self, px: Array, p_c: Array, q_wb: Array, v_w: Array, omega_b: Array) -> Array:
        """Return the corners, px, with a rolling shutter, to first order: points move until their row is exposed.

        p' = p - (v + omega x p_camera + omega x p) dt, camera axes, with dt of the row of the point at mid-exposure.
        """
        R_bc = self.camera.R_bc
        omega_c = R_bc.T @ omega_b
        v_c = R_bc.T @ (matrix(q_wb).T @ v_w + np.cross(omega_b, self.camera.p_bc))
        later = self._readout_s * ((px[..., 1:] + 0.5) / self.camera.height_px - 0.5)
        moved = p_c - later * (v_c + np.cross(omega_c, p_c))
        return self.camera.project(np.concatenate([moved[..., :2], np.maximum(moved[..., 2:], NEAR_M)], -1))

    def _in_image(self, px: Array) -> tuple[Array, np.ndarray]:
        """Return the fraction of each side of quads (K, 4, 2) inside the image, and the mask of corners inside."""
        low, high = BORDER_PX, np.array([self.camera.width_px, self.camera.height_px]) - 1 - BORDER_PX
        along = px[:, NEXT] - px
        with np.errstate(divide="ignore", invalid="ignore"):
            enter, leave = (low - px) / along, (high - px) / along
        first, last = np.fmin(enter, leave).max(-1), np.fmax(enter, leave).min(-1)
        return np.minimum(last, 1) - np.maximum(first, 0), np.asarray(((px >= low) & (px <= high)).all(-1))

    def _hidden(self, holes_w: Array, eye_w: Array) -> np.ndarray:
        """Return the mask (K,) of holes with a corner or a side's midpoint occluded by another gate's frame or an obstacle."""
        points = np.concatenate([holes_w, (holes_w + holes_w[:, NEXT]) / 2], 1)  # (K, 8, 3)
        sight = points - eye_w
        toward = (sight.reshape(-1, 3) @ self._side_by_side).reshape(*sight.shape[:2], len(self._gates.p_wg), 3)
        eye_g = ((eye_w - self._gates.p_wg)[:, None] @ self._gates.R_wg)[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            s = -eye_g[:, 0] / toward[..., 0]  # lines of sight at the planes of all gates, (K, 8, G)
            across = np.abs(eye_g[:, 1:] + s[..., None] * toward[..., 1:]).max(-1)
            frame = (s > 0) & (s < 0.98) & (across > self._gates.half_m) & (across < self._gates.outer_m)
        hidden = frame.any((1, 2))
        if len(self._low):
            with np.errstate(divide="ignore", invalid="ignore"):
                enter, leave = (self._low - eye_w) / sight[:, :, None], (self._high - eye_w) / sight[:, :, None]
            first, last = np.fmin(enter, leave).max(-1), np.fmax(enter, leave).min(-1)  # (K, 8, obstacles)
            hidden |= ((first <= last) & (last > 0) & (first < 1)).any((1, 2))
        return hidden


def outward_shifts(corners_px: Array) -> Array:
    """Return shifts (4, 2) of the corners that move every edge of a square outward by one pixel."""
    middle = corners_px - corners_px.mean(0)
    return middle / (np.linalg.norm(middle, axis=-1).mean() / np.sqrt(2))


def _slid(corners_px: Array, shares: Array) -> Array:
    """Return the shifts (4, 2) of the corners when each side moves outward along its neighbours by shares (4,) of its length."""
    along = corners_px[NEXT] - corners_px
    length = np.linalg.norm(along, axis=-1)
    step, unit = (shares * length)[:, None], along / length[:, None]
    return step * unit[BEFORE] - step[BEFORE] * unit


def _as_seen(corners_px: Array) -> Array:
    """Return quadrilaterals (K, 4, 2) in clockwise order from the corner nearest to the image's top left."""
    diagonal = corners_px[:, 2:] - corners_px[:, :2]
    behind = diagonal[:, 0, 0] * diagonal[:, 1, 1] - diagonal[:, 0, 1] * diagonal[:, 1, 0] < 0
    turned = np.where(behind[:, None, None], corners_px[:, ::-1], corners_px)
    first = turned.sum(-1).argmin(-1)
    return np.take_along_axis(turned, ((first[:, None] + np.arange(4)) % 4)[..., None], 1)


# Openings of the rendered gates, and ground-truth labels: image positions and visibility of their corners. An opening is the
# visible hole: the near and the far face both limit the view, and each side of the hole is the side of the face that reaches
# further in. It is given in the gate's plane, as in `perception.association`.

CLIP_M = 0.1  # m, near clipping distance along the optical axis
NEARER_M = 0.5  # m, depth by which an occluder is nearer than the gate's plane; exceeds the depth of an oblique frame
RIM = 1.1  # ratio to the opening of the square on the frame on which occlusion is sampled
RIM_SIDE = 12  # samples on each side of that square


class Openings:
    """Openings of a track's `drawn_gates`, as rendered with a style: K gates, or some of them by index."""

    def __init__(self, track: Track, style: RenderingStyle):
        gates = drawn_gates(track)
        self.p_wg = np.array([gate.p_wg for gate in gates]).reshape(-1, 3)  # m, world
        self.R_wg = np.array([gate.R_wg for gate in gates]).reshape(-1, 3, 3)
        self.half_m = np.array([hole_m(gate, style) / 2 for gate in gates])  # of the hole
        self.outer_m = np.array([gate.outer_m / 2 for gate in gates])  # half of the frame
        self.depth_m = style.depth_m

    def corners_w(self, gate: np.ndarray, eye_w: Array) -> Array:
        """Return the corners (K, 4, 3) m, world, of the holes of gates (K,) visible from eye_w (3,), in the gates' planes."""
        eye_g = ((eye_w - self.p_wg[gate])[:, None] @ self.R_wg[gate])[:, 0]
        x = np.copysign(np.maximum(np.abs(eye_g[:, :1]), self.depth_m), eye_g[:, :1])
        eye, half = eye_g[:, 1:], self.half_m[gate][:, None]
        scale = x / (x - self.depth_m / 2 * np.array([-1.0, 1.0]))  # (K, 2): from either face to the plane
        low = (eye[:, None] + (-half - eye)[:, None] * scale[..., None]).max(1)
        high = (eye[:, None] + (half - eye)[:, None] * scale[..., None]).min(1)
        hole_g = np.zeros((len(gate), 4, 3))
        hole_g[:, [0, 3], 1], hole_g[:, [1, 2], 1] = low[:, :1], high[:, :1]
        hole_g[:, [0, 1], 2], hole_g[:, [2, 3], 2] = low[:, 1:], high[:, 1:]
        return self.p_wg[gate][:, None] + hole_g @ np.swapaxes(self.R_wg[gate], -1, -2)


@dataclass(frozen=True, slots=True)
class Labels:
    """Openings ahead of the camera in one image, nearest first."""

    corners_px: Array  # (K, 4, 2), clockwise in the image; NaN for a corner behind the camera
    visible: np.ndarray  # (K, 4) whether the corner is in the image and not occluded
    free: Array  # (K,) fraction of the frame around the opening that is not occluded
    range_m: Array  # (K,) distance from the camera


class Labeller:
    def __init__(self, track: Track, camera: Camera, style: RenderingStyle):
        self.camera, self._gates = camera, Openings(track, style)

    def label(self, p_wb: Array, q_wb: Array, depth_m: np.ndarray) -> Labels:
        """Return the labels of an image with depth `depth_m` (H, W), see `RenderedCamera.depth_m`."""
        R_wc = matrix(q_wb) @ self.camera.R_bc
        sight = self._gates.p_wg - p_wb
        ahead = np.flatnonzero(sight @ R_wc[:, 2] > -self._gates.outer_m)
        ahead = ahead[np.argsort(np.linalg.norm(sight[ahead], axis=-1))]
        corners_w = self._gates.corners_w(ahead, p_wb)
        corners_c = (corners_w - p_wb) @ R_wc
        z = corners_c[..., 2:]
        px = np.where(z > CLIP_M, self.camera.project(np.where(z > CLIP_M, corners_c, 1.0)), np.nan)
        centre = corners_w.mean(1, keepdims=True)
        rim_w = centre + RIM * (corners_w - centre)
        side_w = rim_w[:, [1, 2, 3, 0]] - rim_w
        rim_w = rim_w[:, :, None] + np.arange(RIM_SIDE)[:, None] / RIM_SIDE * side_w[:, :, None]  # (K, 4, RIM_SIDE, 3)
        free = self._free((rim_w - p_wb) @ R_wc, depth_m) & self._open(ahead, corners_w)[:, None, None]
        visible = free[:, :, 0] & self.camera.sees(np.nan_to_num(px, nan=-9.0))
        # A gate seen from behind has its corners in the opposite order.
        behind = ((p_wb - self._gates.p_wg[ahead])[:, None] @ self._gates.R_wg[ahead])[:, 0, 0] > 0
        px[behind], visible[behind] = px[behind][:, ::-1], visible[behind][:, ::-1]
        return Labels(px, visible, free.mean((1, 2)), np.linalg.norm(sight[ahead], axis=-1))

    def _free(self, points_c: Array, depth_m: np.ndarray) -> np.ndarray:
        """Return the mask of unoccluded points (..., 3), camera RDF; outside the image the depth of its border counts."""
        z = points_c[..., 2]
        ahead = z > CLIP_M
        px = self.camera.project(np.where(ahead[..., None], points_c, 1.0))
        height, width = depth_m.shape
        u, v = (np.clip(np.round(px[..., k]), 0, most - 1).astype(int) for k, most in ((0, width), (1, height)))
        return np.asarray(ahead & (depth_m[v, u] > z - NEARER_M))

    def _open(self, gate: np.ndarray, corners_w: Array) -> np.ndarray:
        """Return the mask (K,) of holes that are open: at a slant the near face covers the opening of the far one."""
        diagonal_g = ((corners_w[:, 2] - corners_w[:, 0])[:, None] @ self._gates.R_wg[gate])[:, 0]
        return (diagonal_g[:, 1:] > 0).all(-1)
