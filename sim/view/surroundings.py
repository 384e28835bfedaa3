"""Geometry for ray casting: the solids of the course and the boxes of the hall's furniture, which does not collide."""

from dataclasses import dataclass

import numpy as np

from gate_racer.sim.physics.contact import Colliders, Solids
from gate_racer.sim.view.look import Look
from gate_racer.sim.view.scene import furniture
from gate_racer.sim.view.shapes import SOLID
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

BOX_VERTICES = 36  # vertices of `sim.view.shapes.box`
FLAT_M = 0.05  # m, thickness assigned to a plain quad
GOLDEN = (5**0.5 - 1) / 2  # step of the hue, which keeps consecutive colours apart


@dataclass(frozen=True)
class Surroundings:
    """Boxes and the number of distinct objects; all furniture counts as one object."""

    solids: Solids
    things: int

    def colours(self) -> np.ndarray:
        """Return the segmentation colours (things + 1, 3), BGR, 8 bit; the last, black, is the background."""
        hue = (np.arange(self.things) * GOLDEN) % 1.0
        channels = [np.clip(np.abs((hue * 6 + shift) % 6 - 3) - 1, 0, 1) for shift in (4, 2, 0)]  # blue, green, red
        return np.vstack([(64 + 191 * np.stack(channels, -1)).astype(np.uint8), np.zeros((1, 3), np.uint8)])


def surroundings(track: Track, look: Look, seed: int) -> Surroundings:
    """Return the boxes of a course as rendered with a look and a seed. Parts not axis-aligned boxes or quads are left out."""
    colliders = Colliders(track)
    course, scenery = colliders.solids, len(colliders.things)
    boxes = [edges for part in furniture(track, look.varied(seed), seed) if (edges := _edges(part)) is not None]
    if not boxes:
        return Surroundings(course, scenery)
    low, high = (np.array(ends) for ends in zip(*boxes, strict=True))
    drawn = Solids(
        (low + high) / 2,
        np.tile(np.eye(3), (len(low), 1, 1)),
        np.maximum((high - low) / 2, FLAT_M / 2),
        np.full(len(low), scenery),
    )
    joined = (np.concatenate([known, more]) for known, more in zip(course, drawn, strict=True))
    return Surroundings(Solids(*joined), scenery + 1)


def _edges(part: Array) -> tuple[Array, Array] | None:
    """Return the lowest and highest corner of an axis-aligned box or quad; None for other shapes."""
    p_w = part.reshape(-1, SOLID)[:, :3]
    low, high = p_w.min(0), p_w.max(0)
    if len(p_w) == BOX_VERTICES:
        at_corners = np.isclose(p_w, low) | np.isclose(p_w, high)
        return (low, high) if at_corners.all() else None
    return (low, high) if (high - low).min() < FLAT_M else None
