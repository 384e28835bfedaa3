"""Images with ground truth: rendered flights about a plan, or a folder with labels.

The truth of an opening is computed with the pinhole model and the depth of the rendered image. Its size is the smaller of
projected width and height: area over longest side. An opening is
- demanded: of 8 px or more, every corner 2 px or more inside the image, and no part of the frame around it occluded by a wall,
  a pillar or a nearer gate: a detector should find it, and its corners are compared;
- partial: of 25 px or more, with one to three corners in the image and not occluded: its detection is reported separately;
- neither, if too small, edge-on or occluded: not required, and not a false detection if it is found.
Every opening accounts for one detection: a second one of the same gate is false.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product as product_of
from pathlib import Path

import numpy as np

from gate_racer.perception.position import rays
from gate_racer.perception.rims import GateAppearance, GateRims
from gate_racer.planner.plan import Plan
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.feed import Feed
from gate_racer.sim.view.gates import drawn_gates
from gate_racer.sim.view.labels import Labeller, Labels
from gate_racer.sim.view.look import Look, load_look
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array, Indices, exp, from_euler, product
from gate_racer.vehicle.vehicle import Vehicle

DEMANDED_PX, PARTIAL_PX = 8.0, 25.0  # px, least size
AHEAD_M = 0.1  # m, least depth of a corner with a usable projection
BORDER_PX = 2.0  # px, margin of the image's border within which a corner may be cut
ALL_FREE = 0.99  # fraction of the frame that is not occluded, above which it counts as free
ASTRAY_M, ASTRAY_RAD = 0.5, 0.1  # m and rad, standard deviations of a flight about its plan
EMPTY_EVERY = 8  # images between those in which the camera is turned away from all gates, where possible
TURNS = 24  # headings tried to turn away
APPROACH_M, APPROACH_M_S = (1.9, 40.0), 15.0  # m and m/s, bounds of the range and largest speed of an approach
APPROACH_ASIDE, APPROACH_RAD = 0.5, 0.15  # largest lateral offset over the range; std of the aim
ROLLING = 2  # fixed-point iterations; a corner moves less than a pixel per row
BOX = np.array(list(product_of((-1.0, 1.0), repeat=3)))  # corners of a box


@dataclass(frozen=True, slots=True)
class Opening:
    """Ground truth of one gate in one image."""

    corners_px: Array  # (4, 2) clockwise in the image, NaN behind the camera
    visible: np.ndarray  # (4,) corners in the image and not occluded
    demanded: bool
    near_face_px: Array | None = None  # (4, 2) nominal corners of the near face's opening likewise; None: unknown

    @property
    def size_px(self) -> float:
        """Smaller of width and height, px; 0 unless all corners are ahead."""
        a, b = self.corners_px[2] - self.corners_px[0], self.corners_px[3] - self.corners_px[1]
        area = abs(a[0] * b[1] - a[1] * b[0]) / 2
        return float(np.nan_to_num(area / max(self.longest_px, 1e-9)))

    @property
    def longest_px(self) -> float:
        """Longest side with both corners ahead, px; 0 if there is none."""
        side = np.linalg.norm(self.corners_px - np.roll(self.corners_px, 1, 0), axis=-1)
        return float(np.nanmax(side)) if np.isfinite(side).any() else 0.0

    @property
    def partial(self) -> bool:
        """Whether some but not all corners are visible and the opening is large enough."""
        return not self.demanded and self.longest_px >= PARTIAL_PX and 0 < self.visible.sum() < 4


@dataclass(frozen=True, slots=True)
class BenchmarkShot:
    """Image with ground truth; pose and course are None where unknown."""

    jpeg: bytes
    openings: list[Opening]
    empty: bool  # no part of a gate's frame is in the image
    pose: tuple[Array, Array] | None
    track: Track | None


def flight(
    plan: Plan, track: Track, vehicle: Vehicle, look_name: str, seed: int, frames: int
) -> Iterator[BenchmarkShot]:
    """Yield images along the plan, uniform in time, with random errors of the pose."""
    rng, camera = np.random.default_rng([seed, 7]), vehicle.camera
    with closing(_Photographer(track, vehicle, load_look(look_name), seed)) as photographer:
        for n, t in enumerate(np.sort(rng.uniform(plan.t[0], plan.t[-1], frames))):
            x = np.array([np.interp(t, plan.t, column) for column in plan.x.T])
            p_wb = x[:3] + rng.normal(0, ASTRAY_M, 3)
            q_wb = np.array(product(x[3:7] / np.linalg.norm(x[3:7]), exp(rng.normal(0, ASTRAY_RAD, 3))))
            for turn in rng.uniform(0, 2 * np.pi, TURNS if n % EMPTY_EVERY == EMPTY_EVERY - 1 else 0):
                away = np.array(product(exp([0.0, 0.0, turn]), q_wb))
                if _empty(track, camera, p_wb, away):
                    q_wb = away
                    break
            yield photographer.shot(Exposure(n, float(t), p_wb, q_wb, x[7:10], x[10:13], float(t), 0.0))


def approaches(track: Track, vehicle: Vehicle, look_name: str, seed: int, frames: int) -> Iterator[BenchmarkShot]:
    """Yield images of gates from poses in front of them, uniform in the logarithm of the range."""
    rng = np.random.default_rng([seed, 11])
    with closing(_Photographer(track, vehicle, load_look(look_name), seed)) as photographer:
        gates = drawn_gates(track)
        for n in range(frames):
            gate = gates[int(rng.integers(len(gates)))]
            back = float(np.exp(rng.uniform(*np.log(APPROACH_M))))
            side, up = rng.uniform(-APPROACH_ASIDE, APPROACH_ASIDE, 2) * back
            yaw = np.arctan2(-side, back) + rng.normal(0, APPROACH_RAD)
            pitch = np.arctan2(up, back) - np.radians(vehicle.camera.tilt_deg) + rng.normal(0, APPROACH_RAD)
            aim = product(gate.q_wg, from_euler(0.0, 0.0, yaw))
            q_wb = np.array(product(aim, from_euler(rng.normal(0, 2 * APPROACH_RAD), pitch, 0.0)))
            p_wb = gate.p_wg + gate.R_wg @ [-back, side, up]
            v_w, omega_b = rng.uniform(0, APPROACH_M_S) * gate.R_wg[:, 0], rng.normal(0, 1.0, 3)
            yield photographer.shot(Exposure(n, n / 30, p_wb, q_wb, v_w, omega_b, n / 30, 0.0))


class _Photographer:
    """Renderer of images with ground truth."""

    def __init__(self, track: Track, vehicle: Vehicle, look: Look, seed: int):
        self._track, self._camera, self._look = track, vehicle.camera, look
        self._labeller, self._feed = Labeller(track, vehicle.camera, look), Feed(track, vehicle, look, seed)
        self._depth = RenderedCamera(track, vehicle.camera, look, seed)
        self._rims = GateRims(drawn_gates(track), GateAppearance(depth_m=look.depth_m))

    def shot(self, exposure: Exposure) -> BenchmarkShot:
        """Return the image of an exposure with its ground truth."""
        camera, p_wb, q_wb = self._camera, exposure.p_wb, exposure.q_wb
        jpeg = self._feed.frame(exposure).jpeg
        self._depth.image(p_wb, q_wb, exposure.t)
        labels = self._labeller.label(p_wb, q_wb, self._depth.depth_m())
        faces_px = _near_faces(labels, self._rims, camera, p_wb, q_wb)
        if self._look.readout_s:
            rolled = [self._rolled(px, labels, exposure) for px in (labels.corners_px, faces_px)]
            labels, faces_px = replace(labels, corners_px=rolled[0]), rolled[1]
        openings = _openings(labels, faces_px, camera)
        return BenchmarkShot(jpeg, openings, _empty(self._track, camera, p_wb, q_wb), (p_wb, q_wb), self._track)

    def _rolled(self, px: Array, labels: Labels, exposure: Exposure) -> Array:
        """Return the corners (K, 4, 2) px of labelled gates as displaced by the rolling shutter."""
        camera = self._camera
        eye_w, R_wc = camera.pose(exposure.p_wb, exposure.q_wb)
        depth_m = ((self._rims.p_wg[_nearest(labels, self._rims, exposure.p_wb)] - eye_w) @ R_wc[:, 2])[:, None, None]
        sight = rays(px, camera)
        points_w = eye_w + depth_m * (sight / sight[..., 2:]) @ R_wc.T
        rolled = px
        for _ in range(ROLLING):
            later_s = self._look.readout_s * (rolled[..., 1] / camera.height_px - 0.5)
            rolled = np.array([[self._moved(*corner, exposure) for corner in zip(*gate, strict=True)]
                               for gate in zip(points_w, later_s, strict=True)]).reshape(px.shape)  # fmt: skip
        return rolled

    def _moved(self, point_w: Array, later_s: float, exposure: Exposure) -> Array:
        """Return the pixel (2,) of a point (3,) m at `later_s` after the exposure; NaN for an unknown point."""
        p_wb = exposure.p_wb + later_s * exposure.v_w
        eye_w, R_wc = self._camera.pose(p_wb, np.array(product(exposure.q_wb, exp(exposure.omega_b * later_s))))
        return self._camera.project((point_w - eye_w) @ R_wc)

    def close(self) -> None:
        self._feed.close()
        self._depth.close()


def _nearest(labels: Labels, rims: GateRims, p_wb: Array) -> Indices:
    """Return the indices (K,) of the labelled gates, identified by their ranges."""
    range_m = np.linalg.norm(rims.p_wg - p_wb, axis=-1)
    return np.abs(range_m - labels.range_m[:, None]).argmin(-1) if len(labels.range_m) else np.zeros(0, int)


def _near_faces(labels: Labels, rims: GateRims, camera: Camera, p_wb: Array, q_wb: Array) -> Array:
    """Return the nominal corners (K, 4, 2) px of the near faces of labelled gates; NaN behind the camera."""
    eye_w, R_wc = camera.pose(p_wb, q_wb)
    gate = _nearest(labels, rims, p_wb)
    corners_c = (rims.near_face(gate, np.broadcast_to(eye_w, (len(gate), 3))) - eye_w) @ R_wc
    ahead = corners_c[..., 2:] > AHEAD_M
    px = np.where(ahead, camera.project(np.where(ahead, corners_c, 1.0)), np.nan)
    behind = ((eye_w - rims.p_wg[gate]) * rims.R_wg[gate][:, :, 0]).sum(-1) > 0
    px[behind] = px[behind][:, ::-1]  # seen from behind, the order is reversed
    return np.asarray(px)


def _openings(labels: Labels, near_faces_px: Array, camera: Camera) -> list[Opening]:
    high = np.array([camera.width_px, camera.height_px]) - 1 - BORDER_PX
    openings = []
    columns = labels.corners_px, labels.visible, labels.free, near_faces_px
    for px, visible, free, face_px in zip(*columns, strict=True):
        inside = bool(((px >= BORDER_PX) & (px <= high)).all())  # NaN is not
        found = Opening(px, visible, False)
        demanded = inside and bool(visible.all()) and free >= ALL_FREE and found.size_px >= DEMANDED_PX
        openings.append(Opening(px, visible, demanded, face_px))
    return openings


def _empty(track: Track, camera: Camera, p_wb: Array, q_wb: Array) -> bool:
    """Check whether all gates' frames lie outside the image or behind the camera, regardless of occlusion."""
    eye_w, R_wc = camera.pose(p_wb, q_wb)
    left, right = -camera.cx_px / camera.fx_px, (camera.width_px - camera.cx_px) / camera.fx_px
    top, bottom = -camera.cy_px / camera.fy_px, (camera.height_px - camera.cy_px) / camera.fy_px
    for gate in drawn_gates(track):
        box_g = np.array([gate.depth_m, gate.outer_m, gate.outer_m]) / 2 * BOX
        x, y, z = ((gate.p_wg + box_g @ gate.R_wg.T - eye_w) @ R_wc).T
        # The whole box lies outside one plane of the frustum.
        out = ((x < left * z), (x > right * z), (y < top * z), (y > bottom * z), z < 0)
        if not any(side.all() for side in out):
            return False
    return True


def labelled(folder: Path) -> Iterator[BenchmarkShot]:
    """Yield the images of a folder with its labels, all demanded. Raises UserError without labels."""
    try:
        labels = json.loads((folder / "labels.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / 'labels.json'}: {error}") from None
    for name, gates in labels.items():
        openings = [Opening(np.array(gate["corners"], float), np.ones(4, bool), True) for gate in gates]
        yield BenchmarkShot((folder / name).read_bytes(), openings, not openings, None, None)
