"""The time-optimal point mass through the same gates: the first guess of the full problem, and a bound to report.

State p, v; input the thrust acceleration in any direction, |a_t| <= c. It relaxes everything that an attitude costs, so
its time bounds the full problem's from below up to the discretisation, which is the same order in both.
"""

from bisect import bisect_left
from dataclasses import dataclass

import casadi as ca
import numpy as np

from planner.compiled import require_uninterrupted
from planner.course import Leg, box, clearance, initial, keep_clear, passing
from planner.options import PlanOptions
from planner.route import along, route
from tracks.track import Track
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

NODES = 12  # per leg: the guess needs no more
CRUISE = 8.0  # m/s, speed of the first guess
SLOWEST = 4.0  # times as long as that, and as many seconds, may a leg take: more would step over obstacles
SPEED_BOUND = 1e3  # m/s, where the vehicle names none


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
    solved, status = _attempt(track, vehicle, course, options)
    if solved is not None:
        return solved
    first = 0 if options.start is None else options.start.next_gate
    reached = 0
    if not options.flying_lap:  # which has no beginning of its own
        reached = bisect_left(
            range(len(course)), True, key=lambda k: not _attempt(track, vehicle, course[: k + 1], options)[0]
        )
    where = f"gates[{(first + reached) % len(track.gates)}]" if course[reached].gate else "the end"
    raise UserError(
        f"{track.name}: {where}: cannot be reached inside the bounds by a point mass with"
        f" {options.reserve * vehicle.thrust_max:.1f} m/s^2 of thrust ({status})"
    )


def _attempt(track: Track, vehicle: Vehicle, course: list[Leg], options: PlanOptions) -> tuple[PointMass | None, str]:
    """The solution, or None and the solver's status."""
    step, c = _step(vehicle), options.reserve * vehicle.thrust_max
    speed = min(vehicle.speed_max_m_s, SPEED_BOUND)
    low = [*(np.array(track.bounds.low_m)), *[-speed] * 3]
    high = [*(np.array(track.bounds.high_m)), *[speed] * 3]
    begin, keep = initial(track, options), keep_clear(vehicle, options)
    X = [ca.MX.sym(f"X{i}", 6, NODES) for i in range(len(course))]
    w, w0, lbw, ubw, g, lbg, ubg = [], [], [], [], [], [], []
    x = X[-1][:, -1] if begin is None else ca.DM([*begin.position_m, *begin.velocity_m_s])
    previous, total, blocks = course[-1].target if begin is None else np.array(begin.position_m), 0, []
    for i, leg in enumerate(course):
        way = route(previous, leg.target, track.obstacles, keep, *box(track, vehicle, options))
        cruise_s = np.linalg.norm(np.diff(way, axis=0), axis=1).sum() / CRUISE
        U, T = ca.MX.sym(f"U{i}", 3, NODES), ca.MX.sym(f"T{i}")
        places, directions = along(way, np.linspace(0, 1, NODES + 1)[1:])
        w += [X[i], U, T]
        w0 += [*np.vstack([places, CRUISE * directions]).T.ravel(), *np.tile([0.0, 0, -GRAVITY], NODES), cruise_s]
        lbw += [*low * NODES, *[-c] * 3 * NODES, 0.01]
        ubw += [*high * NODES, *[c] * 3 * NODES, SLOWEST * (1.0 + cruise_s)]
        starts = ca.horzcat(x, X[i][:, :-1])
        g += [ca.vec(step.map(NODES)(starts, U, ca.repmat(T / NODES, 1, NODES)) - X[i]), ca.sum1(U**2).T / c]
        lbg += [0.0] * 6 * NODES + [0.0] * NODES
        ubg += [0.0] * 6 * NODES + [c] * NODES
        for obstacle in track.obstacles:
            clear = clearance(obstacle, keep).map(NODES)
            inside = clear(starts[:3, :], starts[3:, :], X[i][:3, :], X[i][3:, :], ca.repmat(T / NODES, 1, NODES))
            g.append(ca.vec(inside))
            lbg, ubg = lbg + [0.0] * inside.numel(), ubg + [ca.inf] * inside.numel()
        x = X[i][:, -1]
        expressions, lower, upper = passing(leg, x[:3], x[3:], [], keep)
        g, lbg, ubg = g + expressions, lbg + lower, ubg + upper
        total, previous = total + T, leg.target
        blocks += [starts, X[i], U, T]
    nlp = {"x": ca.veccat(*w), "f": total, "g": ca.veccat(*g)}
    settings = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes", "ipopt.max_iter": 400, "ipopt.tol": 1e-5}
    solver = ca.nlpsol("point_mass_plan", "ipopt", nlp, settings)
    result = solver(x0=w0, lbx=lbw, ubx=ubw, lbg=lbg, ubg=ubg)
    require_uninterrupted(solver)
    if not solver.stats()["success"]:
        return None, solver.stats()["return_status"]
    values = ca.Function("unpack", [nlp["x"]], blocks)(result["x"])
    values = [value.full() for value in values]
    starts, ends, thrust, durations = (values[k::4] for k in range(4))
    states = [np.hstack([s[:, :1], e]) for s, e in zip(starts, ends, strict=True)]
    return PointMass(np.array(durations).ravel(), [s[:3] for s in states], [s[3:] for s in states], thrust), ""
