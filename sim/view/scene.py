"""`Scene`: geometry of the rendered world in world NED, built from a track, a style and a seed.

A solid vertex is position (3, m), texture coordinate (2), layer, colour (3, RGB 0 to 1) and shine (0 lit, 1 luminous).

The appearance follows the qualifier's simulator: glowing orange gates, a dark hall, a cyan ribbon along the course. The halls
are those of its two courses: a black room with a grid and floating grey boxes, and a hangar with lamps that look like gates,
pillars lit by gates, jets and trusses. Both fill the bounds of the course, so that the visible walls are the bounds. Furniture
keeps clear of the straight lines start-gate-gate and does not collide; only the track's own obstacles are solid.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gate_racer.sim.traffic import Rival
from gate_racer.sim.view import texture
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Obstacle, Track
from gate_racer.vehicle.rotation import DOWN_W, Array, Vector, matrix

Floats = NDArray[np.float32]

SOLID, LINE = 10, 6  # floats per vertex
LIGHT = ((0.75, 0.6), (0.9, 0.65), (1.0, 0.35))  # brightness of a box's faces towards -x, +x; -y, +y; up, down
SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def stack(parts: list[Array], width: int) -> Floats:
    """Concatenate vertices to (n, width) float32; an empty list gives n = 0."""
    return np.concatenate([np.empty((0, width)), *parts]).astype(np.float32)


def triangles(quads: Array) -> Array:
    """Split quads (n, 4, k) into two triangles each, (6 n, k)."""
    return quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, quads.shape[-1])


def surface(p_w: Array, uv: Array, layer: int, rgb: ArrayLike, shine: float = 0.0) -> Array:
    """Return solid vertices (6 n, 10) of quads p_w (n, 4, 3), clockwise as seen, with uv (n, 4, 2) and one colour."""
    constant = np.broadcast_to([layer, *np.asarray(rgb, float), shine], (*p_w.shape[:2], 5))
    return triangles(np.concatenate([p_w, uv, constant], 2))


def _unit_box() -> Array:
    """Return the vertices (36, 8) of the unit box: corner (3), uv (2), the axes that uv run along (2), brightness."""
    faces = []
    for axis, end in itertools.product(range(3), (0, 1)):
        i, j = [k for k in range(3) if k != axis]
        corners = np.zeros((4, 3))
        corners[:, axis], corners[[1, 2], i], corners[[2, 3], j] = end, 1, 1
        uv = corners[:, [i, j]]
        turned = (axis == 1) == (end == 1)  # orientation of the corners as seen from outside
        if axis < 2 and not turned:  # so that writing reads from left to right
            uv[:, 0] = 1 - uv[:, 0]
        face = np.column_stack([corners, uv, np.tile([i, j, LIGHT[axis][end]], (4, 1))])
        faces.append(face if turned else face[[0, 3, 2, 1]])
    return triangles(np.array(faces))


UNIT_BOX = _unit_box()
CORNER, UV, UV_AXES, BRIGHTNESS = UNIT_BOX[:, :3], UNIT_BOX[:, 3:5], UNIT_BOX[:, 5:7].astype(int), UNIT_BOX[:, 7:]


def box(low: ArrayLike, high: ArrayLike, layer: int, grey: float, tile_m: float = 6.0) -> Array:
    """Return solid vertices (36, 10) of an axis-aligned box, lit from above."""
    low, size = np.asarray(low, float), np.subtract(high, low)
    tiles = np.maximum(np.round(size / tile_m), 1)
    solid = np.zeros((len(UNIT_BOX), SOLID))
    solid[:, :3] = low + CORNER * size
    solid[:, 3:5] = UV * tiles[UV_AXES]
    solid[:, 5], solid[:, 6:9] = layer, grey * BRIGHTNESS
    return solid


def patch(corners_w: ArrayLike, rgb: ArrayLike, shine: float = 0.0) -> Array:
    """Return solid vertices (12, 10) of one plain quad (4, 3), visible from both sides."""
    solid = surface(np.asarray(corners_w, float)[None], np.zeros((1, 4, 2)), texture.PLAIN, rgb, shine)
    return np.concatenate([solid, solid.reshape(-1, 3, SOLID)[:, ::-1].reshape(-1, SOLID)])


def disc(centre_w: Array, right_w: Array, up_w: Array, rgb: ArrayLike, shine: float = 1.0) -> Array:
    """Return solid vertices of a disc with 16 corners, visible from both sides; right_w, up_w (3,) m: its half-axes."""
    angle = np.linspace(0, 2 * np.pi, 17)
    rim = centre_w + np.cos(angle)[:, None] * right_w + np.sin(angle)[:, None] * up_w
    return np.concatenate(
        [patch([centre_w, a, (a + b) / 2, b], rgb, shine) for a, b in zip(rim, rim[1:], strict=False)]
    )


def lines(ends_w: ArrayLike, rgb: ArrayLike) -> Array:
    """Return line vertices (n, 6) of segments between consecutive pairs of points (n, 3)."""
    p_w = np.asarray(ends_w, float).reshape(-1, 3)
    return np.hstack([p_w, np.broadcast_to(np.asarray(rgb, float), p_w.shape)])


def drawn_gates(track: Track) -> list[Gate]:
    """Return the gates that are rendered: visible square gates, each once; no balls and no openings of another shape."""
    gates = [track.gates[i] for i in sorted(set(track.landmarks))]
    return [gate for gate in gates if gate.visible and gate.outer_m > gate.opening_m > 0]


def hole_m(gate: Gate, style: RenderingStyle) -> float:
    """Return the side of the visible hole in the front and rear face, m."""
    return gate.opening_m - style.outline_m


def gate_solid(gate: Gate, style: RenderingStyle) -> Array:
    """Return a square ring of depth `style.depth_m` centred on the gate's plane; solid vertices (n, 10)."""
    rings = {}
    for name, x in (("front", -style.depth_m / 2), ("back", style.depth_m / 2)):
        for what, length in (("outer", gate.outer_m), ("inner", hole_m(gate, style))):
            rings[name, what] = np.column_stack([np.full(4, x), SQUARE / 2 * length])
    strips = [
        (rings["front", "outer"], rings["front", "inner"], texture.GATE),
        (rings["back", "inner"], rings["back", "outer"], texture.GATE),
        (rings["back", "outer"], rings["front", "outer"], texture.REVEAL),
        (rings["front", "inner"], rings["back", "inner"], texture.REVEAL),
    ]
    parts = []
    for a, b, layer in strips:
        p_g = np.stack([a, np.roll(a, -1, 0), np.roll(b, -1, 0), b], 1)
        if layer == texture.REVEAL:
            uv = np.broadcast_to(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), (4, 4, 2))
        else:
            uv = p_g[..., 1:] / gate.outer_m + 0.5
            if (p_g[..., 0] > 0).all():  # mirrored at the back, so that the lettering reads correctly from there
                uv[..., 0] = 1 - uv[..., 0]
        parts.append(surface(gate.p_wg + p_g @ gate.R_wg.T, uv, layer, np.ones(3), 1.0))
    return np.concatenate(parts)


