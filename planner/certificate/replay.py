"""Replay of a plan by integrators that the problem does not use: each interval from its node, and the whole plan open loop.

The intervals are independent, hence one system of equations in the fraction s of each interval,
dx_k/ds = dt_k f(x_k, u_k), and DOP853 integrates them together.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.planner.models import P, Q
from gate_racer.planner.plan import Plan
from gate_racer.vehicle.dynamics import rk4
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

TOLERANCE = 1e-11  # relative and absolute tolerance of the integrator, for the RMS over all intervals
SPACING_M = 0.02  # m, largest spacing of points of the path, subject to
POINTS_LEAST, POINTS_MOST = 8, 100  # points per interval
OPEN_LOOP_S = 4e-3  # s, longest step of the open-loop integration


@dataclass(frozen=True)
class ReplayedPath:
    """Integrated path, and the defect of each interval."""

    t: Array  # (M,) s
    x: Array  # (M, NX)
    off: Array  # (N, NX) end of each interval minus the next node, quaternions in one hemisphere


def replay(plan: Plan, vehicle: Vehicle) -> ReplayedPath:
    """Integrate every interval from its node. M = N * points + 1."""
    from scipy.integrate import solve_ivp  # takes half a second to load, and is not needed to fly a plan

    dt, start, u, model = np.diff(plan.t), plan.x[:-1].T, list(plan.u[:-1].T), plan.flight_model(vehicle)
    far = np.linalg.norm(np.diff(plan.x[:, P], axis=0), axis=1).max()
    points = int(np.clip(np.ceil(far / SPACING_M), POINTS_LEAST, POINTS_MOST))

    def slope(_: float, flat: Array) -> Array:
        return (dt * np.array(model.derivative(list(flat.reshape(start.shape)), u))).ravel()

    grid = np.linspace(0.0, 1.0, points + 1)
    with np.errstate(all="ignore"):
        done = solve_ivp(slope, (0.0, 1.0), start.ravel(), "DOP853", grid, rtol=TOLERANCE, atol=TOLERANCE)
    if not done.success:
        return ReplayedPath(plan.t, plan.x, np.full((len(dt), len(start)), np.inf))
    fine = done.y.reshape(*start.shape, points + 1).transpose(1, 2, 0)  # (N, points + 1, NX)
    end, node = fine[:, -1], plan.x[1:].copy()
    node[:, Q] *= np.where((end[:, Q] * node[:, Q]).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    t = (plan.t[:-1, None] + dt[:, None] * grid[:-1]).ravel()
    x = fine[:, :-1].reshape(-1, len(start))
    return ReplayedPath(np.append(t, plan.t[-1]), np.vstack([x, plan.x[-1]]), end - node)


def open_loop_gap(plan: Plan, vehicle: Vehicle, off: Array) -> tuple[float, float]:
    """Return the open-loop position error at the plan's end, m, and the bound on it that follows from the defects, m.

    A defect d_k moves the end by |G_k d_k| to first order, with G_k the derivative of the final position with respect to the
    state at node k, propagated backwards. The bound is the sum over all intervals.
    """
    dt = np.diff(plan.t)
    flown = _in_one_go(plan, vehicle, dt)
    steps = _transitions(plan, vehicle, dt)
    G, explained = np.eye(3, plan.x.shape[1]), 0.0
    for k in range(len(dt) - 1, -1, -1):
        explained += float(np.linalg.norm(G @ off[k]))
        G = G @ steps[k]
    return float(np.linalg.norm(flown - plan.x[-1, P])), explained


def _in_one_go(plan: Plan, vehicle: Vehicle, dt: Array) -> Array:
    """Return the open-loop final position (3,), m; for a single state, floats are faster than arrays."""
    x, model = plan.x[0].tolist(), plan.flight_model(vehicle)
    for k, whole in enumerate(dt.tolist()):
        u, parts = plan.u[k].tolist(), max(2, min(int(np.ceil(whole / OPEN_LOOP_S)), 1000))
        for _ in range(parts):
            x = rk4(model.f, x, u, model.parameters, whole / parts)
    return np.array(x)[P]


def _transitions(plan: Plan, vehicle: Vehicle, dt: Array) -> Array:
    """Return the Jacobians (N, NX, NX) of each interval's end with respect to its beginning, by central differences."""
    n, size, step = len(dt), plan.x.shape[1], 1e-5
    u, model = list(plan.u[:-1].T), plan.flight_model(vehicle)
    result = np.empty((n, size, size))
    for i in range(size):
        ends = []
        for sign in (1, -1):
            x = plan.x[:-1].T.copy()
            x[i] += sign * step
            rows = list(x)
            for _ in range(4):
                rows = rk4(model.f, rows, u, model.parameters, dt / 4)
            ends.append(np.array(rows))
        result[:, :, i] = ((ends[0] - ends[1]) / (2 * step)).T
    return result
