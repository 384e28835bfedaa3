"""Draw labelled frames of random courses, from which the shipped detector is taught:

python -m tools.training.frames FOLDER [--count 4000] [--seed 1]

Each course and style is used for a few frames. Images go to FOLDER as JPEG of high quality, labels to FOLDER/labels.json (COCO).
None of the project's own tracks is among the courses.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.projected import Labeller, Labels
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.scene import course
from gate_racer.sim.view.style import WORLDS, RenderingStyle
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import exp, from_euler, product
from gate_racer.vehicle.vehicle import load_vehicle

# Shares of frames: along the course; so near that a gate is cut; at any distance from a gate; the rest at random.
ALONG, CUT, ABOUT = 0.45, 0.17, 0.3
LINED_UP = 0.35  # share of courses with gates behind each other
OTHER_FRAMES = 0.4  # share of courses with frames wider or narrower than the race's


def random_track(rng: np.random.Generator) -> Track:
    """Draw 4 to 12 gates that can be flown through, in a low or a high hall."""
    low_hall, lined_up = rng.random() < 0.5, rng.random() < LINED_UP
    opening = 1.5 * rng.uniform(0.93, 1.07)
    outer = opening * (rng.uniform(1.3, 2.0) if rng.random() < OTHER_FRAMES else rng.uniform(1.72, 1.9))
    p, heading, gates = np.zeros(3), rng.uniform(-180, 180), []
    for _ in range(rng.integers(4, 13)):
        turn = rng.normal(0, 6 if lined_up else 40)
        leg = np.exp(rng.uniform(np.log(4 if lined_up else 6), np.log(15 if lined_up else 35)))
        climb = rng.uniform(-1.5, 1.5) if low_hall else rng.normal(0, 0.1 if lined_up else 0.3) * leg
        way = np.radians(heading + turn / 2)
        p = p + [leg * np.cos(way), leg * np.sin(way), climb]
        if low_hall:
            p[2] = np.clip(p[2], -6, 0)
        heading += turn
        pitch = rng.normal(0, 15) if rng.random() < 0.15 else 0.0
        yaw = float(heading + rng.normal(0, 15))
        gate = Gate((float(p[0]), float(p[1]), float(p[2])), yaw, float(pitch), opening, outer, 0.26)
        if all(np.linalg.norm(p - other.p_wg) > outer for other in gates):
            gates.append(gate)
    points = np.array([np.zeros(3), *(gate.p_wg for gate in gates)])
    room = np.array([rng.uniform(6, 20), rng.uniform(6, 20), 3.0 if low_hall else rng.uniform(10, 25)])
    low, high = points.min(0) - room, points.max(0) + room
    if low_hall:
        high[2] = outer / 2 + rng.uniform(0, 1.5)
    first = gates[0].p_wg
    start = Start((0.0, 0.0, 0.0), math.degrees(math.atan2(first[1], first[0])))
    box = Bounds((low[0], low[1], low[2]), (high[0], high[1], high[2]))
    return Track("random", start, box, tuple(gates), False, None)


def random_style(rng: np.random.Generator) -> RenderingStyle:
    def factor(spread: float) -> float:
        return float(np.exp(spread * rng.standard_normal()))

    return RenderingStyle(
        name="random",
        source="tools.training",
        world=str(rng.choice(WORLDS)),
        samples=int(rng.choice([0, 0, 4])),
        exposure_s=float(rng.uniform(0.001, 0.006)) if rng.random() < 0.3 else 0.0,
        jpeg_quality=97,
        outline_m=float(rng.uniform(0.0, 0.03)),
        depth_m=float(rng.uniform(0.03, 0.26)),
        ambient=factor(0.7),
        lamps=factor(0.4),
        glow=factor(0.6),
        corridor=float(rng.choice([0.0, 1.0, 1.0, 2.0, 3.0])) * factor(0.4),
        corridor_half_m=float(rng.uniform(0.4, 1.1)),
        flicker=0.0,
        variation=0.0,
    )


def random_shot(track: Track, camera: Camera, rng: np.random.Generator) -> Exposure:
    """Draw a state of the body: along the course and looking ahead, in front of or behind any gate, or anywhere."""
    kind = rng.random()
    gate = track.gates[rng.integers(len(track.gates))]
    if kind < ALONG:
        line = course(track, list(track.gates))
        k = int(rng.integers(len(line) - 1))
        p_wb = line[k] + rng.normal(0, 0.6, 3)
        ahead = line[min(k + int(rng.integers(5, 60)), len(line) - 1)] - p_wb
    elif kind < ALONG + CUT + ABOUT:
        least, most = (0.8, 4.0) if kind < ALONG + CUT else (1.2, 45.0)
        reach = np.exp(rng.uniform(np.log(least), np.log(most)))
        back = rng.normal(0, 1, 3) * [0.2, 0.5, 0.3] + [1.0 if rng.random() < 0.85 else -1.0, 0, 0]
        p_wb = gate.p_wg - reach * gate.R_wg @ back / np.linalg.norm(back)
        ahead = gate.p_wg - p_wb
    else:
        p_wb = rng.uniform(track.bounds.low_m, track.bounds.high_m)
        ahead = rng.normal(0, 1, 3) * [1, 1, 0.4]
    p_wb = np.clip(p_wb, np.array(track.bounds.low_m) + 0.3, np.array(track.bounds.high_m) - 0.3)
    aim = from_euler(0.0, math.atan2(-ahead[2], math.hypot(ahead[0], ahead[1])), math.atan2(ahead[1], ahead[0]))
    off = exp([0.0, rng.uniform(-0.5, 0.5), rng.uniform(-0.7, 0.7)])
    spread = 0.25 if rng.random() < 0.5 else 1.0
    roll = exp([spread * rng.standard_normal(), 0, 0])
    tilt = exp([0, -math.radians(camera.tilt_deg), 0])
    q_wb = np.array(product(product(product(aim, roll), off), tilt))
    v_w, omega_b, t = rng.normal(0, 8, 3), rng.normal(0, 2, 3), float(rng.uniform(0, 100))
    return Exposure(0, t, p_wb, q_wb, v_w, omega_b, t, 0.0)


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
