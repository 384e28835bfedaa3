"""`Scene`: what the drawn world consists of, as triangles and lines in world NED, built from a track and a seed.

The look follows the qualifier's simulator: orange gates that glow, a dark hall with a grid, a cyan ribbon along the course.
A course with a low ceiling becomes a hangar with pillars and lamps, any other an open room with floating boxes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim import texture
from tracks.gate import Gate
from tracks.track import Track
from vehicle.rotation import Array, matrix

Floats = NDArray[np.float32]

DRAWN_DEPTH_M = 0.16  # the real gates look thinner than their 0.26 m (a box fitted to 50 gates in real frames)
CLEARANCE_M = 4.0  # between the furniture and the straight lines start-gate-gate
HALL_MARGIN_M = 25.0  # from the bounds of the course to the walls of the drawn hall
HANGAR_HEIGHT_M = 20.0  # below it the hall is drawn as a hangar
LIGHT = ((0.75, 0.6), (0.9, 0.65), (1.0, 0.35))  # on the faces of a box towards -x, +x; -y, +y; up, down


@dataclass(frozen=True)
class Scene:
    """Vertices in draw order, float32. Colours are RGB, 0 to 1."""

    solids: Floats  # (n, 9): triangles of position (3, m), texture coordinate (2) and layer, colour (3)
    lines: Floats  # (n, 6): pairs of position (3, m), colour (3)
    glow: Floats  # (n, 8): triangles of position (3, m), across (-1 to 1) and along (m), colour (3); added light
    layers: NDArray[np.uint8]  # (k, side, side, 3) RGB, row 0 at the top


def build(track: Track, seed: int, gates_only: bool = False) -> Scene:
    """The world of a track. Balls and invisible gates are not drawn. `gates_only` leaves the rest dark and empty."""
    gates = [gate for gate in track.gates if gate.visible and not gate.is_ball]
    opening = gates[0].opening_m / gates[0].outer_m if gates else 0.5
    layers = texture.layers(seed, opening)
    solids = [_gate(gate) for gate in gates]
    if gates_only:
        return Scene(_stack(solids, 9), _stack([], 6), _stack([], 8), layers)
    low, high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
    margin = np.array([HALL_MARGIN_M, HALL_MARGIN_M, 0])
    low, high = low - margin, high + margin
    rng = np.random.default_rng(seed)
    if high[2] - low[2] < HANGAR_HEIGHT_M:
        furniture = _hangar(low, high, _flown(track), rng)
        glow = [_reflection(gate, high[2]) for gate in gates if 0 < high[2] - gate.p_wg[2] < 3 * gate.outer_m]
    else:
        furniture = _room(low, high, _flown(track), rng)
        glow = []
    solids += [*furniture, _pad(track.start.p_wb)]
    if gates:
        glow.append(_ribbon(_course(track, gates)))
    return Scene(_stack(solids, 9), _grid(low, high), _stack(glow, 8), layers)


def _stack(parts: list[Array], width: int) -> Floats:
    return np.concatenate([np.empty((0, width)), *parts]).astype(np.float32)


def _triangles(quads: Array) -> Array:
    """Two triangles for each quad: (n, 4, k) to (6 n, k)."""
    return quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, quads.shape[-1])


# --- gates ---


def _gate(gate: Gate) -> Array:
    """A square ring of `DRAWN_DEPTH_M` about the gate's plane; solid vertices (n, 9)."""
    side = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) / 2  # (y, z): top-left, top-right, bottom-right, bottom-left
    rings = {}
    for name, x in (("front", -DRAWN_DEPTH_M / 2), ("back", DRAWN_DEPTH_M / 2)):
        for what, length in (("outer", gate.outer_m), ("inner", gate.opening_m)):
            rings[name, what] = np.column_stack([np.full(4, x), side * length])
    strips = [
        (rings["front", "outer"], rings["front", "inner"], texture.GATE),
        (rings["back", "inner"], rings["back", "outer"], texture.GATE),
        (rings["back", "outer"], rings["front", "outer"], texture.PLAIN),
        (rings["front", "inner"], rings["back", "inner"], texture.PLAIN),
    ]
    quads = []
    for a, b, layer in strips:
        p_g = np.stack([a, np.roll(a, -1, 0), np.roll(b, -1, 0), b], 1)
        uv = p_g[..., 1:] / gate.outer_m + 0.5
        if (p_g[..., 0] > 0).all():  # the back: mirrored, so that the lettering reads from there, too
            uv[..., 0] = 1 - uv[..., 0]
        rgb = np.ones(3) if layer == texture.GATE else np.array(texture.ORANGE) / 255
        quads.append(_surface(gate.p_wg + p_g @ gate.R_wg.T, uv, layer, rgb))
    return np.concatenate(quads)


