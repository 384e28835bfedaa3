"""Cameras, styles, a gate and the poses before it, for tests of what is drawn."""

import math
from pathlib import Path

import numpy as np

from gate_racer.sim.view.style import FOLDER, load_style
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track, load_track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import from_euler, product

TRACKS = Path(__file__).parents[2] / "tracks"
VADR = Camera(640, 360, 320.0, 320.0, 320.0, 180.0, 20.0)
GATE = Gate((6.0, 1.0, -2.0), 30.0, 10.0, 1.5, 2.72, 0.26)
RACE = load_style("race")
SMOOTH = load_style("smooth")
STYLES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
ONE_GATE = Track("one", Start((0, 0, 0), 0.0), Bounds((-5, -5, -5), (15, 15, 5)), (GATE,), False, None)


def track(name: str) -> Track:
    return load_track(TRACKS / f"{name}.yaml")


def facing(gate: Gate, camera: Camera, back_m: float, y: float, z: float, turn=(0.0, 0.0, 0.0)):
    """Pose (p_wb, q_wb) that far before a gate, offset in its plane, looking along its axis but for a turn in rad."""
    level = product(gate.q_wg, from_euler(0, -math.radians(camera.tilt_deg), 0))
    return gate.p_wg + gate.R_wg @ [-back_m, y, z], np.array(product(level, from_euler(*turn)))
