"""Measure a trained network on held-out frames and update its card, perception/learned/gate_net.yaml:

python -m tools.training.calibrate HELD_OUT_FRAMES [--seed 2]

The card gets the standard deviation of corner positions as a function of peak height, for corners that belong to a gate. Its
least scores are kept: gates are verified by the image's edges (`perception.learned.detector`).
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import cv2
import numpy as np
from ruamel.yaml import YAML

from gate_racer.common.config import load
from gate_racer.perception.learned.config import HeatmapConfig
from gate_racer.perception.learned.network import CARD, NET, CornerGroup, NetworkCard, blocks, group_corners, to_image
from gate_racer.vehicle.rotation import Array
from tools.training.samples import SMALLEST_PX, Samples, disturbed

PEAK = (0.15, 0.3, 0.5, 0.65, 0.8, 0.9, 1.0)  # edges of the bins of peak heights
OFF_PX, OFF_SHARE = 4.0, 0.15  # greatest error of a matching corner, px or share of the side, whichever is greater
REPEATS = 3  # augmentations of each frame
FEW = 40  # least number of corners in a bin


def match(gate: CornerGroup, corners_px: Array) -> tuple[int, Array] | None:
    """Match a found gate to openings (K, 4, 2) px; return the index and errors (4, 2) px, NaN for missing corners, or None."""
    best = None
    px = to_image(gate.at)
    for k, truth in enumerate(corners_px):
        side = np.nan_to_num(np.linalg.norm(truth - np.roll(truth, 1, 0), axis=-1)).max()
        if not np.isfinite(truth).any():
            continue
        for turn in range(4):
            error = px - np.roll(truth, turn, 0)
            size = np.linalg.norm(error, axis=-1)
            worst = np.nanmax(size) if np.isfinite(size).sum() == (gate.height > 0).sum() else np.inf
            if worst < max(OFF_PX, OFF_SHARE * side) and (best is None or worst < best[0]):
                best = worst, k, error
    return None if best is None else best[1:]


def calibrate(frames: Path, seed: int) -> tuple[list[float], list[float]]:
    """Return peak heights and the standard deviation (px) of a coordinate for each; print the share of gates found."""
    samples, rng, net = Samples(frames), np.random.default_rng(seed), cv2.dnn.readNetFromONNX(str(NET))
    heights: list[float] = []
    errors: list[Array] = []
    count, hit = 0, 0
    for k in [k for k in range(len(samples)) for _ in range(REPEATS)]:
        net.setInput(blocks(disturbed(samples.images[k], rng)))
        truth, seen = samples.corners_px[k].astype(float), samples.visible[k]
        matched = set()
        for gate in group_corners(net.forward()[0], HeatmapConfig()):
            of = match(gate, truth) if gate.height.all() else None
            if of is not None and of[0] not in matched:
                matched.add(of[0])
                heights += gate.height.tolist()
                errors += list(of[1])
        sides = np.linalg.norm(truth - np.roll(truth, 1, 1), axis=-1)
        for j in np.flatnonzero(seen.all(-1)):
            if sides[j].max() >= SMALLEST_PX[0] and sides[j].min() >= 12.0:
                count, hit = count + 1, hit + (j in matched)
    height, error = np.array(heights), np.array(errors)
    peak, sigma = [], []
    for low, high in zip(PEAK, PEAK[1:], strict=False):
        inside = (height >= low) & (height < high)
        if inside.sum() >= FEW:
            peak.append(round((low + high) / 2, 3))
            sigma.append(round(float(np.quantile(np.abs(error[inside]), 0.68)), 2))
    print(f"peak {peak}\nsigma_px {sigma}")
    print(f"openings of at least 12 px grouped with all corners: {hit / count:.4f} of {count}")
    return peak, sigma


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("frames", type=Path)
    arguments.add_argument("--seed", type=int, default=2)
    given = arguments.parse_args()
    peak, sigma_px = calibrate(given.frames, given.seed)
    card = replace(load(CARD, NetworkCard), peak=tuple(peak), sigma_px=tuple(sigma_px))
    with CARD.open("w") as file:
        YAML().dump({key: list(v) if isinstance(v, tuple) else v for key, v in asdict(card).items()}, file)
