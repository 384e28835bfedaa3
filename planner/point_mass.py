"""The time-optimal point mass through the same gates: the first guess of the full problem, and a bound to report.

State p, v; input the thrust acceleration in any direction, |a_t| <= c. It relaxes everything that an attitude costs, so
its time bounds the full problem's from below up to the discretisation, which is the same order in both.
"""

from dataclasses import dataclass

import casadi as ca
import numpy as np

from planner.compiled import require_uninterrupted
from planner.course import Leg, keep_clear, passing
from planner.options import PlanOptions
from tracks.track import Track
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

NODES = 12  # per leg: the guess needs no more
CRUISE = 8.0  # m/s, speed of the straight-line guess


@dataclass(frozen=True)
class PointMass:
    """Per leg: duration (s) and p, v, a_t at its nodes (NODES + 1 resp. NODES columns)."""

    durations: Array  # (L,)
    p: list[Array]  # (3, NODES + 1), world NED
    v: list[Array]
    thrust: list[Array]  # (3, NODES), m/s^2, world NED

    @property
    def total_time(self) -> float:
        return float(self.durations.sum())


def _step(vehicle: Vehicle) -> ca.Function:
    """RK4 of p' = v, v' = a_t + g - drag."""
    p, v, a, dt = ca.SX.sym("p", 3), ca.SX.sym("v", 3), ca.SX.sym("a", 3), ca.SX.sym("dt")
    # Linear drag acts in body axes; the least of the three coefficients keeps the result a bound.
    linear = min(vehicle.drag_linear_1_s)

    def acceleration(v):
        return a + ca.vertcat(0, 0, GRAVITY) - (linear + vehicle.drag_quadratic_1_m * ca.sqrt(ca.dot(v, v) + 1e-8)) * v

    k1 = acceleration(v)
    k2 = acceleration(v + dt / 2 * k1)
    k3 = acceleration(v + dt / 2 * k2)
    k4 = acceleration(v + dt * k3)
    p_next = p + dt * v + dt**2 / 6 * (k1 + k2 + k3)
    v_next = v + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return ca.Function("point_mass", [ca.vertcat(p, v), a, dt], [ca.vertcat(p_next, v_next)])


def solve_point_mass(track: Track, vehicle: Vehicle, course: list[Leg], options: PlanOptions) -> PointMass:
    """Solves the relaxed problem.

    Raises:
        UserError: no such trajectory exists, so none exists for the vehicle either.
    """
    step, c = _step(vehicle), options.reserve * vehicle.thrust_max
    low = [*(np.array(track.bounds.low_m)), *[-vehicle.speed_max_m_s] * 3]
    high = [*(np.array(track.bounds.high_m)), *[vehicle.speed_max_m_s] * 3]
    w, w0, lbw, ubw, g, lbg, ubg = [], [], [], [], [], [], []
    x = ca.DM([*track.start.position_m, 0, 0, 0])
    previous, total, blocks = track.start.p_wb, 0, []
    for i, leg in enumerate(course):
        reach = leg.target - previous
        X, U, T = ca.MX.sym(f"X{i}", 6, NODES), ca.MX.sym(f"U{i}", 3, NODES), ca.MX.sym(f"T{i}")
        along = np.linspace(0, 1, NODES + 1)[1:]
        speed = reach / np.linalg.norm(reach) * CRUISE
        guess_x = np.vstack([previous[:, None] + reach[:, None] * along, np.tile(speed[:, None], NODES)])
        w += [X, U, T]
        w0 += [*guess_x.T.ravel(), *np.tile([0.0, 0, -GRAVITY], NODES), np.linalg.norm(reach) / CRUISE]
        lbw += [*low * NODES, *[-c] * 3 * NODES, 0.01]
        ubw += [*high * NODES, *[c] * 3 * NODES, 60.0]
        starts = ca.horzcat(x, X[:, :-1])
        g += [ca.vec(step.map(NODES)(starts, U, ca.repmat(T / NODES, 1, NODES)) - X), ca.sum1(U**2).T / c]
        lbg += [0.0] * 6 * NODES + [0.0] * NODES
        ubg += [0.0] * 6 * NODES + [c] * NODES
        x = X[:, -1]
        expressions, lower, upper = passing(leg, x[:3], x[3:], [], keep_clear(vehicle, options))
        g, lbg, ubg = g + expressions, lbg + lower, ubg + upper
        total, previous = total + T, leg.target
        blocks += [starts, X, U, T]
    nlp = {"x": ca.veccat(*w), "f": total, "g": ca.veccat(*g)}
    settings = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes", "ipopt.max_iter": 400, "ipopt.tol": 1e-5}
    solver = ca.nlpsol("point_mass_plan", "ipopt", nlp, settings)
    result = solver(x0=w0, lbx=lbw, ubx=ubw, lbg=lbg, ubg=ubg)
    require_uninterrupted(solver)
    if not solver.stats()["success"]:
        raise UserError(
            f"{track.name}: no point mass with {c:.1f} m/s^2 of thrust flies this course inside its bounds"
            f" ({solver.stats()['return_status']})"
        )
    values = ca.Function("unpack", [nlp["x"]], blocks)(result["x"])
    values = [value.full() for value in values]
    starts, ends, thrust, durations = (values[k::4] for k in range(4))
    states = [np.hstack([s[:, :1], e]) for s, e in zip(starts, ends, strict=True)]
    return PointMass(np.array(durations).ravel(), [s[:3] for s in states], [s[3:] for s in states], thrust)
