"""Fit detection rates and corner errors of the classical detector on rendered images, by size of gate: the model of
`sim.view.projected`.

python -m tools.fit_corner_noise            prints the table
python -m tools.fit_corner_noise --write    and makes it the simulator's, sim/view/corner_noise.yaml
"""

import argparse

import numpy as np

from gate_racer.benchmarks.perception import SAME_GATE, outward_offset, pose
from gate_racer.perception.classical.detector import ColourDetector
from gate_racer.perception.detection import Detection, decode
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.feed import Feed
from gate_racer.sim.view.labels import Labeller, Labels
from gate_racer.sim.view.projected import NOISE, CornerNoise, ProjectedCamera, Visible
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

SIDES_PX = (8.0, 10.0, 13.0, 17.0, 24.0, 34.0, 50.0, 75.0, 115.0, 200.0)  # sizes at which the noise is fitted
# Ideal detection of all gates from the least size on.
FIT_FROM = CornerNoise("", (SIDES_PX[0], SIDES_PX[-1]), *[(1.0, 1.0)] * 9)
WILD = 4.0  # robust standard deviations beyond which an error counts as gross
COLUMNS = (
    "found",
    "cut_found",
    "edge_offset_px",
    "edge_offset_std_px",
    "corner_px",
    "wild",
    "wild_px",
    "sigma_px",
    "score",
)


def _same(seen: Array, corners_px: Array) -> bool:
    """Check whether a detection's corners (4, 2) px match those of a gate in centre and size."""
    a, b = (np.linalg.norm(quad - np.roll(quad, 1, 0), axis=-1).mean() for quad in (seen, corners_px))
    return bool(max(np.linalg.norm(seen.mean(0) - corners_px.mean(0)), abs(a - b)) < SAME_GATE * b)


def _same_part(seen: Detection, corners_px: Array, visible: np.ndarray, side_px: float) -> bool:
    """Check whether a visible corner of a detection is near a visible one of a gate's corners (4, 2) px."""
    apart = seen.corners_px[seen.visible][:, None] - corners_px[visible]
    return bool(np.linalg.norm(apart, axis=-1).min(initial=np.inf) < SAME_GATE * side_px)


def _aligned(seen: Array, corners_px: Array) -> Array:
    """Return the errors (4, 2) px of a detection in the cyclic order that fits best."""
    return min((np.roll(seen, k, 0) - corners_px for k in range(4)), key=lambda e: float((e**2).sum()))


def _uncovered(seen: Visible, labels: Labels) -> np.ndarray:
    """Return the mask (K,) of openings whose corners in the image are not occluded by walls and pillars either."""
    apart = np.linalg.norm(seen.corners_px.mean(1)[:, None] - labels.corners_px.mean(1), axis=-1)  # NaN if behind
    nearest = np.nan_to_num(apart, nan=np.inf).argmin(1) if apart.size else np.zeros(len(apart), int)
    return np.asarray(labels.visible[nearest].sum(-1) >= seen.visible.sum(-1))


