"""Halls of the two real courses: a black room with a grid and floating grey boxes, and a hangar.

Both fill the bounds of the course, so that the visible walls are the bounds. Furniture keeps clear of the straight lines
start-gate-gate and does not collide; only the track's own obstacles are solid.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.sim.view import texture
from gate_racer.sim.view.furniture import aircraft, ceiling_lamp, pillar, start_lamp, truss
from gate_racer.sim.view.light import gate_pool
from gate_racer.sim.view.shapes import box, lines, patch
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, matrix

CLEARANCE_M = 4.0  # m, least distance of furniture from the straight lines start-gate-gate (chosen)
GREY, YELLOW, PURPLE = (0.38, 0.38, 0.38), (0.36, 0.33, 0.0), (0.05, 0.03, 0.07)


@dataclass
class Hall:
    """Vertices of a hall and its furniture, see `sim.view.shapes` and `sim.view.light`."""

    solids: list[Array] = field(default_factory=list)
    lines: list[Array] = field(default_factory=list)
    pools: list[Array] = field(default_factory=list)


def flown(track: Track) -> Array:
    """Return points (n, 3) m, at most 0.5 m apart, on the straight lines start-gate-gate."""
    stations = [track.start.p_wb, *(gate.p_wg for gate in track.gates)]
    if track.closed:
        stations.append(track.gates[0].p_wg)
    legs = []
    for a, b in pairwise(stations):
        n = int(np.ceil(np.linalg.norm(b - a) / 0.5)) + 1
        legs.append(np.linspace(a, b, n))
    return np.concatenate(legs)


def clear(low: Array, high: Array, line: Array) -> bool:
    """Check whether the box keeps CLEARANCE_M from the points (n, 3) of `flown`."""
    nearest = np.linalg.norm(line - np.clip(line, low, high), axis=1).min()
    return bool(nearest > CLEARANCE_M + 0.25)  # 0.25 m: largest distance to the nearest sample


def neon(track: Track, gates: list[Gate], rng: np.random.Generator) -> Hall:
    """Return the first qualifier's room: clusters of grey boxes of all sizes and heights, a grid, a green horizon."""
    low, high, line = np.array(track.bounds.low_m), np.array(track.bounds.high_m), flown(track)
    hall = Hall()
    for _ in range(int(np.clip(np.prod(high - low) / 7_000, 12, 160))):
        centre = rng.uniform(low, high)
        for _ in range(rng.integers(2, 6)):
            half = np.exp(rng.uniform(np.log(1.0), np.log(9.0), 3)) * [1, 1, 0.6]
            middle = centre + rng.normal(0, 4, 3)
            if clear(middle - half, middle + half, line):
                layer = texture.MOTTLE if rng.random() < 0.15 else texture.PANEL
                hall.solids.append(box(middle - half, middle + half, layer, rng.uniform(0.24, 0.42)))
    hall.lines = [_grid(low, high, 5.0, GREY), _grid(low, high, 1.25, PURPLE, (2,))]
    middle, tall = (low[2] + high[2]) / 2, 0.04 * (high[2] - low[2])
    corners = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    inward = np.sign(corners.mean(0) - corners) * 0.05
    for a, b in zip(corners + inward, np.roll(corners + inward, -1, 0), strict=True):
        wall = [[*a, middle - tall], [*b, middle - tall], [*b, middle + tall], [*a, middle + tall]]
        hall.solids.append(patch(wall, (0.0, 0.045, 0.0), 1.0))
    return hall


