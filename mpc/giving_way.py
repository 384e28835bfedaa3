"""Room for others on the line: the reference is led aside, at each stage by as much as where the other will be asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpc.problem.stage import REFERENCE
from vehicle.rotation import Array

PREDICTED_S = 0.5  # for which an acceleration is believed; then the velocity stays
P, V = REFERENCE["p"].at, REFERENCE["v"].at


@dataclass(frozen=True, slots=True)
class Tube:
    """Where somebody else will be: a ball that moves on from a time t (s)."""

    t: float
    p_w: Array  # (3,) m
    v_w: Array  # (3,) m/s
    a_w: Array  # (3,) m/s^2
    radius_m: float  # to keep one's centre out of
    side_w: Array  # (3,) unit vector: the side on which to stay

    def at(self, times: Array) -> Array:
        """Centres (M, 3) at times (M,) s."""
        since = np.maximum(times - self.t, 0.0)[:, None]
        short = np.minimum(since, PREDICTED_S)
        return self.p_w + since * self.v_w + (since - short / 2) * short * self.a_w


def aside(rows: Array, times: Array, tubes: Sequence[Tube]) -> Array:
    """Steps (M, 3) m that lead reference rows (M, NR), due at times (M,) s, out of the tubes; across the line alone."""
    steps = np.zeros((len(rows), 3))
    speed = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
    along = rows[:, V] / np.maximum(speed, 1.0)
    for tube in tubes:
        side = tube.side_w - along * (along @ tube.side_w)[:, None]
        side /= np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-6)
        off = rows[:, P] + steps - tube.at(times)
        before = np.einsum("ij,ij->i", off, along)
        wide = np.sqrt(np.maximum(tube.radius_m**2 - before**2, 0.0))
        steps += np.maximum(wide - np.einsum("ij,ij->i", off, side), 0.0)[:, None] * side * (wide > 0)[:, None]
    return steps