BODY, ROTOR = 0.12, (0.2, 0.2, 0.22)  # brightness and colour
TAIL = (0.8, 0.05, 0.05)  # RGB of the tail light


@cache
def mesh(body_m: Vector) -> Array:
    """Return solid vertices (n, 10), body FRD."""
    a, b, c = (side / 2 for side in body_m)
    parts = [box((-0.5 * a, -0.3 * b, -0.5 * c), (0.5 * a, 0.3 * b, 0.5 * c), texture.PLAIN, BODY)]
    radius = 0.45 * min(a, b)
    for x in (-a + radius, a - radius):
        for y in (-b + radius, b - radius):
            hub = np.array([x, y, -0.5 * c])
            across = 0.1 * radius * np.array([-y, x, 0.0]) / np.hypot(x, y)
            parts.append(patch([across, -across, hub - across, hub + across], np.full(3, BODY)))
            parts.append(disc(hub - [0, 0, 0.1 * c], np.array([radius, 0, 0]), np.array([0, radius, 0]), ROTOR, 0.0))
    parts.append(disc(np.array([-0.52 * a, 0, 0]), np.array([0, 0.2 * b, 0]), np.array([0, 0, 0.2 * c]), TAIL))
    return np.concatenate(parts)


def quadrotors(rivals: Sequence[Rival]) -> Floats:
    """Return solid vertices (n, 10) of all rivals, world NED."""
    parts = []
    for rival in rivals:
        placed = mesh(rival.body_m).copy()
        placed[:, :3] = rival.p_wb + placed[:, :3] @ matrix(rival.q_wb).T
        parts.append(placed)
    return stack(parts, SOLID)


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
        begin = (1 + 2 * s) * (1 - s) ** 2 * p0 + s * (1 - s) ** 2 * reach * x0  # cubic Hermite
        legs.append(begin + s**2 * (3 - 2 * s) * p1 + s**2 * (s - 1) * reach * x1)
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
    p_w = np.column_stack([POOL_HALF_M * SQUARE, np.zeros(4)]) + np.asarray(foot_w, float)
    constant = [*np.asarray(foot_w, float), half_m, -np.sin(yaw_rad), np.cos(yaw_rad), *np.asarray(rgb)]
    return triangles(np.column_stack([p_w, np.broadcast_to(constant, (4, 9))])[None])


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


LAMP = 2.0  # shine above 1 marks a lamp, whose brightness is that of the style