def sample(
    track: Track, vehicle: Vehicle, style_name: str, seed: int, frames: int
) -> tuple[list[tuple], list[tuple], int]:
    """Return rows (side, corners, errors or None, sigma, score) of all gates entirely in the images, rows (side, found) of
    those cut by the border, both without gates occluded by a wall or pillar, and the number of false detections."""
    rng, style = np.random.default_rng(seed), load_style(style_name)
    feed, detector = (
        Feed(track, vehicle, style, seed),
        ColourDetector(vehicle.camera, np.inf),
    )  # the visible hole, as projected
    ideal = ProjectedCamera(track, vehicle.camera, style, seed, FIT_FROM)
    labeller, depth = Labeller(track, vehicle.camera, style), RenderedCamera(track, vehicle.camera, style, seed)
    gates = [gate for gate in track.gates if not gate.is_ball]
    rows, cut, false = [], [], 0
    for n in range(frames):
        p_wb, q_wb = pose(gates[int(rng.integers(len(gates)))], vehicle.camera.tilt_deg, rng)
        speed, turn = rng.normal(0, 6, 3), rng.normal(0, 1, 3)
        found = detector.detect(
            decode(feed.frame(Exposure(n, n / 30, p_wb, q_wb, speed, turn, n / 30, 0.0)).jpeg, vehicle.camera)
        )
        seen = ideal.visible(p_wb, q_wb)
        depth.image(p_wb, q_wb, n / 30)
        unoccluded = _uncovered(seen, labeller.label(p_wb, q_wb, depth.depth_m()))
        whole = seen.whole & unoccluded
        for corners_px, side in zip(seen.corners_px[whole], seen.side_px[whole], strict=True):
            hit = next((d for d in found if d.visible.all() and _same(d.corners_px, corners_px)), None)
            if hit is None:
                rows.append((side, corners_px, None, np.nan, np.nan))
            else:
                found = [d for d in found if d is not hit]
                rows.append((side, corners_px, _aligned(hit.corners_px, corners_px), hit.sigma_px, hit.score))
        for k in np.flatnonzero(~seen.whole & unoccluded):
            hit = next((d for d in found if _same_part(d, seen.corners_px[k], seen.visible[k], seen.side_px[k])), None)
            found = [d for d in found if d is not hit]
            cut.append((seen.side_px[k], hit is not None))
        false += sum(d.visible.all() for d in found)
    feed.close()
    depth.close()
    return rows, cut, false


def fit(rows: list[tuple], cut: list[tuple], source: str) -> CornerNoise:
    """Fit the noise at each size; rows count for the size nearest on the logarithmic scale."""

    def nearest(rows: list[tuple]) -> np.ndarray:
        return np.abs(np.log([row[0] for row in rows])[:, None] - np.log(SIDES_PX)).argmin(1)

    place, cut_place, cut_hit = nearest(rows), nearest(cut), np.array([hit for _, hit in cut])
    table = {name: [] for name in COLUMNS}
    for k in range(len(SIDES_PX)):
        group = [row for row, at in zip(rows, place, strict=True) if at == k]
        hits = [row for row in group if row[2] is not None]
        errors = np.array([row[2] for row in hits])
        swell, rest = (
            np.array(values) for values in zip(*(outward_offset(row[2], row[1]) for row in hits), strict=True)
        )
        size = np.sqrt(np.square(rest).sum((1, 2)) / 7)
        limit = WILD * np.median(size)
        tame = (size < limit) & (np.abs(swell - np.median(swell)) < limit)
        row = (
            len(hits) / len(group), cut_hit[cut_place == k].mean() if (cut_place == k).any() else 0.0,
            swell[tame].mean(), swell[tame].std(), np.sqrt(np.mean(size[tame] ** 2)), 1 - tame.mean(),
            np.sqrt(np.mean(np.square(errors[~tame]))) if not tame.all() else np.sqrt(np.mean(size**2)),
            np.median([row[3] for row in hits]), np.median([row[4] for row in hits]),
        )  # fmt: skip
        print(f"{SIDES_PX[k]:6.0f} px {len(group):6d} gates  " + "  ".join(f"{value:8.3f}" for value in row))
        for name, value in zip(COLUMNS, row, strict=True):
            table[name].append(round(float(value), 3))
    return CornerNoise(source, SIDES_PX, **{name: tuple(column) for name, column in table.items()})


def main() -> None:
    """Fit the noise, print it, and write it with `--write`."""
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
        digits = lambda v: f"{v:g}" if "." in f"{v:g}" else f"{v:.1f}"  # noqa: E731
        lines = [f"{name}: [{', '.join(map(digits, getattr(noise, name)))}]" for name in ("side_px", *COLUMNS)]
        NOISE.write_text("\n".join([f"source: {noise.source!r}", *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
