"""Additive light: the corridor along the course, and the light of gates and lamps on the floor."""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.sim.view.shapes import SQUARE, triangles
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

CORRIDOR, POOL = 5, 12  # floats per vertex
BELOW_M = 0.5  # m, height of the ribbon below the line through the centres of the openings
PAD_M = 0.3  # m, additional drop of the ribbon at the pad
CREST_M, CREST_AT_M = 1.35, 7.0  # m, height of the ribbon's crest above the pad, and its distance from the pad
POOL_HALF_M = 3.4  # half-side of the square that carries a light pool


def course(track: Track, gates: list[Gate]) -> Array:
    """Return a smooth line (n, 3) m from the start through the gates, tangent to each gate's axis."""
    pad_w = track.start.p_wb + [0, 0, PAD_M]
    away = (gates[0].p_wg - pad_w) * [1, 1, 0]
    distance = max(float(np.linalg.norm(away)), 1e-6)
    level = away / distance
    crest = track.start.p_wb + min(CREST_AT_M, distance / 2) * level - [0, 0, CREST_M]
    stations = [(pad_w, level + [0, 0, -0.2]), (crest, level)]
    stations += [(gate.p_wg, gate.R_wg[:, 0]) for gate in gates]
    if track.closed:
        stations.append(stations[2])
    s = np.linspace(0, 1, 40, endpoint=False)[:, None]
    legs = []
    for (p0, x0), (p1, x1) in pairwise(stations):
        reach = np.linalg.norm(p1 - p0)
        # Cubic Hermite
        legs.append(
            (1 + 2 * s) * (1 - s) ** 2 * p0
            + s * (1 - s) ** 2 * reach * x0
            + s**2 * (3 - 2 * s) * p1
            + s**2 * (s - 1) * reach * x1
        )
    return np.concatenate([*legs, stations[-1][0][None]])


def corridor(line: Array, half_m: float) -> Array:
    """Return a strip below a line (n, 3) as vertices (n, 5): position (3), across (-1 to 1), along (m)."""
    tangent = np.gradient(line, axis=0)
    right = np.cross([0.0, 0.0, 1.0], tangent)
    right *= half_m / np.maximum(np.linalg.norm(right, axis=1, keepdims=True), 1e-6)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    left, other = (
        np.column_stack([line + across * right + [0, 0, BELOW_M], np.full_like(along, across), along])
        for across in (-1.0, 1.0)
    )
    return triangles(np.stack([left[:-1], other[:-1], other[1:], left[1:]], 1))


def pool(foot_w: ArrayLike, half_m: float, yaw_rad: float, rgb: ArrayLike) -> Array:
    """Return light on the floor at a foot (3,) m: a bar of half-length half_m across yaw_rad (0: none) and a streak; (6, 12)."""
    foot_w = np.asarray(foot_w, float)
    p_w = np.column_stack([POOL_HALF_M * SQUARE, np.zeros(4)]) + foot_w
    across = [half_m, -np.sin(yaw_rad), np.cos(yaw_rad)]
    return triangles(np.column_stack([p_w, np.broadcast_to([*foot_w, *across, *np.asarray(rgb)], (4, 9))])[None])


def gate_pool(gate: Gate, floor: float) -> list[Array]:
    """Return the yellow and red light at a gate's foot, which decay with the gate's height above the floor."""
    above = floor - gate.p_wg[2] - gate.outer_m / 2
    if not -0.5 < above < 2 * gate.outer_m:
        return []
    ahead = gate.R_wg[:, 0] * [1, 1, 0]
    foot = [*(gate.p_wg - 0.15 * ahead)[:2], floor - 0.03]
    weak = np.exp(-max(above, 0.0) / 2.0)
    yaw = np.arctan2(ahead[1], ahead[0])
    return [
        pool(foot, gate.outer_m / 2, yaw, weak * np.array([1.6, 1.05, 0.08])),
        pool([*gate.p_wg[:2], floor - 0.025], 0.0, yaw, weak * np.array([0.7, 0.1, 0.02])),
    ]
