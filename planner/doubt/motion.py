"""Motion of a plan at the IMU's samples."""

from dataclasses import dataclass

import numpy as np

from gate_racer.planner.models import C, P, Q, V, W
from gate_racer.planner.plan import Plan
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
