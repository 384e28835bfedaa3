"""Furniture of the hangar: lamps that look like gates, pillars lit by gates, jets, trusses."""

import numpy as np

from gate_racer.sim.view import texture
from gate_racer.sim.view.light import pool
from gate_racer.sim.view.shapes import SQUARE, box, disc, lines, patch, polyline, surface
from gate_racer.vehicle.rotation import DOWN_W, Array

LAMP = 2.0  # shine above 1 marks a lamp, whose brightness is that of the look


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

    stations = (
        (7.0, 0.05, 1.5),
        (4.5, 0.5, 1.6),
        (2.0, 0.8, 1.8),
        (-5.0, 0.8, 1.7),
        (-7.0, 0.4, 1.7),
    )  # x, radius, height
    angle = np.arange(6) * np.pi / 3
    rings = [place([[x, r * np.cos(k), -h + 0.8 * r * np.sin(k)] for k in angle]) for x, r, h in stations]
    parts = []
    for a, b in zip(rings, rings[1:], strict=False):
        for k in range(6):
            shade = 0.17 + 0.06 * np.cos(angle[k] - np.pi / 2 + np.pi)  # lighter above
            parts.append(patch([a[k], a[k - 1], b[k - 1], b[k]], np.full(3, shade)))
    for side in (-1.0, 1.0):
        parts.append(
            patch(
                place([[2, side * 0.7, -1.7], [-2.5, side * 5, -1.6], [-4, side * 5, -1.6], [-4.5, side * 0.7, -1.7]]),
                np.full(3, 0.2),
            )
        )
        parts.append(
            patch(
                place([[-4, side * 0.6, -2.2], [-6, side * 1.3, -4], [-7, side * 1.3, -4], [-6.5, side * 0.6, -2.2]]),
                np.full(3, 0.22),
            )
        )
        parts.append(
            patch(
                place([[-1, side * 1, -1.2], [-1, side * 1.1, 0], [-1.2, side * 1.1, 0], [-1.2, side * 1, -1.2]]),
                np.full(3, 0.08),
            )
        )
    return parts


def truss(a: Array, b: Array, height: float = 1.0, pitch: float = 2.0) -> Array:
    """Return a lattice girder below the line from a to b (3,) m: two chords and a zigzag; line vertices."""
    n = max(int(np.linalg.norm(b - a) / pitch), 1)
    zigzag = np.linspace(a, b, n + 1) + np.where(np.arange(n + 1) % 2, height, 0.0)[:, None] * DOWN_W
    chords = lines([a, b, a + height * DOWN_W, b + height * DOWN_W], (0.3, 0.3, 0.3))
    return np.concatenate([chords, polyline(zigzag, (0.16, 0.16, 0.16))])
