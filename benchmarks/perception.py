"""What the detectors find, and how well: on rendered flights along the plans, and on any folder of labelled pictures.

python benchmarks/perception.py                                  both detectors, all tracks with a plan in plans/
python benchmarks/perception.py --labels FOLDER                  a folder with pictures and labels.json (`detect-gates --json`)
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would hide the rooms of their names

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from perception.association import Associator
from perception.candidates import scaled
from perception.detection import Detection, Detector, decode
from perception.detectors import DETECTORS, open_detector
from planner.plan import Plan, read_plan
from sim.simulator import Exposure
from sim.view.feed import Feed
from sim.view.gates import drawn_gates
from sim.view.look import load_look
from sim.view.projected import CornerNoise, ProjectedCamera
from sim.view.renderer import RenderedCamera
from tracks.track import Track, load_track
from vehicle.errors import UserError
from vehicle.rotation import Array, exp, matrix, product
from vehicle.vehicle import Vehicle, load_vehicle

ROOT = Path(__file__).parent.parent
SIZES_PX = (8.0, 12.0, 25.0, 50.0, 100.0, 1e4)  # least side of the opening
RANGES_M = (0.0, 3.0, 6.0, 12.0, 25.0, 60.0)
EVERYTHING = CornerNoise("", (SIZES_PX[0], SIZES_PX[-1]), *[(1.0, 1.0)] * 9)
ASTRAY_M, ASTRAY_RAD = 0.5, 0.1  # standard deviation of a flight about its plan
PRIOR_M, PRIOR_RAD = 0.5, 0.01  # ... of the prior that the association is given
SAME_GATE = 0.25  # of the side: a detection is of a gate when centre and size are as near as that
AWAY_EVERY = 10  # every so many pictures the camera looks back over its shoulder, where gates are rare


@dataclass(frozen=True, slots=True)
class Opening:
    """The truth about one gate in one picture."""

    corners_px: Array  # (4, 2) clockwise as seen
    whole: bool  # in view and hidden by nothing
    seen: np.ndarray  # (4,) the corners in the picture; gates in the way are not minded

    @property
    def side_px(self) -> float:
        return float(np.linalg.norm(self.corners_px - np.roll(self.corners_px, 1, 0), axis=-1).min())


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture with its truth; the pose is None where nobody knows it."""

    jpeg: bytes
    openings: list[Opening]
    pose: tuple[Array, Array] | None
    track: Track | None


def flight(plan: Plan, track: Track, vehicle: Vehicle, look_name: str, seed: int, frames: int) -> Iterator[Shot]:
    """Pictures from about the plan, evenly over its time, as a pilot that flies it with errors would see them."""
    rng, look = np.random.default_rng([seed, 7]), load_look(look_name)
    camera = vehicle.camera
    feed, ideal = Feed(track, vehicle, look, seed), ProjectedCamera(track, camera, look, seed, EVERYTHING)
    gates = drawn_gates(track)
    holes = Associator(gates, camera)
    every = np.arange(len(gates))
    bare, full = (RenderedCamera(track, camera, look, seed, gates_only=bare) for bare in (True, False))
    for n, t in enumerate(np.sort(rng.uniform(plan.t[0], plan.t[-1], frames))):
        x = np.array([np.interp(t, plan.t, column) for column in plan.x.T])
        p_wb = x[:3] + rng.normal(0, ASTRAY_M, 3)
        q_wb = np.array(product(x[3:7] / np.linalg.norm(x[3:7]), exp(rng.normal(0, ASTRAY_RAD, 3))))
        if n % AWAY_EVERY == AWAY_EVERY - 1:
            q_wb = np.array(product(q_wb, exp([0.0, 0.0, np.pi])))
        frame = feed.frame(Exposure(n, float(t), p_wb, q_wb, x[7:10], x[10:13]))
        visible = ideal.visible(p_wb, q_wb)
        whole_px = visible.corners_px[visible.whole]
        free = uncovered(full.image(p_wb, q_wb, float(t)), bare.image(p_wb, q_wb, float(t)), whole_px)
        openings = [Opening(px, bool(w), np.ones(4, bool)) for px, w in zip(whole_px, free, strict=True)]
        rest = np.setdiff1d(every, visible.gate[visible.whole])
        corners_c = (holes.opening(rest, np.tile(p_wb, (len(rest), 1)))[1] - p_wb) @ (matrix(q_wb) @ camera.R_bc)
        for corners in corners_c[(corners_c[..., 2] > 0.1).all(-1)]:
            px = camera.project(corners)
            u, v = px[2] - px[0], px[3] - px[1]
            openings.append(Opening(px if u[0] * v[1] > u[1] * v[0] else px[::-1], False, camera.sees(px)))
        yield Shot(frame.jpeg, openings, (p_wb, q_wb), track)
    for camera in (feed, bare, full):
        camera.close()


