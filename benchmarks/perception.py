"""Recall, precision and accuracy of the detectors, on rendered flights along the plans or on any folder of labelled images.

python benchmarks/perception.py                                  both detectors, all tracks
python benchmarks/perception.py --approaches                     approaches to gates, uniform in log range
python benchmarks/perception.py --labels FOLDER                  a folder with images and labels.json (`detect-gates --json`)

`benchmarks/shots.py` defines which gates have to be found and which detections are false. Precision is the fraction of true
detections among true and false ones. A corner's error has a part common to all four: the shift of their centre, and the common
outward offset of all edges (edge offset); the remainder is scatter. NEES of corners under the reported covariance should be 1.39
in the median and 2 in the mean. NEES of fixes is that of the position fix computed from a detection by the associator; with
three degrees of freedom its mean should be 3, within the band for the number of fixes. The images of a flight are rendered one
after the other and passed to every detector; times are those of one core.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from scipy.stats import chi2

from gate_racer.benchmarks.shots import BenchmarkShot, Opening, approaches, flight, labelled
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.registry import DETECTORS, open_detector
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.errors import UserError, exit_code
from gate_racer.vehicle.image_file import decode_image
from gate_racer.vehicle.rotation import Array, exp, product
from gate_racer.vehicle.vehicle import load_vehicle

ROOT = Path(__file__).parent.parent
SIZES_PX = (8.0, 12.0, 25.0, 60.0, 120.0, 1e4)  # limits of the rows by size of opening
RANGES_M = (0.0, 3.0, 6.0, 12.0, 25.0, 60.0)  # limits of the rows by range
PRIOR_M, PRIOR_RAD = 0.5, 0.01  # standard deviations of the prior for the association
SAME_GATE, SAME_PX = 0.25, 2.0  # fraction of the side, or px, within which all corners of a detection match an opening
OUTLIER = 5.0  # standard deviations of the reported covariance beyond which a corner is an outlier


@dataclass(slots=True)
class OpeningMatch:
    """Opening and its detection, if any."""

    opening: Opening
    errors_px: Array | None = None  # (4, 2)
    worst_px: float = np.nan  # largest error of the corners compared
    compared: np.ndarray | None = None  # (4,) corners compared: visible in the detection and ahead of the camera
    sigma_px: float = np.nan
    outliers: float = np.nan  # fraction of outliers among the corners compared
    nees: Array | None = None  # (n,) NEES of the corners compared
    common: Array | None = None  # (3,) px: edge offset, shift and rms scatter per coordinate, if all four are compared


def hit(detection: Detection, opening: Opening) -> OpeningMatch | None:
    """Match a detection with an opening, in the cyclic order that fits best; None where the corners are too far apart."""
    hits = []
    face_px = opening.near_face_px if detection.near_face else None
    truth_px = opening.corners_px if face_px is None else face_px
    for k in range(4):
        error, cov = (np.roll(x, k, 0) for x in (detection.corners_px, detection.cov_px))
        error = error - truth_px
        compared = np.roll(detection.visible, k) & np.isfinite(error).all(-1)
        worst = np.linalg.norm(error[compared], axis=-1).max(initial=0.0)
        if compared.any() and worst < max(SAME_GATE * opening.longest_px, SAME_PX):
            d2 = (error * np.linalg.solve(cov, error[..., None])[..., 0]).sum(-1)
            outliers = float((d2[compared] > OUTLIER**2).mean())
            common = _common(error, truth_px) if compared.all() else None
            match = OpeningMatch(opening, error, worst, compared, detection.sigma_px, outliers, d2[compared], common)
            hits.append((worst, k, match))
    return min(hits, key=lambda one: one[:2])[2] if hits else None


def _common(error_px: Array, truth_px: Array) -> Array:
    """Decompose errors (4, 2) px into edge offset, shift of the centre, and rms of the rest per coordinate, (3,) px."""
    outward = truth_px - truth_px.mean(0)
    outward /= np.linalg.norm(outward, axis=-1).mean() / np.sqrt(2)  # moves the edges of a square by 1 px
    offset, shift = (error_px * outward).sum() / (outward**2).sum(), error_px.mean(0)
    rest = error_px - shift - offset * outward
    return np.array([offset, np.linalg.norm(shift), np.sqrt((rest**2).sum() / 5)])  # 8 numbers less 3 fitted


@dataclass
class DetectionTally:
    """Statistics of one detector."""

    name: str
    detector: Detector
    rng: np.random.Generator
    demanded: list[OpeningMatch] = field(default_factory=list)
    partial: list[OpeningMatch] = field(default_factory=list)
    true: int = 0
    false: int = 0
    excused: int = 0  # detections of gates neither demanded nor partial
    images: int = 0
    without: list[bool] = field(default_factory=list)  # whether each image is without a gate
    false_in_empty: int = 0
    ms: list[float] = field(default_factory=list)
    # Range m, position and range error (4,) m, NEES.
    fixes: list[tuple[float, Array, float]] = field(default_factory=list)

    def __add__(self, other: "DetectionTally") -> "DetectionTally":
        """Add the statistics of the same detector."""
        name = f"{self.name.split(', ')[0]}, all"
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[3:]}
        return DetectionTally(name, self.detector, self.rng, **sums)

    def look(self, shot: BenchmarkShot, associator: Associator | None) -> tuple[list[Opening], list[Detection]]:
        """Run the detector on an image; return the missed openings and the false detections."""
        image = decode_image(shot.jpeg)
        start = time.thread_time()
        found = self.detector.detect(image)
        self.ms.append(1e3 * (time.thread_time() - start))
        left, missed = list(found), list[Opening]()
        for opening in sorted(shot.openings, key=lambda o: (not o.demanded, not o.partial, -o.size_px)):
            hits = ((d, hit(d, opening)) for d in left)
            nearest = min(
                ((one.worst_px, k, d, one) for k, (d, one) in enumerate(hits) if one is not None), default=None
            )
            detection, found_of_it = nearest[2:] if nearest else (None, OpeningMatch(opening))
            left = [d for d in left if d is not detection]
            if opening.demanded:
                self.demanded.append(found_of_it)
                missed += [opening] if detection is None else []
            elif opening.partial:
                self.partial.append(found_of_it)
            if detection is not None:
                self.true += opening.demanded or opening.partial
                self.excused += not (opening.demanded or opening.partial)
        self.images += 1
        self.false += len(left)
        self.without.append(shot.empty)
        self.false_in_empty += shot.empty * len(left)
        if associator is not None and shot.pose is not None:
            self._fix(found, shot.pose, associator)
        return missed, left

    def _fix(self, found: list[Detection], pose: tuple[Array, Array], associator: Associator) -> None:
        p_wb, q_wb = pose
        prior = p_wb + self.rng.normal(0, PRIOR_M, 3)
        q_prior = np.array(product(q_wb, exp(self.rng.normal(0, PRIOR_RAD, 3))))
        for fix in associator.associate(0.0, found, prior, PRIOR_M**2 * np.eye(3), q_prior, PRIOR_RAD)[0]:
            error = fix.p_wb - p_wb
            nees = float(error @ np.linalg.solve(fix.cov, error))
            along = (associator.centre(fix.gate) - p_wb) / fix.range_m
            self.fixes.append((fix.range_m, np.append(error, -error @ along), nees))

    def report(self) -> dict[str, object]:
        """Print the tables and return their numbers."""
        seen, (p50, p99) = self.true + self.false, np.percentile(self.ms, [50, 99])
        busy = np.median([ms for ms, empty in zip(self.ms, self.without, strict=True) if not empty] or [np.nan])
        precision = self.true / max(seen, 1)
        print(f"\n{self.name}: {self.images} images, precision {precision:.4f} of {seen}, {self.excused} not counted, "
              f"{self.false_in_empty} false in {sum(self.without)} images without a gate; "
              f"ms p50 {p50:.2f}, with a gate {busy:.2f}, p99 {p99:.2f}")  # fmt: skip
        return {
            "detector": self.name, "images": self.images, "true": self.true, "false": self.false,
            "excused": self.excused, "empty": sum(self.without), "false_in_empty": self.false_in_empty,
            "ms_p50": p50, "ms_p50_with_gate": busy, "ms_p99": p99,
            "by_size": list(self._by_size()), "in_part": self._in_part(), "by_range": list(self._by_range()),
            "nees": self._nees(),
        }  # fmt: skip

    def _by_size(self) -> Iterator[tuple[float, ...]]:
        print("   opening px      n  recall | corner error px median   p90 | edge offset, its std, shift, scatter | stated sigma"
              " | NEES median mean | > 5 sigma")  # fmt: skip
        for low, high in [*pairwise(SIZES_PX), (12.0, SIZES_PX[-1]), (25.0, SIZES_PX[-1])]:
            group = [one for one in self.demanded if low <= one.opening.size_px < high]
            if group:
                hits = [one for one in group if one.errors_px is not None]
                corner, nees = (np.concatenate(parts or [[np.nan]]) for parts in (
                    [np.linalg.norm(one.errors_px[one.compared], axis=-1) for one in hits],
                    [one.nees for one in hits]))  # fmt: skip
                common = np.array([one.common for one in hits if one.common is not None] or [[np.nan] * 3])
                (offset, shift, scatter), spread = np.median(common, axis=0), common[:, 0].std()
                row = (low, high, len(group), len(hits) / len(group), *np.percentile(corner, [50, 90]),
                       *np.mean([(one.sigma_px, one.outliers) for one in hits] or [(np.nan, np.nan)], axis=0),
                       offset, spread, shift, scatter, np.median(nees), nees.mean())  # fmt: skip
                print(f"   {low:4.0f} to {high:5.0f} {row[2]:5d} {row[3]:7.4f} | {row[4]:22.2f} {row[5]:5.2f} | "
                      f"{offset:+5.2f} {spread:8.2f} {shift:6.2f} {scatter:8.2f} | {row[6]:12.2f} | "
                      f"{row[12]:11.2f} {row[13]:4.1f} | {row[7]:9.4f}")  # fmt: skip
                yield tuple(float(value) for value in row)

    def _in_part(self) -> dict[int, tuple[float, int]]:
        shares, hits = {}, [one for one in self.partial if one.errors_px is not None]
        for k in (1, 2, 3):
            found = [one.errors_px is not None for one in self.partial if one.opening.visible.sum() == k]
            if found:
                shares[k] = float(np.mean(found)), len(found)
        outliers = np.mean([one.outliers for one in hits] or [np.nan])
        print("   partly visible: " + ", ".join(f"{k} corners {share:.3f} of {n}" for k, (share, n) in shares.items())
              + f"; {100 * outliers:.1f} % of their corners are off by more than 5 sigma")  # fmt: skip
        return shares

    def _by_range(self) -> Iterator[tuple[float, ...]]:
        for low, high in pairwise(RANGES_M):
            group = [fix for fix in self.fixes if low <= fix[0] < high]
            if group:
                error, nees = np.array([fix[1] for fix in group]), np.array([fix[2] for fix in group])
                bias = 100 * np.median(error[:, 3] / [fix[0] for fix in group])
                p50, p95 = np.percentile(np.linalg.norm(error[:, :3], axis=-1), [50, 95])
                print(f"   {low:2.0f} to {high:2.0f} m {len(group):6d} fixes, error m median {p50:.3f} p95 {p95:.3f}, "
                      f"range bias {bias:+.2f} %, NEES {nees.mean():.2f}")  # fmt: skip
                yield low, len(group), p50, p95, bias, nees.mean()

    def _nees(self) -> dict[str, float]:
        """Return the mean NEES of all fixes, its 95 % band, and the fraction of fixes below the 95 % quantile."""
        if not self.fixes:
            return {}
        nees = np.array([fix[2] for fix in self.fixes])
        low, high = chi2.ppf([0.025, 0.975], 3 * len(nees)) / len(nees)
        within = float((nees < chi2.ppf(0.95, 3)).mean())
        print(f"   NEES {nees.mean():.2f} over {len(nees)} fixes, band {low:.2f} to {high:.2f}; median {np.median(nees):.2f} "
              f"(2.37); {100 * within:.1f} % below chi-square's 95 %")  # fmt: skip
        return {"mean": nees.mean(), "low": low, "high": high, "fixes": len(nees), "within_95": within}


def drawn(shot: BenchmarkShot, missed: list[Opening], false: list[Detection]) -> np.ndarray:
    """Draw the image at twice its size with missed openings in yellow and false detections in blue."""
    image = cv2.resize(np.asarray(decode_image(shot.jpeg)), None, fx=2, fy=2)
    for one, bgr in [*((o, (0, 255, 255)) for o in missed), *((d, (255, 80, 0)) for d in false)]:
        cv2.polylines(image, [np.round(2 * one.corners_px + 0.5).astype(np.int32)], True, bgr, 1)
    return image


def main() -> None:
    """Run the detectors on all images and print their statistics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=150, help="number of frames of each track and look")
    parser.add_argument("--tracks", nargs="*", default=sorted(path.stem for path in (ROOT / "tracks").glob("*.yaml")))
    parser.add_argument("--looks", nargs="*", default=["race"])
    parser.add_argument("--detectors", nargs="*", default=list(DETECTORS))
    parser.add_argument(
        "--approaches", action="store_true", help="images of straight approaches to gates instead of flights"
    )
    parser.add_argument(
        "--labels", type=Path, help="folder of labelled images with labels.json instead of rendered ones"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--misses", type=Path, help="output folder for images with missed gates (yellow) and false detections (blue)"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    vehicle = load_vehicle("dcl")
    detectors: list[str] = []
    for name in arguments.detectors:
        try:
            open_detector(name, vehicle.camera)
            detectors.append(name)
        except UserError as error:
            print(f"{name} is skipped: {error}")

    def flights() -> Iterator[tuple[str, Iterator[BenchmarkShot], Associator | None]]:
        if arguments.labels is not None:
            yield str(arguments.labels), labelled(arguments.labels), None
            return
        for look in arguments.looks:
            for course in arguments.tracks:
                track = load_track(ROOT / f"tracks/{course}.yaml")
                associator = Associator(track.gates, vehicle.camera)
                if arguments.approaches:
                    shots = approaches(track, vehicle, look, arguments.seed, arguments.frames)
                    yield f"{course}, {look}, approaches", shots, associator
                    continue
                plan = find_or_make_plan(ROOT / "plans", track, vehicle, PlanOptions(), None)
                shots = flight(plan, track, vehicle, look, arguments.seed, arguments.frames)
                yield f"{course}, {look}", shots, associator

    tallies: dict[str, list[DetectionTally]] = {name: [] for name in detectors}
    for title, shots, associator in flights():
        for name in detectors:
            detector = open_detector(name, vehicle.camera)  # a new one per course
            tallies[name].append(DetectionTally(f"{name}, {title}", detector, np.random.default_rng(arguments.seed)))
        for n, shot in enumerate(shots):
            for name in detectors:
                missed, false = tallies[name][-1].look(shot, associator)
                if arguments.misses and (missed or false):
                    arguments.misses.mkdir(parents=True, exist_ok=True)
                    file = arguments.misses / f"{name}_{title.replace(', ', '_')}_{n:04d}.png"
                    cv2.imwrite(str(file), drawn(shot, missed, false))
    report = []
    for group in tallies.values():
        report += [tally.report() for tally in group]
        if len(group) > 1:
            report.append(sum(group[1:], group[0]).report())
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2, default=float) + "\n")


if __name__ == "__main__":
    sys.exit(exit_code(main))