def ceiling_lamp(centre: Array, half: float = 1.4, bar: float = 0.12) -> Array:
    """Return a white square ring that faces downward: four solid quads (24, 10)."""
    ring = np.column_stack([SQUARE[:, 1], SQUARE[:, 0], np.zeros(4)])
    a, b = centre + half * ring, centre + (half - bar) * ring
    p_w = np.stack([a, np.roll(a, -1, 0), np.roll(b, -1, 0), b], 1)
    return surface(p_w, np.zeros((4, 4, 2)), texture.PLAIN, np.ones(3), LAMP)


def pillar(low: Array, high: Array, gate_m: float, rng: np.random.Generator) -> list[Array]:
    """Return a numbered pillar; near a gate (`gate_m`, m) one face is lit red, elsewhere some have a face lit yellow."""
    shaft = box(low, high, texture.STATION, 0.5, 13.0)
    shaft[:, 3] = (shaft[:, 3] + rng.integers(texture.STATIONS)) / texture.STATIONS
    parts = [shaft]
    if gate_m < 9.0:
        rgb = np.array([0.28, 0.05, 0.03])
    elif rng.random() < 0.3:
        rgb = np.array([0.34, 0.2, 0.05])
    else:
        return parts
    axis, end = int(rng.integers(2)), int(rng.integers(2))
    face = np.array([low, low, high, high])  # two corners at the top, two at the bottom
    other = 1 - axis
    face[:, axis] = low[axis] - 0.02 if end == 0 else high[axis] + 0.02
    face[:, other] = [low[other], high[other], high[other], low[other]]
    lit = patch(face, rgb, 1.0)
    lit[:, 6:9] *= 0.15 + 0.85 * ((lit[:, 2:3] - low[2]) / (high[2] - low[2])) ** 2  # lit from below
    return [*parts, lit]


def start_lamp(pad_w: Array, ahead: Array, side: float, floor: float) -> tuple[list[Array], Array]:
    """Return a traffic light on a tripod beside the start, green on and red off, and its light pool on the floor."""
    across = np.cross(DOWN_W, ahead)
    foot = pad_w + 4.2 * ahead + side * 1.55 * across
    foot[2] = floor
    centre = foot - 1.05 * DOWN_W
    half = np.abs(0.13 * across) + np.abs(0.06 * ahead) + 0.3 * DOWN_W
    parts = [box(centre - half, centre + half, texture.PLAIN, 0.05)]
    front = centre - (np.abs(half * ahead).sum() + 0.02) * ahead  # the housing is aligned with the world's axes
    parts.append(disc(front + 0.13 * DOWN_W, 0.11 * across, 0.11 * DOWN_W, (0.1, 1.0, 0.2), LAMP))
    parts.append(disc(front - 0.13 * DOWN_W, 0.11 * across, 0.11 * DOWN_W, (0.22, 0.02, 0.02), LAMP))
    neck, w = centre + 0.3 * DOWN_W, 0.02 * across
    for reach in (-0.3, 0.0, 0.3):
        toe = foot + reach * across + 0.1 * ahead
        parts.append(patch([neck - w, neck + w, toe + w, toe - w], (0.06, 0.06, 0.06)))
    return parts, pool([*foot[:2], floor - 0.02], 0.0, 0.0, (0.05, 0.5, 0.1))


def aircraft(foot: Array, heading: float) -> list[Array]:
    """Return a coarse parked jet of 14 m: six-sided fuselage, wings, tails; its wheels stand on `foot` (3,) m."""
    c, s = np.cos(heading), np.sin(heading)
    R = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])

    def place(points: list[list[float]]) -> Array:
        return foot + np.array(points) @ R.T

    # x, radius, height
    stations = (7.0, 0.05, 1.5), (4.5, 0.5, 1.6), (2.0, 0.8, 1.8), (-5.0, 0.8, 1.7), (-7.0, 0.4, 1.7)
    angle = np.arange(6) * np.pi / 3
    rings = [place([[x, r * np.cos(k), -h + 0.8 * r * np.sin(k)] for k in angle]) for x, r, h in stations]
    parts = []
    for a, b in zip(rings, rings[1:], strict=False):
        for k in range(6):
            shade = 0.17 + 0.06 * np.cos(angle[k] - np.pi / 2 + np.pi)  # lighter above
            parts.append(patch([a[k], a[k - 1], b[k - 1], b[k]], np.full(3, shade)))
    for s in (-1.0, 1.0):
        for points, grey in (
            ([[2, s * 0.7, -1.7], [-2.5, s * 5, -1.6], [-4, s * 5, -1.6], [-4.5, s * 0.7, -1.7]], 0.2),  # wing
            ([[-4, s * 0.6, -2.2], [-6, s * 1.3, -4], [-7, s * 1.3, -4], [-6.5, s * 0.6, -2.2]], 0.22),  # tail
            ([[-1, s * 1, -1.2], [-1, s * 1.1, 0], [-1.2, s * 1.1, 0], [-1.2, s * 1, -1.2]], 0.08),  # wheel
        ):
            parts.append(patch(place(points), np.full(3, grey)))
    return parts


