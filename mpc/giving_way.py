"""Room for others on the line: the reference is led aside, at each stage by as much as where the other will be asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpc.problem.stage import REFERENCE
from vehicle.rotation import Array

P, V, GATE, ACROSS, DOWN = (REFERENCE[name].at for name in ("p", "v", "gate", "across", "down"))


@dataclass(frozen=True, slots=True)
class Tube:
    """Where somebody else will be: a moving bell, radius (1 - (s / length)^2)^2 wide at s m along one's own line.

    It is left and come back to without a bend, and holds a ball of its radius where it is twice as long.
    """

    times: Array  # (K,) s, rising
    p_w: Array  # (K, 3) m, centres then
    radius_m: float  # across the line, to keep one's centre out of
    length_m: float  # half of it, along the line, twice the radius at least
    side_w: Array  # (3,) unit vector: the side on which to stay

    def at(self, times: Array) -> Array:
        """Centres (M, 3) at times (M,) s; before the first and after the last it stands."""
        return np.stack([np.interp(times, self.times, p) for p in self.p_w.T], axis=1)


def aside(rows: Array, times: Array, tubes: Sequence[Tube]) -> Array:
    """Steps (M, 3) m that lead reference rows (M, NR), due at times (M,) s, out of the tubes.

    They run across the line alone, and never out of an opening or into the floor, where one binds.
    """
    steps = np.zeros((len(rows), 3))
    speed = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
    along = rows[:, V] / np.maximum(speed, 1.0)
    for tube in tubes:
        side = tube.side_w - along * (along @ tube.side_w)[:, None]
        side /= np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-6)
        off = rows[:, P] + steps - tube.at(times)
        before = np.einsum("ij,ij->i", off, along) / tube.length_m
        wide = tube.radius_m * np.maximum(1 - before**2, 0.0) ** 2
        steps += np.maximum(wide - np.einsum("ij,ij->i", off, side), 0.0)[:, None] * side * (wide > 0)[:, None]
    for axis in (rows[:, ACROSS], rows[:, DOWN]):
        line = np.einsum("ij,ij->i", rows[:, P] - rows[:, GATE], axis)
        most = np.maximum(np.abs(line), 1.0)
        beyond = line + np.einsum("ij,ij->i", steps, axis)
        beyond -= np.clip(beyond, -most, most)
        steps -= beyond[:, None] * axis / np.einsum("ij,ij->i", axis, axis)[:, None]
    return steps
