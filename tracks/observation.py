"""Observations and actions of a policy (Swift: Kaufmann et al., Nature 620:982, 2023, Methods, "Observations, actions, rewards").

An observation (31,) is position, velocity and rotation matrix, the corners of the next gate's opening relative to the vehicle in
body FRD (the paper does not state the axes), and the last action. An action (4,) in -1..1 is mass-normalised thrust from zero to
the largest, and body rates between their limits. `sim.environment` computes the same for many vehicles at once.
"""

from typing import NamedTuple

import numpy as np

from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X, layout
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import Vehicle

OBSERVATION = layout(
    p=("x y z", "half the bounds", "world NED, from their middle"),
    v=("x y z", "the vehicle's greatest speed", "world NED"),
    R=("xx xy xz yx yy yz zx zy zz", "-", "R_wb, row by row"),
    corner=("x1 y1 z1 x2 y2 z2 x3 y3 z3 x4 y4 z4", "half the bounds' diagonal", "body FRD, as of `Gate.corners`"),
    action=("c x y z", "-", "as of ACTION"),
)
ACTION = layout(
    c=("", "-", "thrust over mass: -1 is none, 1 the vehicle's greatest"),
    w=("x y z", "-", "body rates over their limits"),
)
P, Q, V = (RATES_X[name].at for name in "pqv")


class Scaling(NamedTuple):
    """Scaling of observations and actions to about -1..1."""

    middle_m: Array  # (3,) m, centre of the bounds, world NED
    half_m: Array  # (3,) m, half sides of the bounds
    speed_m_s: float  # m/s
    thrust_max_m_s2: float  # m/s^2
    rate_max_rad_s: Array  # (3,) rad/s

    @classmethod
    def of(cls, track: Track, vehicle: Vehicle) -> "Scaling":
        low, high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        limits = vehicle.speed_max_m_s, vehicle.thrust_max, np.array(vehicle.rate_max_rad_s)
        return cls((low + high) / 2, (high - low) / 2, *limits)

    @property
    def reach_m(self) -> float:
        """Scale of the corners, m."""
        return float(np.linalg.norm(self.half_m))

    @property
    def hover(self) -> Array:
        """Action (4,) of hover: thrust equal to weight, zero body rates."""
        return np.array([2 * GRAVITY / self.thrust_max_m_s2 - 1, 0.0, 0.0, 0.0])

    def observation(self, x: Array, corners_w: Array, action: Array) -> Array:
        """Return the observation (31,) of a state x (>= 10,) RATES_X, the next gate's corners (4, 3), m, and last action (4,)."""
        R_wb = matrix(x[Q])
        corners_b = (corners_w - x[P]) @ R_wb
        place, motion = (x[P] - self.middle_m) / self.half_m, x[V] / self.speed_m_s
        return np.concatenate([place, motion, R_wb.ravel(), corners_b.ravel() / self.reach_m, action])

    def input(self, action: Array) -> Array:
        """Return the input (4,), RATES_U, body rates, rad/s, and thrust, m/s^2, of an action (4,)."""
        return np.append(action[1:] * self.rate_max_rad_s, 0.5 * (action[0] + 1) * self.thrust_max_m_s2)