def _surface(p_w: Array, uv: Array, layer: int, rgb: Array) -> Array:
    """Solid vertices (6 n, 9) of quads p_w (n, 4, 3), clockwise as seen, with uv (n, 4, 2) and one colour."""
    constant = np.broadcast_to([layer, *rgb], (*p_w.shape[:2], 4))
    return _triangles(np.concatenate([p_w, uv, constant], 2))


# --- the hall ---


def _flown(track: Track) -> Array:
    """Points (n, 3) no further than 0.5 m apart on the straight lines start-gate-gate."""
    stations = [track.start.p_wb, *(gate.p_wg for gate in track.gates)]
    if track.closed:
        stations.append(track.gates[0].p_wg)
    legs = []
    for a, b in pairwise(stations):
        n = int(np.ceil(np.linalg.norm(b - a) / 0.5)) + 1
        legs.append(np.linspace(a, b, n))
    return np.concatenate(legs)


def _clear(low: Array, high: Array, flown: Array) -> bool:
    """Whether the box keeps its distance from the flown lines."""
    nearest = np.linalg.norm(flown - np.clip(flown, low, high), axis=1).min()
    return bool(nearest > CLEARANCE_M + 0.25)  # 0.25 m: from a point of the line to the nearest sample


def _box(low: Array, high: Array, layer: int, grey: float, tile_m: float = 6.0) -> Array:
    """Solid vertices (36, 9) of an axis-aligned box, lit from above."""
    size = high - low
    faces = []
    for axis in range(3):
        i, j = [k for k in range(3) if k != axis]
        for end in (0, 1):
            corners = np.tile(low, (4, 1))
            corners[:, axis] += end * size[axis]
            corners[[1, 2], i] += size[i]
            corners[[2, 3], j] += size[j]
            uv = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * np.maximum(np.round(size[[i, j]] / tile_m), 1)
            turned = (axis == 1) == (end == 1)  # which way round the corners run as seen from outside
            order = [0, 1, 2, 3] if turned else [0, 3, 2, 1]
            faces.append(_surface(corners[None, order], uv[None, order], layer, np.full(3, grey * LIGHT[axis][end])))
    return np.concatenate(faces)


def _pad(p_wb: Array, half: float = 0.2) -> Array:
    """The start: a dark block, its top 0.1 m below the drone's centre and too small to fill the camera's view."""
    size = np.array([half, half, 0.15])
    centre = p_wb + np.array([0, 0, 0.1 + size[2]])
    return _box(centre - size, centre + size, texture.PLAIN, 0.1)


def _room(low: Array, high: Array, flown: Array, rng: np.random.Generator) -> list[Array]:
    """Clusters of grey boxes of all sizes at all heights."""
    boxes = []
    for _ in range(int(np.prod(high - low) / 20_000)):  # one cluster for so many cubic metres
        centre = rng.uniform(low, high)
        for _ in range(rng.integers(1, 5)):
            half = np.exp(rng.uniform(np.log(1.2), np.log(11.0), 3)) * [1, 1, 0.6]
            middle = centre + rng.normal(0, 5, 3)
            if _clear(middle - half, middle + half, flown):
                layer = texture.MOTTLE if rng.random() < 0.15 else texture.PANEL
                boxes.append(_box(middle - half, middle + half, layer, rng.uniform(0.26, 0.44)))
    return boxes


