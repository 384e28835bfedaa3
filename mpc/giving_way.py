"""Avoidance of other vehicles: the reference is displaced at each stage, out of the tube around the other's predicted path."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpc.problem.stage import REFERENCE
from vehicle.rotation import Array

P, V, GATE, ACROSS, DOWN = (REFERENCE[name].at for name in ("p", "v", "gate", "across", "down"))
UNBOUNDED: Array = np.array([[-np.inf] * 3, [np.inf] * 3])
ROUND = 4.0  # slope with which a step goes to none from the greatest, two radii


@dataclass(frozen=True, slots=True)
class AvoidanceTube:
    """Predicted path of another vehicle, kept clear by a bell of half width radius (1 - (s / length)^2)^2 at s m along the line.

    The bell has zero slope at both ends, and contains a ball of its radius if `length_m` is at least twice the radius.
    """

    times: Array  # (K,) s, rising
    p_w: Array  # (K, 3) m, centres at these times
    radius_m: float  # m, distance across the line that the own centre keeps
    length_m: float  # m, half length along the line
    side_w: Array  # (3,) unit vector, side on which to stay, given at the first reference row
    box_w: Array = field(default_factory=lambda: UNBOUNDED)  # (2, 3) m, bounds of the reference

    def at(self, times: Array) -> Array:
        """Return centres (M, 3) at times (M,), s, held constant before the first and after the last."""
        return np.stack([np.interp(times, self.times, p) for p in self.p_w.T], axis=1)


def carried(rows: Array, vector_w: Array) -> Array:
    """Transport a vector (3,) from the first reference row (M, NR) along the line, (M, 3).

    The frame turns with the line and never about it (relatively parallel frame; Bishop, 1975), so that a side of the line stays
    the same through bends and inverted flight.
    """
    v = rows[:, V]
    along = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-6)
    if len(along) > 1 and not along[0].any():
        along[0] = along[1]  # at rest
    across = np.zeros_like(along)
    x, y, z = np.eye(3)[np.abs(along[0]).argmin()].tolist()
    for k, (u, v, w) in enumerate(along.tolist()):
        part = u * x + v * y + w * z
        x, y, z = x - part * u, y - part * v, z - part * w
        length = max(math.sqrt(x * x + y * y + z * z), 1e-9)
        x, y, z = x / length, y / length, z / length
        across[k] = x, y, z
    frames = np.stack([along, across, np.cross(along, across)], axis=2)
    return np.asarray(frames @ (frames[0].T @ vector_w))


def aside(rows: Array, times: Array, tubes: Sequence[AvoidanceTube]) -> Array:
    """Return displacements (M, 3) m that take reference rows (M, NR), due at times (M,) s, out of the tubes.

    They are perpendicular to the line and respect the tubes' boxes and, where one is a constraint, the opening or the floor.
    """
    steps = np.zeros((len(rows), 3))
    if not tubes:
        return steps
    speed = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
    along = rows[:, V] / np.maximum(speed, 1.0)
    for tube in tubes:
        side = carried(rows, tube.side_w)
        side -= along * np.einsum("ij,ij->i", along, side)[:, None]
        side /= np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-6)
        off = rows[:, P] + steps - tube.at(times)
        before = np.einsum("ij,ij->i", off, along) / tube.length_m
        wide = tube.radius_m * np.maximum(1 - before**2, 0.0) ** 2
        clear = np.einsum("ij,ij->i", off, side)
        step = np.minimum(wide - clear, ROUND * (clear + 1.5 * wide))  # who is far out on that side is not gone round
        steps += np.maximum(step, 0.0)[:, None] * side
        low, high = np.minimum(tube.box_w[0], rows[:, P]), np.maximum(tube.box_w[1], rows[:, P])
        steps = np.clip(rows[:, P] + steps, low, high) - rows[:, P]
    for axis in (rows[:, ACROSS], rows[:, DOWN]):
        line = np.einsum("ij,ij->i", rows[:, P] - rows[:, GATE], axis)
        most = np.maximum(np.abs(line), 1.0)
        beyond = line + np.einsum("ij,ij->i", steps, axis)
        beyond -= np.clip(beyond, -most, most)
        steps -= beyond[:, None] * axis / np.einsum("ij,ij->i", axis, axis)[:, None]
    return steps
