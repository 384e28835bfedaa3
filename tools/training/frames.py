"""Draw labelled frames of random courses, from which the shipped detector is taught:

python -m tools.training.frames FOLDER [--count 4000] [--seed 1]

Each course and style is used for a few frames. Images go to FOLDER as JPEG of high quality, labels to FOLDER/labels.json (COCO).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.sim.view.projected import Labeller, Labels
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.vehicle.vehicle import load_vehicle
from tools.training.courses import random_shot, random_style, random_track

PER_COURSE = 20  # frames per course and style (chosen)
NARROW_PX = 3.0  # shortest side of an opening whose corners can be told apart (chosen)
PLACED = 2  # least number of visible corners of an opening whose place can be told (chosen)
SAVED = [cv2.IMWRITE_JPEG_QUALITY, 97, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]


def draw(folder: Path, count: int, seed: int) -> None:
    """Write `count` frames, named by their number, and their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    camera = load_vehicle("dcl").camera
    images, annotations = [], []
    for first in range(0, count, PER_COURSE):
        rng = np.random.default_rng([seed, first])
        track, style, hall = random_track(rng), random_style(rng), int(rng.integers(1 << 31))
        labeller = Labeller(track, camera, style)
        with RenderedCamera(track, camera, style, hall) as drawing:
            for k in range(first, min(first + PER_COURSE, count)):
                shot = random_shot(track, camera, rng)
                image = drawing.expose(shot.p_wb, shot.q_wb, shot.v_w, shot.omega_b, shot.t)
                cv2.imwrite(str(folder / f"{k:05d}.jpg"), image, SAVED)
                drawing.image(shot.p_wb, shot.q_wb, shot.t)  # render the pose of the label: an exposure ends elsewhere
                images.append({"id": k, "file_name": f"{k:05d}.jpg"})
                for points in keypoints(labeller.label(shot.p_wb, shot.q_wb, drawing.depth_m())):
                    annotations.append({"id": len(annotations), "image_id": k, "keypoints": points})
    (folder / "labels.json").write_text(json.dumps({"images": images, "annotations": annotations}))


def keypoints(labels: Labels) -> list[list[Any]]:
    """Return the COCO keypoints of each opening: u, v and visibility of four corners.

    Corners behind the camera are unknown (0). So are the hidden ones (1) of an opening of which nothing tells its place.
    """
    found = []
    for quad, visible in zip(labels.corners_px, labels.visible, strict=True):
        known = np.isfinite(quad).all(-1)
        narrow = known.all() and np.linalg.norm(np.roll(quad, -1, 0) - quad, axis=-1).min() < NARROW_PX
        if visible.sum() < PLACED or narrow:
            known &= visible
            known[-1] &= not narrow
        if known.any():
            points = np.column_stack([np.nan_to_num(quad).round(2), np.where(known, np.where(visible, 2, 1), 0)])
            found.append(points.ravel().tolist())
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--count", type=int, default=4000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    draw(given.folder, given.count, given.seed)