def _hangar(low: Array, high: Array, flown: Array, rng: np.random.Generator) -> list[Array]:
    """A concrete floor, numbered pillars up to the ceiling, boxes on the floor, and square lamps."""
    floor, ceiling = high[2], low[2]
    parts = [_box(np.array([*low[:2], floor]), np.array([*high[:2], floor + 0.1]), texture.PANEL, 0.14, 20.0)]
    for x in np.arange(low[0] + 6, high[0], 16.0):
        for y in np.arange(low[1] + 6, high[1], 12.0):
            middle = np.array([x, y]) + rng.uniform(-2, 2, 2)
            a, b = np.array([*(middle - 0.8), ceiling]), np.array([*(middle + 0.8), floor])
            if _clear(a, b, flown):
                parts.append(_box(a, b, texture.STATION, 0.45, 7.0))
            parts.append(_lamp(np.array([x + 8, y + 6, ceiling + 0.1])))
    for _ in range(40):
        half = rng.uniform(0.5, 3.0, 3) * [1, 1, 0.5]
        middle = np.array([*rng.uniform(low[:2], high[:2]), floor - half[2]])
        if _clear(middle - half, middle + half, flown):
            parts.append(_box(middle - half, middle + half, texture.PANEL, rng.uniform(0.2, 0.4)))
    return parts


def _lamp(centre: Array, half: float = 1.5, bar: float = 0.2) -> Array:
    """A white square ring that shines downward; solid vertices (24, 9)."""
    side = np.array([[-1, -1, 0], [-1, 1, 0], [1, 1, 0], [1, -1, 0]])
    a, b = centre + half * side, centre + (half - bar) * side
    p_w = np.stack([a, np.roll(a, -1, 0), np.roll(b, -1, 0), b], 1)
    return _surface(p_w, np.zeros((4, 4, 2)), texture.PLAIN, np.ones(3))


def _grid(low: Array, high: Array, pitch: float = 5.0) -> Floats:
    """Grey lines (n, 6) on floor, ceiling and walls."""
    lines = []
    for axis in range(3):
        i, j = [k for k in range(3) if k != axis]
        for along, across in ((i, j), (j, i)):
            steps = np.arange(low[across], high[across] + 1e-9, pitch)
            for wall in (low[axis], high[axis]):
                ends = np.empty((len(steps), 2, 3))
                ends[..., axis] = wall - (0.02 if axis == 2 and wall == high[2] else 0)  # just above a solid floor
                ends[..., across] = steps[:, None]
                ends[..., along] = [low[along], high[along]]
                lines.append(ends.reshape(-1, 3))
    p_w = np.concatenate(lines)
    return np.hstack([p_w, np.full_like(p_w, 0.38)]).astype(np.float32)


# --- added light ---


def _course(track: Track, gates: list[Gate]) -> Array:
    """A smooth line (n, 3) from the start through the visible gates, along each gate's axis."""
    level = matrix(track.start.q_wb)[:, 0] * [1, 1, 0]
    stations = [(track.start.p_wb, level), *((g.p_wg, g.R_wg[:, 0]) for g in gates)]
    if track.closed:
        stations.append(stations[1])
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


def _ribbon(course: Array, below_m: float = 0.5, half_m: float = 0.42) -> Array:
    """A cyan strip below the course; glow vertices (n, 8). It passes inside the openings, clear of their corners."""
    tangent = np.gradient(course, axis=0)
    right = np.cross([0.0, 0.0, 1.0], tangent)
    right *= half_m / np.maximum(np.linalg.norm(right, axis=1, keepdims=True), 1e-6)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(course, axis=0), axis=1))])
    edges = []
    for across in (-1.0, 1.0):
        p_w = course + across * right + [0, 0, below_m]
        edges.append(np.column_stack([p_w, np.full_like(along, across), along]))
    left, other = edges
    quads = np.stack([left[:-1], other[:-1], other[1:], left[1:]], 1)
    return _tinted(quads, (0.06, 0.75, 1.0))


def _reflection(gate: Gate, floor: float) -> Array:
    """The yellow streak on the floor before a gate; glow vertices (6, 8)."""
    forward = gate.R_wg[:, 0] * [1, 1, 0]
    right = np.cross([0.0, 0.0, 1.0], forward) * 0.15
    near, far = gate.p_wg - 0.3 * forward, gate.p_wg - 3.5 * forward
    p_w = np.stack([near - right, near + right, far + right, far - right])
    p_w[:, 2] = floor - 0.03
    quad = np.column_stack([p_w, [-1, 1, 1, -1], [0, 0, 3.2, 3.2]])
    return _tinted(quad[None], (2.5, 1.8, 0.1))


def _tinted(quads: Array, rgb: tuple[float, float, float]) -> Array:
    return _triangles(np.concatenate([quads, np.broadcast_to(rgb, (*quads.shape[:2], 3))], 2))
