"""Mesh of a rival: a dark body, four arms and grey discs, the size of its colliding box, and a red tail light."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from gate_racer.sim.heat.traffic import Rival
from gate_racer.sim.view import texture
from gate_racer.sim.view.shapes import SOLID, Floats, box, disc, patch, stack
from gate_racer.vehicle.rotation import Array, Vector, matrix

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
            rim = disc(hub - [0, 0, 0.1 * c], np.array([radius, 0, 0]), np.array([0, radius, 0]), ROTOR, 0.0)
            parts.append(rim)
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
