"""The plan as the controller reads it: dense, continuous in attitude, and sampled by progress along it."""

import numpy as np

from planner.plan import Plan
from vehicle.dynamics import RATES_U, RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

PARTS = 8  # points per interval of the plan: 5 ms apart, so that linear interpolation is good to 0.2 mm
PULL = 4.0  # 1/s, how fast progress follows the vehicle's place along the path
SLOWEST, FASTEST = 0.3, 1.5  # limits of d(progress)/dt: never at rest, or a vehicle on its pad would wait for itself
SPEED_FLOOR = 3.0  # m/s, below which a place along the path is too uncertain to steer by
P, Q, V = (RATES_X[name].at for name in "pqv")


class Reference:
    """Samples of a plan at any progress theta, in s of plan time. After the end it flies straight on."""

    def __init__(self, plan: Plan, vehicle: Vehicle):
        self._t, x, inputs = plan.dense(vehicle, PARTS)
        u = plan.commands(vehicle, x, inputs)
        flips = np.cumprod(np.where(np.sum(x[1:, Q] * x[:-1, Q], axis=1) < 0, -1.0, 1.0))
        x[1:, Q] *= flips[:, None]
        self._table = np.hstack([x[:, : V.stop], u])
        self.end = float(self._t[-1])

    def sample(self, theta: Array) -> Array:
        """Rows (M, 14): p, q, v and inputs at theta (M,)."""
        k = np.clip(np.searchsorted(self._t, theta, side="right") - 1, 0, len(self._t) - 2)
        s = np.clip((theta - self._t[k]) / (self._t[k + 1] - self._t[k]), 0.0, 1.0)[:, None]
        rows = (1 - s) * self._table[k] + s * self._table[k + 1]
        rows[:, V.stop :] = self._table[k, V.stop :]
        rows[:, Q] /= np.linalg.norm(rows[:, Q], axis=1, keepdims=True)
        rows[:, P] += np.maximum(theta - self.end, 0.0)[:, None] * rows[:, V]
        return rows

    def advance(self, theta: float, p_w: Array, dt: float) -> float:
        """Progress dt later: driven by time, drawn to where the vehicle is along the path, so that lost time is lost.

        Args:
            theta: s of plan time now.
            p_w: (3,) the vehicle's position at the time of theta + dt.
        """
        row = self.sample(np.array([theta + dt]))[0]
        v = row[V]
        lead = float((p_w - row[P]) @ v / max(v @ v, SPEED_FLOOR**2))  # s ahead of the reference
        return theta + dt * min(max(1.0 + PULL * lead, SLOWEST), FASTEST)


REFERENCE_COLUMNS = (*RATES_X.columns[: V.stop], *RATES_U.columns)
