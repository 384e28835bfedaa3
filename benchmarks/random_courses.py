"""Random courses similar to the qualifiers, not used in tuning, as track files for `race-bench --tracks DIR/*.yaml`.

python benchmarks/random_courses.py --courses 12 --out logs/courses
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.tracks.track import VADR_FRAME, load_track
from gate_racer.vehicle.config import write

GATES = 6, 12  # bounds of the number of gates
FIRST_M = 11.0, 23.0  # m, distance of the first gate, straight ahead of the pad, as on VQ2 and VQ1
AIMED_DEG = 15.0  # deg, largest angle between a gate's axis and the leg to it
CLIMB = 0.22  # largest slope of a leg, rise over run
LOWEST_M, HIGHEST_M = 1.45, 14.0  # m, bounds of the gate centres' height above the pad
ROOM_M, BELOW_M = 15.0, 0.5  # m, distance from gates to bounds, and from pad to floor


@dataclass(frozen=True)
class Style:
    """Bounds of the distance between gates, m, and largest turn between consecutive gates, deg."""

    leg_m: tuple[float, float]
    turn_deg: float


STYLES = {"open": Style((20.0, 38.0), 25.0), "technical": Style((9.0, 16.0), 60.0), "mixed": Style((9.0, 30.0), 50.0)}


def random_course(seed: int, style: Style) -> dict[str, Any]:
    """Return the fields of a track file."""
    rng = np.random.default_rng(seed)
    heading, height, p, gates = 0.0, LOWEST_M, np.zeros(2), list[dict[str, Any]]()
    for k in range(rng.integers(*GATES, endpoint=True)):
        leg = rng.uniform(*(style.leg_m if k else FIRST_M))
        heading += rng.uniform(-style.turn_deg, style.turn_deg) if k else 0.0
        height = float(np.clip(height + rng.uniform(-CLIMB, CLIMB) * leg * (k > 0), LOWEST_M, HIGHEST_M))
        p = p + leg * np.array([np.cos(np.radians(heading)), np.sin(np.radians(heading))])
        yaw = heading + rng.uniform(-AIMED_DEG, AIMED_DEG)
        gates.append(
            {"centre_m": [*p.round(3).tolist(), -round(height, 3)], "yaw_deg": round((yaw + 180) % 360 - 180, 1)}
        )
    points = np.array([gate["centre_m"] for gate in gates] + [[0.0, 0.0, 0.0]])
    low, high = points.min(axis=0) - ROOM_M, points.max(axis=0) + ROOM_M
    return {
        "name": f"course{seed}",
        "source": f"benchmarks/random_courses.py, seed {seed}",
        "start": {"position_m": [0.0, 0.0, 0.0], "yaw_deg": 0.0},
        "bounds": {"low_m": low.round(1).tolist(), "high_m": [*high[:2].round(1).tolist(), BELOW_M]},
        "frame": asdict(VADR_FRAME),
        "gates": gates,
    }


def main() -> None:
    """Write random courses as track files."""
    parser = argparse.ArgumentParser(
        description="Write random courses as track files, alternately open, technical and mixed."
    )
    parser.add_argument("--courses", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="seed of the first course")
    parser.add_argument("--out", type=Path, default=Path("logs/courses"))
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    for seed in range(a.first, a.first + a.courses):
        name, style = list(STYLES.items())[seed % len(STYLES)]
        path = a.out / f"course{seed}.yaml"
        write(path, random_course(seed, style))
        track = load_track(path)
        print(f"{path}: {name}, {len(track.gates)} gates")


if __name__ == "__main__":
    main()
