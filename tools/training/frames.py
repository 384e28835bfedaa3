"""Draw the training frames: python -m tools.training.frames FOLDER [--count 4000] [--seed 1]

Each course and look is used for a few frames. Images go to FOLDER as JPEG of high quality, labels to FOLDER/labels.npz.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

from gate_racer.sim.view.labels import Labeller
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.vehicle.vehicle import load_vehicle
from tools.training.courses import random_look, random_shot, random_track

PER_COURSE = 20  # frames per course and look (chosen)
MOST = 16  # greatest number of labelled openings per frame, the nearest (chosen)
SAVED = [cv2.IMWRITE_JPEG_QUALITY, 97, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]


def draw(folder: Path, count: int, seed: int) -> None:
    """Write `count` frames, named by their number, and their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    camera = load_vehicle("dcl").camera
    corners = np.full((count, MOST, 4, 2), np.nan, np.float32)
    visible = np.zeros((count, MOST, 4), bool)
    edges = np.full((count, MOST, 4, 2, 2), np.nan, np.float32)
    for first in range(0, count, PER_COURSE):
        rng = np.random.default_rng([seed, first])
        track, look, hall = random_track(rng), random_look(rng), int(rng.integers(1 << 31))
        labeller = Labeller(track, camera, look)
        with RenderedCamera(track, camera, look, hall) as drawing:
            for k in range(first, min(first + PER_COURSE, count)):
                shot = random_shot(track, camera, rng)
                image = drawing.expose(shot.p_wb, shot.q_wb, shot.v_w, shot.omega_b, shot.t)
                cv2.imwrite(str(folder / f"{k:05d}.jpg"), image, SAVED)
                drawing.image(shot.p_wb, shot.q_wb, shot.t)  # render the pose of the label: an exposure ends elsewhere
                found = labeller.label(shot.p_wb, shot.q_wb, drawing.depth_m())
                n = min(len(found.range_m), MOST)
                corners[k, :n], visible[k, :n] = found.corners_px[:n], found.visible[:n]
                edges[k, :n] = found.edges_px[:n]
    np.savez_compressed(folder / "labels.npz", corners=corners, visible=visible, edges=edges)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--count", type=int, default=4000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    draw(given.folder, given.count, given.seed)
