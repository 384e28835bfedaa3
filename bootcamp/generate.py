"""Courses drawn from a seed: gates within bounds, apart, and each within a flyable turn and climb from the one before."""

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gate_racer.bootcamp.world import GATES
from gate_racer.common.config import write
from gate_racer.common.errors import UserError
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.rotation import Array

BOUNDS = Bounds((-60.0, -60.0, -16.0), (60.0, 60.0, 0.0))  # m, world NED (chosen)
START = Start((-45.0, 0.0, -0.1), 0.0)  # m, world NED, and yaw in deg
OPENING_M, OUTER_M, DEPTH_M = 1.5, 2.72, 0.26  # m, gates of the virtual qualifier
LEG_M = (12.0, 25.0)  # m, range of the distance from gate to gate (chosen, as those below)
TURN_RAD = math.radians(50)  # rad, greatest angle between successive legs
YAW_RAD = math.radians(25)  # rad, greatest angle between a gate's axis and the leg to it
HEIGHT_M = (2.5, 10.0)  # m, range of the height of an opening's centre
CLIMB = 0.25  # -, greatest change of height over length of a leg
WALL_M = 6.0  # m, least distance from a gate to the bounds
APART_M = 10.0  # m, least distance between any two gates
TRIES, STARTS = 200, 200  # greatest numbers of draws per walk, and of walks


def generate_track(seed: int, count: int) -> Track:
    """Return a course of `count` gates, the same for the same seed.

    Raises:
        UserError: the seed is negative, `count` is below 1, or the bounds have no room for so many gates.
    """
    if seed < 0 or count < 1:
        raise UserError(
            f"seed {seed}, {count} gates: the seed must not be negative, and there must be at least one gate"
        )
    rng = np.random.default_rng([seed, GATES])
    for _ in range(STARTS):
        gates = _walk(rng, count)
        if len(gates) == count:
            return Track(f"generated-{seed}", START, BOUNDS, tuple(gates), False, None)
    raise UserError(f"seed {seed}: no room for {count} gates within {BOUNDS.low_m} to {BOUNDS.high_m}; request fewer")


def _walk(rng: np.random.Generator, count: int) -> list[Gate]:
    """Draw gates one after the other, until there are `count` or the draws are used up."""
    gates: list[Gate] = []
    p, heading = START.p_wb, math.radians(START.yaw_deg)
    for _ in range(TRIES):
        if len(gates) == count:
            break
        course = heading + rng.uniform(-TURN_RAD, TURN_RAD)
        length = rng.uniform(*LEG_M)
        down = float(np.clip(p[2] + rng.uniform(-CLIMB, CLIMB) * length, -HEIGHT_M[1], -HEIGHT_M[0]))
        centre = np.array([p[0] + length * math.cos(course), p[1] + length * math.sin(course), down])
        if _free(centre, gates):
            yaw_deg = math.degrees(course + rng.uniform(-YAW_RAD, YAW_RAD))
            x, y, z = np.round(centre, 3).tolist()
            gates.append(Gate((x, y, z), round(yaw_deg, 2), 0.0, OPENING_M, OUTER_M, DEPTH_M))
            p, heading = centre, course
    return gates


def _free(centre: Array, gates: list[Gate]) -> bool:
    """Check whether a gate may be placed at centre (3,) m."""
    within = (np.abs(centre[:2]) <= np.array(BOUNDS.high_m[:2]) - WALL_M).all()
    others = [gate.p_wg for gate in gates] + [START.p_wb]
    return bool(within) and min(float(np.linalg.norm(centre - other)) for other in others) >= APART_M


def write_track(track: Track, folder: Path) -> Path:
    """Write the track's file, named as the track; return its path.

    Raises:
        UserError: the file cannot be written.
    """
    path = folder / f"{track.name}.yaml"
    write(path, {
        "name": track.name,
        "source": "drawn by `bootcamp --set generate=seed=N` from the seed in its name",
        "start": {"position_m": track.start.position_m, "yaw_deg": track.start.yaw_deg},
        "bounds": asdict(track.bounds),
        "frame": {"opening_m": OPENING_M, "outer_m": OUTER_M, "depth_m": DEPTH_M},
        "gates": [{"centre_m": gate.centre_m, "yaw_deg": gate.yaw_deg} for gate in track.gates],
    })  # fmt: skip
    return path
