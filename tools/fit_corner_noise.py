"""Fit detection rates and corner errors of the classical detector on rendered images, by size of gate: the model of
`sim.view.projected`.

python -m tools.fit_corner_noise            prints the table
python -m tools.fit_corner_noise --write    and makes it the simulator's, sim/view/corner_noise.yaml
"""

import argparse
from dataclasses import dataclass, fields

import numpy as np

from gate_racer.benchmarks.perception import Opening, approaches, hit, outward_offset
from gate_racer.common.config import write
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detection
from gate_racer.sim.view.projected import NOISE, CornerNoise
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

SIDES_PX = (8.0, 10.0, 13.0, 17.0, 24.0, 34.0, 50.0, 75.0, 115.0, 200.0)  # sizes at which the noise is fitted
WILD = 4.0  # robust standard deviations beyond which an error counts as gross
COLUMNS = tuple(one.name for one in fields(CornerNoise))[2:]  # behind source and sizes


@dataclass(frozen=True)
class Row:
    """A gate in an image, entirely or in part, and its detection, if any."""

    opening: Opening
    detection: Detection | None

    @property
    def side_px(self) -> float:
        """Shortest side of the opening, px, as the simulator has it; 0 unless all corners are ahead of the camera."""
        px = self.opening.corners_px
        return float(np.nan_to_num(np.linalg.norm(px - np.roll(px, 1, 0), axis=-1).min()))

    @property
    def errors_px(self) -> Array:
        """Errors (4, 2) px of the detection in the cyclic order that fits best."""
        assert self.detection is not None
        turned = (np.roll(self.detection.corners_px, k, 0) - self.opening.corners_px for k in range(4))
        return min(turned, key=lambda error: float((error**2).sum()))


def sample(track: Track, vehicle: Vehicle, style: str, seed: int, frames: int) -> tuple[list[Row], list[Row], int]:
    """Return the rows of unoccluded gates wholly in the images, those of cut ones, and the number of false detections."""
    detector = ColourDetector(vehicle.camera, rim_from_px=np.inf)  # the visible hole, as projected
    whole, cut, false = list[Row](), list[Row](), 0
    for shot in approaches(track, vehicle, style, seed, frames):
        left = detector.detect_encoded(shot.jpeg)
        for opening in (one for one in shot.openings if one.demanded or (one.free and 0 < one.visible.sum() < 4)):
            wanted = [one for one in left if one.visible.all() or not opening.demanded]
            found = next((one for one in wanted if len(hit(one, opening).nees)), None)
            left = [one for one in left if one is not found]
            if (row := Row(opening, found)).side_px >= SIDES_PX[0]:
                (whole if opening.demanded else cut).append(row)
        false += sum(one.visible.all() for one in left)
    return whole, cut, false


def fit(rows: list[Row], cut: list[Row], source: str) -> CornerNoise:
    """Fit the noise at each size; rows count for the size nearest on the logarithmic scale."""

    def nearest(rows: list[Row]) -> np.ndarray:
        sides = np.array([row.side_px for row in rows])
        return np.abs(np.log(sides)[:, None] - np.log(SIDES_PX)).argmin(1)

    place, cut_place, cut_hit = nearest(rows), nearest(cut), np.array([row.detection is not None for row in cut])
    table: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for k in range(len(SIDES_PX)):
        group = [row for row, at in zip(rows, place, strict=True) if at == k]
        hits = [row for row in group if row.detection is not None]
        errors = np.array([row.errors_px for row in hits])
        offsets = [outward_offset(row.errors_px, row.opening.corners_px) for row in hits]
        swell, rest = (np.array(values) for values in zip(*offsets, strict=True))
        size = np.sqrt(np.square(rest).sum((1, 2)) / 7)
        limit = WILD * np.median(size)
        tame = (size < limit) & (np.abs(swell - np.median(swell)) < limit)
        row = (
            len(hits) / len(group), cut_hit[cut_place == k].mean() if (cut_place == k).any() else 0.0,
            swell[tame].mean(), swell[tame].std(), np.sqrt(np.mean(size[tame] ** 2)), 1 - tame.mean(),
            np.sqrt(np.mean(np.square(errors[~tame]))) if not tame.all() else np.sqrt(np.mean(size**2)),
            *(np.median([getattr(one.detection, name) for one in hits]) for name in ("sigma_px", "score")),
        )  # fmt: skip
        print(f"{SIDES_PX[k]:6.0f} px {len(group):6d} gates  " + "  ".join(f"{value:8.3f}" for value in row))
        for name, value in zip(COLUMNS, row, strict=True):
            table[name].append(round(float(value), 3))
    return CornerNoise(source, SIDES_PX, **{name: tuple(column) for name, column in table.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1500, help="number of frames per course")
    parser.add_argument("--style", default="race")
    parser.add_argument("--write", action="store_true")
    a = parser.parse_args()
    vehicle, rows, cut, false = load_vehicle("dcl"), [], [], 0
    for seed, course in enumerate(("vq1", "vq2")):
        more, more_cut, wrong = sample(load_track(course), vehicle, a.style, seed, a.frames)
        rows, cut, false = rows + more, cut + more_cut, false + wrong
    print(" " * 22 + "  ".join(f"{name[:8]:>8s}" for name in COLUMNS))
    about = f"{len(rows) + len(cut)} gates in {2 * a.frames} images of vq1 and vq2, style {a.style}, ColourDetector"
    noise = fit(rows, cut, f"tools/fit_corner_noise.py: {about}")
    print(f"false detections per image: {false / (2 * a.frames):.4f}")
    if a.write:
        write(NOISE, noise)


if __name__ == "__main__":
    main()
