"""Recall, precision and accuracy of the detectors on images with ground truth.

python benchmarks/perception.py flights                      rendered images along the plans of all tracks
python benchmarks/perception.py approaches --styles glowing   straight approaches to gates, uniform in log range

The truth of an opening is computed with the pinhole model and the depth of the rendered image. Its size is the smaller of
projected width and height: area over longest side. An opening is
- demanded: of 8 px or more, every corner 2 px or more inside the image, and no part of the frame around it occluded by a wall,
  a pillar or a nearer gate: a detector should find it, and its corners are compared;
- partial: of 25 px or more, with one to three corners in the image and not occluded: its detection is reported separately;
- neither, if too small, edge-on or occluded: not required, and not a false detection if it is found.
Every opening accounts for one detection: a second one of the same gate is false. Precision is the fraction of true detections
among true and false ones. NEES of corners under the reported covariance should be 2 in the mean. NEES of fixes is that of the
position fix computed from a detection by the associator: 3 in the mean. Times are those of one core.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from itertools import product as product_of
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.random import Generator, default_rng

from gate_racer.benchmarks.tables import ROOT, Result, conclude, script
from gate_racer.common.errors import exit_code
from gate_racer.common.images import decode_image
from gate_racer.model.quadrilateral import area_px2
from gate_racer.model.rims import GateAppearance, GateRims
from gate_racer.model.states import State
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.registry import DETECTORS, open_detector
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.feed import Feed
from gate_racer.sim.view.projected import Labeller, Labels, outward_shifts
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.scene import drawn_gates
from gate_racer.sim.view.style import RenderingStyle, load_style
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, exp, from_euler, product
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

SIZES_PX = (8.0, 12.0, 25.0, 60.0, 120.0, 1e4)  # limits of the rows by size of opening
RECALL_PX = 12.0, 25.0  # least sizes of the openings whose recall is reported over all sizes
PRIOR_M, PRIOR_RAD = 0.5, 0.01  # standard deviations of the prior for the association
SAME_GATE, SAME_PX = 0.25, 2.0  # fraction of the side, or px, within which all corners of a detection match an opening
DEMANDED_PX, PARTIAL_PX = 8.0, 25.0  # px, least size
AHEAD_M = 0.1  # m, least depth of a corner with a usable projection
BORDER_PX = 2.0  # px, margin of the image's border within which a corner may be cut
ALL_FREE = 0.99  # fraction of the frame that is not occluded, above which it counts as free
ASTRAY_M, ASTRAY_RAD = 0.5, 0.1  # m and rad, standard deviations of a flight about its plan
EMPTY_EVERY = 8  # images between those in which the camera is turned away from all gates, where possible
TURNS = 24  # headings tried to turn away
NONE = np.empty(0)
BOX = np.array(list(product_of((-1.0, 1.0), repeat=3)))  # corners of a box


@dataclass(frozen=True, slots=True)
class Opening:
    """Ground truth of one gate in one image."""

    corners_px: Array  # (4, 2) clockwise in the image, NaN behind the camera
    visible: np.ndarray  # (4,) corners in the image and not occluded
    demanded: bool
    free: bool = True  # no wall, pillar or nearer gate occludes the frame around it
    near_face_px: Array | None = None  # (4, 2) nominal corners of the near face's opening likewise; None: unknown

    @property
    def size_px(self) -> float:
        """Smaller of width and height, px; 0 unless all corners are ahead."""
        return float(np.nan_to_num(area_px2(self.corners_px) / max(self.longest_px, 1e-9)))

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
    """Image with ground truth."""

    jpeg: bytes
    openings: list[Opening]
    empty: bool  # no part of a gate's frame is in the image
    pose: tuple[Array, Array]


def flight(plan: Plan, track: Track, vehicle: Vehicle, style: str, seed: int, frames: int) -> Iterator[BenchmarkShot]:
    """Yield images along the plan, uniform in time, with random errors of the pose."""
    rng, camera = default_rng([seed, 7]), vehicle.camera
    with closing(_Photographer(track, vehicle, load_style(style), seed)) as photographer:
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


def pose(gate: Gate, tilt_deg: float, rng: Generator) -> tuple[Array, Array]:
    """Draw a body pose 1.8 to 45 m in front of a gate, with the camera roughly towards it: p_wb (3,) m, q_wb (4,)."""
    back = float(np.exp(rng.uniform(np.log(1.8), np.log(45.0))))
    side, up = rng.uniform(-0.5, 0.5, 2) * back
    yaw, pitch = np.arctan2(-side, back), np.arctan2(up, back)
    aim = product(gate.q_wg, from_euler(0.0, 0.0, yaw + rng.uniform(-0.5, 0.5)))
    tilt = pitch - np.radians(tilt_deg) + rng.uniform(-0.3, 0.3)
    q_wb = product(aim, from_euler(rng.normal(0.0, 0.4), tilt, 0.0))
    return gate.p_wg + gate.R_wg @ [-back, side, up], np.array(q_wb)


def approaches(track: Track, vehicle: Vehicle, style: str, seed: int, frames: int) -> Iterator[BenchmarkShot]:
    """Yield images of gates from poses in front of them, uniform in the logarithm of the range."""
    rng, gates = default_rng([seed, 11]), drawn_gates(track)
    with closing(_Photographer(track, vehicle, load_style(style), seed)) as photographer:
        for n in range(frames):
            p_wb, q_wb = pose(gates[int(rng.integers(len(gates)))], vehicle.camera.tilt_deg, rng)
            v_w, omega_b = rng.normal(0, 6, 3), rng.normal(0, 1, 3)
            yield photographer.shot(Exposure(n, n / 30, p_wb, q_wb, v_w, omega_b, n / 30, 0.0))


class _Photographer:
    """Renderer of images with ground truth."""

    def __init__(self, track: Track, vehicle: Vehicle, style: RenderingStyle, seed: int):
        style = replace(style, readout_s=0.0)  # a rolling shutter would displace the true corners
        self._track, self._camera = track, vehicle.camera
        self._labeller, self._feed = Labeller(track, vehicle.camera, style), Feed(track, vehicle, style, seed)
        self._depth = RenderedCamera(track, vehicle.camera, style, seed)
        self._rims = GateRims(drawn_gates(track), GateAppearance(depth_m=style.depth_m))

    def shot(self, exposure: Exposure) -> BenchmarkShot:
        camera, p_wb, q_wb = self._camera, exposure.p_wb, exposure.q_wb
        jpeg = self._feed.frame(exposure).jpeg
        self._depth.image(p_wb, q_wb, exposure.t)
        labels = self._labeller.label(p_wb, q_wb, self._depth.depth_m())
        faces_px = _near_faces(labels, self._rims, camera, p_wb, q_wb)
        openings = _openings(labels, faces_px, camera)
        return BenchmarkShot(jpeg, openings, _empty(self._track, camera, p_wb, q_wb), (p_wb, q_wb))

    def close(self) -> None:
        self._feed.close()
        self._depth.close()


def _near_faces(labels: Labels, rims: GateRims, camera: Camera, p_wb: Array, q_wb: Array) -> Array:
    """Return the nominal corners (K, 4, 2) px of the near faces of labelled gates; NaN behind the camera."""
    eye_w, R_wc = camera.pose(p_wb, q_wb)
    # Gates are told by their ranges.
    apart_m = np.abs(np.linalg.norm(rims.p_wg - p_wb, axis=-1) - labels.range_m[:, None])
    gate = apart_m.argmin(-1) if len(apart_m) else np.zeros(0, int)
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
        found = Opening(px, visible, False, bool(free >= ALL_FREE), face_px)
        demanded = inside and bool(visible.all()) and found.free and found.size_px >= DEMANDED_PX
        openings.append(replace(found, demanded=demanded))
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


class OpeningMatch(NamedTuple):
    """Opening and its detection, if any."""

    opening: Opening
    errors_px: Array = NONE  # (n,) distances of corners visible in the detection and ahead of the camera
    nees: Array = NONE  # (n,) NEES of these corners
    edge_offset_px: float = np.nan  # common outward offset of all edges, where all four corners are compared


def hit(detection: Detection, opening: Opening) -> OpeningMatch:
    """Match a detection with an opening, in the cyclic order that fits best; without corners where they are too far apart."""
    hits = [(np.inf, 0, OpeningMatch(opening))]
    face_px = opening.near_face_px if detection.near_face else None
    truth_px = opening.corners_px if face_px is None else face_px
    for k in range(4):
        error, cov = (np.roll(x, k, 0) for x in (detection.corners_px, detection.cov_px))
        error = error - truth_px
        compared = np.roll(detection.visible, k) & np.isfinite(error).all(-1)
        apart = np.linalg.norm(error[compared], axis=-1)
        if compared.any() and apart.max() < max(SAME_GATE * opening.longest_px, SAME_PX):
            d2 = (error * np.linalg.solve(cov, error[..., None])[..., 0]).sum(-1)
            offset = outward_offset(error, truth_px)[0] if compared.all() else np.nan
            hits.append((apart.max(), k, OpeningMatch(opening, apart, d2[compared], offset)))
    return min(hits, key=lambda one: one[:2])[2]


def outward_offset(error_px: Array, truth_px: Array) -> tuple[float, Array]:
    """Return the common outward offset of all edges in errors (4, 2) px, and the remaining errors."""
    outward = outward_shifts(truth_px)
    offset = float((error_px * outward).sum() / (outward**2).sum())
    return offset, error_px - offset * outward


@dataclass
class DetectionTally:
    """Statistics of one detector on one set of images."""

    detector: Detector
    rng: Generator
    demanded: list[OpeningMatch] = field(default_factory=list)
    partial: list[OpeningMatch] = field(default_factory=list)
    true: int = 0
    false: int = 0
    empty: int = 0  # images without a gate
    false_in_empty: int = 0
    ms: list[float] = field(default_factory=list)  # of images with a gate
    fixes: list[tuple[float, float]] = field(default_factory=list)  # relative range error, NEES

    def look(self, shot: BenchmarkShot, associator: Associator) -> None:
        """Run the detector on an image."""
        image = decode_image(shot.jpeg)
        start = time.thread_time()
        found = self.detector.detect(image)
        self.ms += [] if shot.empty else [1e3 * (time.thread_time() - start)]
        left = list(found)
        for opening in sorted(shot.openings, key=lambda o: (not o.demanded, not o.partial, -o.size_px)):
            hits = [(one.errors_px.max(), k, one) for k, d in enumerate(left) if len((one := hit(d, opening)).nees)]
            _, k, match = min(hits, key=lambda one: one[:2], default=(0.0, len(left), OpeningMatch(opening)))
            del left[k : k + 1]
            if opening.demanded or opening.partial:
                (self.demanded if opening.demanded else self.partial).append(match)
                self.true += bool(hits)
        self.false += len(left)
        self.empty += shot.empty
        self.false_in_empty += shot.empty * len(left)
        p_wb, q_wb = shot.pose
        prior = p_wb + self.rng.normal(0, PRIOR_M, 3)
        q_prior = np.array(product(q_wb, exp(self.rng.normal(0, PRIOR_RAD, 3))))
        cov = np.diag(np.repeat([PRIOR_M, 0.0, PRIOR_RAD], 3) ** 2)
        for fix in associator.associate(State(0.0, prior, q_prior, cov=cov), found)[0]:
            error, along = fix.p_wb - p_wb, (associator.centre(fix.gate) - p_wb) / fix.range_m
            self.fixes.append((float(-error @ along) / fix.range_m, float(error @ np.linalg.solve(fix.cov, error))))

    def row(self) -> dict[str, Any]:
        bias, nees = np.array(self.fixes or [(np.nan, np.nan)]).T
        found = [(one.opening.size_px, len(one.nees) > 0) for one in self.demanded]
        return (
            {"precision": self.true / max(self.true + self.false, 1), "images without a gate": self.empty}
            | {"false in these": self.false_in_empty}
            | {
                f"recall from {px:.0f} px": np.mean([hit for size, hit in found if size >= px] or np.nan)
                for px in RECALL_PX
            }
            | {"recall of partly visible": np.mean([len(one.nees) > 0 for one in self.partial] or np.nan)}
            | {"ms": np.median(self.ms or [np.nan]), "fixes": len(self.fixes)}
            | {"range bias %": 100 * np.median(bias), "NEES of fixes": nees.mean()}
        )


def by_size(demanded: list[OpeningMatch]) -> Iterator[dict[str, Any]]:
    """Yield the figures of demanded openings by size."""
    for low, high in pairwise(SIZES_PX):
        group = [one for one in demanded if low <= one.opening.size_px < high]
        hits = [one for one in group if len(one.nees)]
        if hits:
            corner, nees = (np.concatenate([getattr(one, key) for one in hits]) for key in ("errors_px", "nees"))
            yield {"from px": low, "n": len(group), "recall": len(hits) / len(group)} | {
                "corner error px median": np.median(corner), "p90": np.percentile(corner, 90),
                "edge offset px": np.nanmedian([one.edge_offset_px for one in hits]), "NEES of corners": nees.mean(),
            }  # fmt: skip


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("what", choices=("flights", "approaches"), nargs="?", default="flights")
    parser.add_argument("--frames", type=int, default=150, help="number of images of each track and style")
    parser.add_argument("--tracks", nargs="+", default=sorted(path.stem for path in (ROOT / "tracks").glob("*.yaml")))
    parser.add_argument("--styles", nargs="+", default=["race"])
    parser.add_argument("--detectors", nargs="+", default=list(DETECTORS))
    parser.add_argument("--seed", type=int, default=0)
    a, vehicle = parser.parse_args(), load_vehicle("dcl")
    cv2.setNumThreads(1)
    rows: list[dict[str, Any]] = []
    demanded: dict[tuple[str, str], list[OpeningMatch]] = {}
    for style, course in product_of(a.styles, a.tracks):
        track, shown = load_track(course), (vehicle, style, a.seed, a.frames)
        associator = Associator(track.gates, vehicle.camera)
        if a.what == "approaches":
            shots = approaches(track, *shown)
        else:
            shots = flight(find_or_make_plan(ROOT / "plans", track, vehicle, PlanOptions(), None), track, *shown)
        tallies = [DetectionTally(open_detector(name, vehicle.camera), default_rng(a.seed)) for name in a.detectors]
        for shot in shots:
            for tally in tallies:
                tally.look(shot, associator)
        for name, tally in zip(a.detectors, tallies, strict=True):
            rows.append({"detector": name, "course": course, "style": style} | tally.row())
            demanded.setdefault((name, style), []).extend(tally.demanded)
    sizes = []
    for (name, style), found in demanded.items():
        sizes += [{"detector": name, "style": style} | row for row in by_size(found)]
    conclude(a.json, *(Result.of(f"Detectors, {kind}", found, "", f"{a.seed}")
                       for kind, found in (("all sizes", rows), ("by size of the opening", sizes))))  # fmt: skip


if __name__ == "__main__":
    sys.exit(exit_code(main))
