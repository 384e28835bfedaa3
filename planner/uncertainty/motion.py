"""Motion of a plan at the IMU's samples, and the screens that may hide its gates.

Screens: what may stand between the camera and a gate, frames of other gates as flat as their planes, and obstacles.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.planner.models import C, P, Q, V, W
from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import Vehicle

PARTS = 4  # points per interval of the plan, between which states are interpolated linearly


@dataclass(frozen=True, eq=False)
class Motion:
    """Motion at M times, world NED, body FRD."""

    t: Array  # (M,) s
    p_w: Array  # (M, 3) m
    v_w: Array  # (M, 3) m/s
    a_w: Array  # (M, 3) m/s^2, acceleration, gravity included
    thrust_w: Array  # (M, 3) m/s^2, of the rotors alone
    R_wb: Array  # (M, 3, 3)
    omega_b: Array  # (M, 3) rad/s

    @property
    def force_b(self) -> Array:
        """Specific force (M, 3), m/s^2, the reading of an ideal accelerometer."""
        return np.asarray(((self.a_w - [0.0, 0.0, GRAVITY])[:, None] @ self.R_wb)[:, 0])


def motion(plan: Plan, vehicle: Vehicle, hz: float) -> Motion:
    """Sample the motion of a plan at `hz` from its start to its end."""
    t, x, u = plan.dense(vehicle, PARTS)
    model = plan.flight_model(vehicle)
    a_w = np.array(model.derivative(list(x.T), list(u.T))[V]).T
    flips = np.cumprod(np.where(np.sum(x[1:, Q] * x[:-1, Q], axis=1) < 0, -1.0, 1.0))
    x[1:, Q] *= flips[:, None]
    thrust = x[:, C] if "c" in model.x else model.commands(x, u)[:, 3:]
    at = np.arange(plan.t[0], plan.t[-1], 1 / hz)

    def sampled(columns: Array) -> Array:
        return np.column_stack([np.interp(at, t, column) for column in columns.T])

    q = sampled(x[:, Q])
    R_wb = np.array([matrix(one) for one in q / np.linalg.norm(q, axis=1, keepdims=True)])
    thrust_w = -sampled(thrust) * R_wb[:, :, 2]
    return Motion(at, sampled(x[:, P]), sampled(x[:, V]), sampled(a_w), thrust_w, R_wb, sampled(x[:, W]))


SHORT = 0.98  # -, fraction of a line of sight on which it may be cut: a gate's own frame is at its end


class Screens:
    """Frames and obstacles of a track."""

    def __init__(self, track: Track):
        frames = [gate for gate in track.gates if gate.has_frame]
        self._p_wg = np.reshape([gate.p_wg for gate in frames], (-1, 3))
        self._R_wg = np.reshape([gate.R_wg for gate in frames], (-1, 3, 3))
        self._inner_m = np.array([gate.opening_m / 2 for gate in frames])[:, None]
        self._outer_m = np.array([gate.outer_m / 2 for gate in frames])[:, None]
        self._low = np.reshape([solid.low_m for solid in track.obstacles], (-1, 1, 3))
        self._high = np.reshape([solid.high_m for solid in track.obstacles], (-1, 1, 3))

    def hide(self, eye_w: Array, corners_w: Array) -> bool:
        """Return whether a corner (4, 3) m, or the middle of a side, is out of sight from eye_w (3,) m, all world NED."""
        points = np.concatenate([corners_w, (corners_w + np.roll(corners_w, -1, axis=0)) / 2])
        sight = points - eye_w
        toward, eye_g = sight @ self._R_wg, (eye_w - self._p_wg)[:, None] @ self._R_wg  # (G, 8, 3), (G, 1, 3)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = -eye_g[..., 0] / toward[..., 0]  # (G, 8), of the lines of sight to the frames' planes
            across = np.abs(eye_g[..., 1:] + s[..., None] * toward[..., 1:]).max(axis=-1)
            one, other = (self._low - eye_w) / sight, (self._high - eye_w) / sight  # (O, 8, 3)
        framed = (s > 0) & (s < SHORT) & (across > self._inner_m) & (across < self._outer_m)
        enter, leave = np.fmin(one, other).max(axis=-1), np.fmax(one, other).min(axis=-1)
        return bool(framed.any() or ((enter <= leave) & (leave > 0) & (enter < 1)).any())
