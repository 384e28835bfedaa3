"""Solids of a course as oriented boxes: gate frames, bar by bar, the posts that carry them, and obstacles."""

from typing import NamedTuple

import numpy as np

from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Obstacle, Track
from gate_racer.vehicle.rotation import Array, from_euler, matrix

SAME_LEVEL = 0.25  # -, height difference over the frame's side above which a gate may stand on the lower one (chosen)


class SolidBox(NamedTuple):
    """Oriented box: world points centre + axes @ p with |p| <= half."""

    centre: Array  # (3,) m, world NED
    axes: Array  # (3, 3) rotation, box to world
    half: Array  # (3,) m, half sides

    def distance(self, p_w: Array) -> Array:
        """Return distances (...), m, from world points (..., 3) to its surface; 0 inside."""
        beyond = np.abs((p_w - self.centre) @ self.axes) - self.half
        return np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)


def of_obstacle(obstacle: Obstacle) -> SolidBox:
    """Return the box of an axis-aligned obstacle."""
    low, high = np.array(obstacle.low_m), np.array(obstacle.high_m)
    return SolidBox((low + high) / 2, np.eye(3), (high - low) / 2)


def bars(gate: Gate) -> list[SolidBox]:
    """Return the four bars between opening and outer square, as deep as the frame."""
    inner, outer, depth = gate.opening_m / 2, gate.outer_m / 2, gate.depth_m / 2
    middle, width = (outer + inner) / 2, (outer - inner) / 2
    parts = []
    for sign in (-1, 1):
        for centre, half in (
            ((0, 0, sign * middle), (depth, outer, width)),
            ((0, sign * middle, 0), (depth, width, inner)),
        ):
            parts.append(SolidBox(gate.p_wg + gate.R_wg @ np.array(centre, float), gate.R_wg, np.array(half, float)))
    return parts


def stand(track: Track, index: int) -> SolidBox | None:
    """Return the vertical post below a gate's frame; None if the frame stands on another one or on the floor, or has no post."""
    gate, floor = track.gates[index], track.bounds.high_m[2]
    if not gate.has_frame or gate.stand_m <= 0:
        return None
    foot = gate.p_wg[2] + gate.outer_m / 2 * abs(gate.R_wg[2, 2])
    for other in track.gates:
        below = other.has_frame and other.p_wg[2] > gate.p_wg[2] + SAME_LEVEL * gate.outer_m
        if below and np.linalg.norm((other.p_wg - gate.p_wg)[:2]) < gate.outer_m / 2:
            return None
    if foot >= floor:
        return None
    centre = np.array([gate.p_wg[0], gate.p_wg[1], (foot + floor) / 2])
    upright = matrix(from_euler(0.0, 0.0, np.radians(gate.yaw_deg)))
    return SolidBox(centre, upright, np.array([gate.depth_m / 2, gate.stand_m / 2, (floor - foot) / 2]))