def truss(a: Array, b: Array, height: float = 1.0, pitch: float = 2.0) -> Array:
    """Return a lattice girder below the line from a to b (3,) m: two chords and a zigzag; line vertices."""
    n = max(int(np.linalg.norm(b - a) / pitch), 1)
    zigzag = np.linspace(a, b, n + 1) + np.where(np.arange(n + 1) % 2, height, 0.0)[:, None] * DOWN_W
    chords = lines([a, b, a + height * DOWN_W, b + height * DOWN_W], (0.3, 0.3, 0.3))
    return np.concatenate([chords, lines(np.stack([zigzag[:-1], zigzag[1:]], 1), (0.16, 0.16, 0.16))])


CLEARANCE_M = 4.0  # m, least distance of furniture from the straight lines start-gate-gate (chosen)
GREY, YELLOW, PURPLE = (0.38, 0.38, 0.38), (0.36, 0.33, 0.0), (0.05, 0.03, 0.07)


@dataclass
class Hall:
    """Vertices of a hall and its furniture."""

    solids: list[Array] = field(default_factory=list)
    lines: list[Array] = field(default_factory=list)
    pools: list[Array] = field(default_factory=list)


def flown(track: Track) -> Array:
    """Return points (n, 3) m, at most 0.5 m apart, on the straight lines start-gate-gate."""
    gates = track.gates + (track.gates[:1] if track.closed else ())
    legs = pairwise([track.start.p_wb, *(gate.p_wg for gate in gates)])
    return np.concatenate([np.linspace(a, b, int(np.ceil(np.linalg.norm(b - a) / 0.5)) + 1) for a, b in legs])


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
                gate_m = min((float(np.linalg.norm(gate.p_wg[:2] - middle)) for gate in gates), default=np.inf)
                hall.solids += pillar(a, b, gate_m, rng)
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


HANGAR_HEIGHT_M = 20.0  # m, height of the bounds below which a course is taken to be in a hangar


@dataclass(frozen=True)
class Scene:
    """Vertices in draw order, float32."""

    solids: Floats  # (n, 10)
    lines: Floats  # (n, 6); added light
    corridor: Floats  # (n, 5); added light
    pools: Floats  # (n, 12); added light
    layers: NDArray[np.uint8]  # (k, side, side, 3) RGB, row 0 at the top


def build(track: Track, style: RenderingStyle, seed: int, gates_only: bool = False) -> Scene:
    """Build the scene of a track, without balls and invisible gates. `gates_only`: the gates alone, on black."""
    gates = drawn_gates(track)
    opening, outer_m = (hole_m(gates[0], style) / gates[0].outer_m, gates[0].outer_m) if gates else (0.5, 1.0)
    layers = texture.layers(seed, opening, (style.outline_m / outer_m, style.outline_m / max(style.depth_m, 1e-6)))
    solids, hall, ribbon = [gate_solid(gate, style) for gate in gates], Hall(), list[Array]()
    if not gates_only:
        hall = hall_of(track, style, seed)
        solids += [*hall.solids, pad(track.start.p_wb), *map(obstacle, track.obstacles)]
        ribbon = [corridor(course(track, gates), style.corridor_half_m)] if gates else []
    return Scene(
        stack(solids, SOLID), stack(hall.lines, LINE), stack(ribbon, CORRIDOR), stack(hall.pools, POOL), layers
    )


def hall_of(track: Track, style: RenderingStyle, seed: int) -> Hall:
    """Return the hall of a style; with world `course` the hangar where the course is low."""
    low = track.bounds.high_m[2] - track.bounds.low_m[2] < HANGAR_HEIGHT_M
    furnish = hangar if style.world == "hangar" or (style.world == "course" and low) else neon
    return furnish(track, drawn_gates(track), np.random.default_rng(seed))


def obstacle(solid: Obstacle) -> Array:
    """Return one of the track's solid boxes: sheet metal, lighter than the furniture."""
    return box(solid.low_m, solid.high_m, texture.PANEL, 0.42, 3.0)


def pad(p_wb: Array, half: float = 0.2) -> Array:
    """Return the start pad: a dark block, its top 0.1 m below the vehicle's centre, too small to fill the camera's view."""
    size = np.array([half, half, 0.15])
    centre = p_wb + np.array([0, 0, 0.1 + size[2]])
    return box(centre - size, centre + size, texture.PLAIN, 0.1)