def hangar(track: Track, gates: list[Gate], rng: np.random.Generator) -> Hall:
    """Return the second qualifier's hangar: concrete, numbered pillars, lamps under trusses, parked jets, light pools."""
    low, high, line = np.array(track.bounds.low_m), np.array(track.bounds.high_m), flown(track)
    floor, ceiling = high[2], low[2]
    hall = Hall()
    hall.solids.append(box(np.array([*low[:2], floor]), np.array([*high[:2], floor + 0.1]), texture.FLOOR, 0.25, 14.0))
    for x in np.arange(low[0] + 6, high[0], 16.0):
        for y in np.arange(low[1] + 6, high[1], 12.0):
            middle = np.array([x, y]) + rng.uniform(-2, 2, 2)
            a, b = np.array([*(middle - 0.8), ceiling]), np.array([*(middle + 0.8), floor])
            if clear(a, b, line):
                hall.solids += pillar(a, b, _nearest(gates, middle), rng)
            for side in (-1.7, 1.7):
                hall.solids.append(ceiling_lamp(np.array([x + 8, y + 6 + side, ceiling + 1.3])))
    for _ in range(24):
        middle, heading = np.array([*rng.uniform(low[:2] + 4, high[:2] - 4), floor]), rng.uniform(-np.pi, np.pi)
        if clear(middle - [9, 9, 4], middle + [9, 9, 0], line):
            hall.solids += aircraft(middle, heading)
    for _ in range(40):
        half = rng.uniform(0.3, 1.6, 3) * [1, 1, 0.5]
        middle = np.array([*rng.uniform(low[:2], high[:2]), floor - half[2]])
        if clear(middle - half, middle + half, line):
            hall.solids.append(box(middle - half, middle + half, texture.PANEL, rng.uniform(0.15, 0.35)))
    for y in np.arange(low[1] + 3, high[1], 6.0):
        hall.lines.append(truss(np.array([low[0], y, ceiling]), np.array([high[0], y, ceiling])))
    for x in np.arange(low[0] + 2, high[0], 8.0):
        hall.lines.append(truss(np.array([x, low[1], ceiling + 0.3]), np.array([x, high[1], ceiling + 0.3])))
    hall.lines.append(_grid(low, high, 2.5, (0.16, 0.16, 0.16), (2,), ceiling_only=True))
    hall.lines.append(_floor_lines(low, high, rng))
    for gate in gates:
        hall.pools += gate_pool(gate, floor)
    ahead = matrix(track.start.q_wb)[:, 0] * [1, 1, 0]
    ahead /= np.linalg.norm(ahead)
    for side in (-1.0, 1.0):
        solid, light = start_lamp(track.start.p_wb, ahead, side, floor)
        hall.solids += solid
        hall.pools.append(light)
    return hall


def _nearest(gates: list[Gate], at: Array) -> float:
    """Return the horizontal distance from `at` (2,) m to the nearest gate, m."""
    return min((float(np.linalg.norm(gate.p_wg[:2] - at)) for gate in gates), default=np.inf)


def _grid(
    low: Array, high: Array, pitch: float, rgb: ArrayLike, axes: tuple[int, ...] = (0, 1, 2), ceiling_only: bool = False
) -> Array:
    """Return grid lines on the two walls normal to each of `axes`; line vertices (n, 6)."""
    parts = []
    for axis in axes:
        i, j = [k for k in range(3) if k != axis]
        for along, across in ((i, j), (j, i)):
            steps = np.arange(low[across], high[across] + 1e-9, pitch)
            for wall in (low[axis],) if ceiling_only else (low[axis], high[axis]):
                ends = np.empty((len(steps), 2, 3))
                ends[..., axis] = wall
                ends[..., across] = steps[:, None]
                ends[..., along] = [low[along], high[along]]
                parts.append(lines(ends, rgb))
    return np.concatenate(parts)


def _floor_lines(low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Return yellow lanes along the hangar and some parking marks; line vertices."""
    floor = high[2] - 0.02
    parts = []
    for y in np.arange(low[1] + 5, high[1], 9.0):
        x = np.arange(low[0], high[0] - 2, 3.0)
        ends = np.stack([np.column_stack([x + d, np.full_like(x, y), np.full_like(x, floor)]) for d in (0.0, 2.2)], 1)
        parts.append(lines(ends, YELLOW))
    for _ in range(30):
        a, length = rng.uniform(low[:2], high[:2] - 6), rng.uniform(2, 6)
        b = a + [0, length] if rng.random() < 0.5 else a + [length, 0]
        parts.append(lines([[*a, floor], [*b, floor]], GREY))
    return np.concatenate(parts)
