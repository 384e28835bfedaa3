"""A rival's position relative to the own plan, and its prediction: it flies the same course at its own pace and offset."""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.mpc.giving_way import P, V, carried
from gate_racer.mpc.reference import Reference
from gate_racer.vehicle.rotation import Array

SPEED_FLOOR = 3.0  # m/s, speed below which a ratio of speeds is not meaningful
SEARCH_S = 1.0  # s of plan time before and behind the own position, in which a rival is located
DRIFT_S = 0.3  # s for which a motion across the line is extrapolated
RETURN_S = 1.0  # s, time constant with which a rival returns to the line


@dataclass(frozen=True, slots=True)
class PathState:
    """A rival's position and motion relative to the own plan."""

    theta: float  # s of plan time
    pace: float  # plan time over time
    off_w: Array  # (3,) m, from the line
    drift_w: Array  # (3,) m/s, across it

    def after(self, dt: float) -> "PathState":
        """Return the prediction dt (s) later, without a measurement."""
        off_w = (self.off_w + min(dt, DRIFT_S) * self.drift_w) * math.exp(-dt / RETURN_S)
        return PathState(self.theta + self.pace * dt, self.pace, off_w, np.zeros(3) if dt > DRIFT_S else self.drift_w)

    def at(self, line: Reference, since: Array) -> Array:
        """Return the predicted positions (M, 3) m, since (M,) s from now: constant pace, decaying offset from the line."""
        rows: Array = line.sample(self.theta + self.pace * since)
        off = carried(rows, self.off_w) + np.minimum(since, DRIFT_S)[:, None] * self.drift_w
        return rows[:, P] + off * np.exp(-since / RETURN_S)[:, None]


def locate(line: Reference, p_w: Array, v_w: Array, theta: float) -> PathState:
    """Return the position and motion of a rival at p_w (3,) m with v_w (3,) m/s along the plan near theta (s)."""
    thetas = np.maximum(theta + np.linspace(-SEARCH_S, SEARCH_S, 81), 0.0)
    rows = line.sample(thetas)
    off = p_w - rows[:, P]
    against = np.maximum(-(rows[:, V] @ v_w), 0.0)  # the course may cross itself
    k = int(np.argmin(np.einsum("ij,ij->i", off, off) + against))
    v = rows[k, V]
    square = float(v @ v) + SPEED_FLOOR**2
    step = float(off[k] @ v) / square
    pace = (float(v_w @ v) + SPEED_FLOOR**2) / square
    return PathState(float(thetas[k]) + step, pace, off[k] - step * v, v_w - pace * v)
