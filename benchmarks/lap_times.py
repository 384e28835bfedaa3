"""Lap times and gate margins over seeds, in lock-step: python benchmarks/lap_times.py tracks/vq1.yaml --seeds 20"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


def fly(track: str, vehicle: str, seed: int) -> dict:
    """The result of one flight in its own process; a flight that could not be flown has only a status."""
    with TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "pilot.cli", track, "--vehicle", vehicle, "--lockstep", "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--log", folder, "--json", str(result)], capture_output=True, text=True, check=False
        )
        if result.exists():
            return json.loads(result.read_text())
        return {"status": done.stderr.strip() or "failed", "seed": seed, "track": track}


def table(results: list[dict]) -> str:
    """One row per flight, one for all."""
    rows = [
        f"{'track':14s} {'seed':>4s}  {'status':12s} {'time s':>8s} {'planned':>8s} {'least m':>8s} {'estimate m':>10s}"
    ]
    for r in results:
        if "planned_time_s" not in r:
            rows.append(f"{r['track']:14s} {r['seed']:4d}  {r['status']}")
            continue
        numbers = (r["race_time_s"], r["planned_time_s"], r["min_margin_m"], r["estimate_rmse_m"])
        cells = " ".join(f"{'-' if n is None else format(n, '.3f'):>8s}" for n in numbers)
        rows.append(f"{r['track']:14s} {r['seed']:4d}  {r['status']:12s} {cells}")
    for track in dict.fromkeys(r["track"] for r in results):
        flown = [r for r in results if r["track"] == track]
        done = [r for r in flown if r["status"] == "finished"]
        text = f"{track}: finished {len(done)} of {len(flown)}"
        if done:
            times, margins = ([r[key] for r in done] for key in ("race_time_s", "min_margin_m"))
            text += f", {np.mean(times):.3f} s +- {np.std(times):.3f}, least margin {min(margins):.3f} m"
        rows.append(text)
    return "\n".join(rows)


def draw(path: Path, results: list[dict]) -> None:
    """Times and margins as dots, one column per track."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, key, label in zip(
        axes, ("race_time_s", "min_margin_m"), ("race time [s]", "least margin [m]"), strict=True
    ):
        known = [r for r in results if r.get(key) is not None]
        axis.plot([r["track"] for r in known], [r[key] for r in known], "o", alpha=0.5)
        axis.set(ylabel=label)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description="Lap times and gate margins over seeds.")
    parser.add_argument("tracks", nargs="*", default=["tracks/vq1.yaml"])
    parser.add_argument("--vehicle", default="dcl")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("logs"))
    a = parser.parse_args()
    cases = [(track, a.vehicle, seed) for track in a.tracks for seed in range(a.seeds)]
    results = [fly(*cases[0])]  # alone, so that it makes the plan and the solver for all
    with ThreadPoolExecutor(a.workers) as pool:
        for r in pool.map(lambda case: fly(*case), cases[1:]):
            results.append(r)
            print(f"\r{len(results)}/{len(cases)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(table(results))
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "lap_times.json").write_text(json.dumps(results, indent=2))
    draw(a.out / "lap_times.png", results)


if __name__ == "__main__":
    main()