def uncovered(full: np.ndarray, bare: np.ndarray, corners_px: Array) -> np.ndarray:
    """Which openings (Q, 4, 2) have a rim that no furniture hides: it is as red as in a picture of nothing but the gates."""
    if not len(corners_px):
        return np.ones(0, bool)
    rim = scaled(corners_px, 1.15)
    a, b = rim[:, :, None], np.roll(rim, -1, -2)[:, :, None]
    at = np.round(a + np.linspace(0, 1, 9)[:, None] * (b - a)).astype(int).reshape(len(rim), -1, 2)
    u, v = np.clip(at[..., 0], 0, full.shape[1] - 1), np.clip(at[..., 1], 0, full.shape[0] - 1)
    hidden = full[v, u, 2].astype(int) < bare[v, u, 2].astype(int) - 60
    return hidden.mean(-1) < 0.05


def labelled(folder: Path) -> Iterator[Shot]:
    """Pictures with the labels beside them. Raises UserError without labels."""
    try:
        labels = json.loads((folder / "labels.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / 'labels.json'}: {error}") from None
    for name, gates in labels.items():
        openings = [Opening(np.array(gate["corners"], float), True, np.ones(4, bool)) for gate in gates]
        yield Shot((folder / name).read_bytes(), openings, None, None)


def errors_px(seen: Array, corners_px: Array) -> Array:
    """(4, 2) of a detection in the cyclic order that fits best."""
    return min((np.roll(seen, k, 0) - corners_px for k in range(4)), key=lambda e: float((e**2).sum()))


def is_of(detection: Detection, opening: Opening) -> bool:
    """Whether a detection means an opening, grossly; of one in part only the corners that were seen are asked."""
    side = np.linalg.norm(opening.corners_px - np.roll(opening.corners_px, 1, 0), axis=-1).mean()
    errors = min(
        (np.linalg.norm((np.roll(detection.corners_px, k, 0) - opening.corners_px)[np.roll(detection.visible, k)], axis=-1)
        for k in range(4)), key=lambda e: e.max(initial=0.0),
    )  # fmt: skip
    return bool(errors.max(initial=0.0) < SAME_GATE * side)


@dataclass
class Tally:
    """What one detector did."""

    name: str

    def __post_init__(self) -> None:
        self.whole: list[tuple[float, Array | None, float]] = []  # side, errors (4, 2) if found, sigma
        self.part: list[tuple[int, bool]] = []  # corners in view, found
        self.detections = self.false = self.empty = self.false_in_empty = self.pictures = 0
        self.ms: list[float] = []
        self.fixes: list[tuple[float, Array, float]] = []  # range, position error (3,), NEES
        self.wrong = 0  # fixes of another gate than was seen

    def look(self, detector: Detector, shot: Shot, associator: Associator | None, rng: np.random.Generator) -> None:
        image = decode(shot.jpeg)
        start = time.thread_time()
        found = detector.detect(image)
        self.ms.append(1e3 * (time.thread_time() - start))
        left = list(found)
        for opening in sorted(shot.openings, key=lambda o: (not o.whole, -o.side_px)):
            hit = next((d for d in left if is_of(d, opening)), None)
            if hit is not None:
                left = [d for d in left if d is not hit]
            if opening.whole:
                errors = None if hit is None else errors_px(hit.corners_px, opening.corners_px)
                self.whole.append((opening.side_px, errors, hit.sigma_px if hit else np.nan))
            elif opening.side_px > SIZES_PX[2] and 0 < opening.seen.sum() < 4:
                self.part.append((int(opening.seen.sum()), hit is not None))
        self.pictures += 1
        self.detections += len(found)
        self.false += len(left)
        if not shot.openings:
            self.empty += 1
            self.false_in_empty += len(found)
        if associator is not None and shot.pose is not None:
            p_wb, q_wb = shot.pose
            prior = p_wb + rng.normal(0, PRIOR_M, 3)
            q_prior = np.array(product(q_wb, exp(rng.normal(0, PRIOR_RAD, 3))))
            for fix in associator.associate(0.0, found, prior, PRIOR_M**2 * np.eye(3), q_prior, PRIOR_RAD)[0]:
                error = fix.p_wb - p_wb
                nees = float(error @ np.linalg.solve(fix.cov, error))
                along = (associator.centre(fix.gate) - p_wb) / fix.range_m
                self.fixes.append((fix.range_m, np.append(error, -error @ along), nees))

    def report(self) -> dict:
        """Prints the tables and returns their numbers."""
        print(f"\n{self.name}: {self.pictures} pictures, {self.detections} detections, precision "
              f"{1 - self.false / max(self.detections, 1):.4f}, {self.false_in_empty} false in {self.empty} without a gate, "
              f"ms p50 {np.percentile(self.ms, 50):.2f} p99 {np.percentile(self.ms, 99):.2f}")  # fmt: skip
        print("   opening px      n   recall  corner error px: median    p90    stated sigma")
        rows, sides = [], np.array([row[0] for row in self.whole])
        for low, high in pairwise(SIZES_PX):
            mine = [row for row, side in zip(self.whole, sides, strict=True) if low <= side < high]
            hits = [np.linalg.norm(row[1], axis=-1) for row in mine if row[1] is not None]
            if mine:
                size = np.concatenate(hits) if hits else np.array([np.nan])
                row = (low, len(mine), len(hits) / len(mine), *np.percentile(size, [50, 90]),
                       np.nanmedian([row[2] for row in mine]))  # fmt: skip
                rows.append(row)
                print(f"    from {row[0]:4.0f} {row[1]:6d} {row[2]:8.4f} {row[3]:24.2f} {row[4]:6.2f} {row[5]:15.2f}")
        parts = {k: [found for corners, found in self.part if corners == k] for k in (1, 2, 3)}
        print("   in part: " + ", ".join(f"{k} corners {np.mean(v):.3f} of {len(v)}" for k, v in parts.items() if v))
        ranges = []
        for low, high in pairwise(RANGES_M):
            mine = [row for row in self.fixes if low <= row[0] < high]
            if mine:
                error = np.array([row[1] for row in mine])
                size = np.linalg.norm(error[:, :3], axis=-1)
                bias = 100 * np.median(error[:, 3] / [row[0] for row in mine])
                row = (low, len(mine), *np.percentile(size, [50, 95]), bias, np.mean([row[2] for row in mine]))
                ranges.append(row)
                print(f"   from {low:4.0f} m {row[1]:6d} fixes, error m median {row[2]:.3f} p95 {row[3]:.3f}, "
                      f"range bias {row[4]:+.2f} %, NEES {row[5]:.2f}")  # fmt: skip
        return {
            "detector": self.name, "pictures": self.pictures, "detections": self.detections, "false": self.false,
            "empty": self.empty, "false_in_empty": self.false_in_empty,
            "ms_p50": float(np.percentile(self.ms, 50)), "ms_p99": float(np.percentile(self.ms, 99)),
            "by_size": rows, "by_range": ranges, "in_part": {k: [float(np.mean(v)), len(v)] for k, v in parts.items() if v},
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300, help="of each track and look")
    parser.add_argument("--tracks", nargs="*", default=["vq1", "vq2"])
    parser.add_argument("--looks", nargs="*", default=["race"])
    parser.add_argument("--detectors", nargs="*", default=list(DETECTORS))
    parser.add_argument("--labels", type=Path, help="a folder of pictures with labels.json instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    vehicle, report = load_vehicle("dcl"), []
    for name in arguments.detectors:
        try:
            detector = open_detector(name, vehicle.camera)
        except UserError as error:
            print(f"{name}: left out: {error}")
            continue
        for look in arguments.looks if arguments.labels is None else ["-"]:
            tally, rng = Tally(f"{name}, {arguments.labels or look}"), np.random.default_rng(arguments.seed)
            if arguments.labels is not None:
                for shot in labelled(arguments.labels):
                    tally.look(detector, shot, None, rng)
            for course in arguments.tracks if arguments.labels is None else []:
                track = load_track(ROOT / f"tracks/{course}.yaml")
                associator = Associator(track.gates, vehicle.camera)
                plan = read_plan(ROOT / f"plans/{course}.csv")
                for shot in flight(plan, track, vehicle, look, arguments.seed, arguments.frames):
                    tally.look(detector, shot, associator, rng)
            report.append(tally.report())
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
