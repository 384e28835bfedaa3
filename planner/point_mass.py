"""The time-optimal point mass through the same gates: the first guess of the full problem, and a bound to report.

State p, v; input the thrust acceleration in any direction, |a_t| <= c. It relaxes everything that an attitude costs, so
its time bounds the full problem's from below, up to the discretisation, among the paths on the same sides of all solids.
"""

from dataclasses import dataclass
from math import ceil

import casadi as ca
import numpy as np

from planner.asked import initial, keep_clear
from planner.clearance import Clearance, solids
from planner.compiled import compiled, require_uninterrupted
from planner.course import Leg, box
from planner.options import PlanOptions
from planner.route import along, route
from planner.windows import windows
from tracks.track import Track
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

NODES, SPACING_M = 12, 10.0  # per leg, at least, and m between them at most: the guess needs no more
INSIDE_NODES = 2  # per leg within a gate
NEAR_M = 5.0  # solids farther than that from the first guess play no part
CRUISE, LONG_M = (
    8.0,
    30.0,
)  # m/s, speed of the first guess on legs up to that long; it grows with the root of the length
FAST_SHARE = 0.7  # of the greatest speed that a guess may have
SHORTEST_S, SHORTEST_INSIDE_S = 0.01, 0.001  # that a leg may take
SLOWEST = 4.0  # times as long as that, and as many seconds, may a leg take: more would step over obstacles
SPEED_BOUND = 1e3  # m/s, where the vehicle names none


@dataclass(frozen=True)
class PointMass:
    """Per leg of n nodes: duration (s) and p, v (n + 1 columns) and a_t (n columns). Unsolved it is a mere guess."""

    durations: Array  # (L,)
    p: list[Array]  # (3, n + 1), world NED
    v: list[Array]
    thrust: list[Array]  # (3, n), m/s^2, world NED
    solved: bool

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
    return compiled(ca.Function("point_mass", [ca.vertcat(p, v), a, dt], [ca.vertcat(p_next, v_next)]))


def solve_point_mass(track: Track, vehicle: Vehicle, course: list[Leg], options: PlanOptions) -> PointMass:
    """Solves the relaxed problem; where the solver finds nothing, its first guess along the free way is returned, unsolved.

    Raises:
        UserError: solids and bounds leave no way to a gate.
    """
    guess = _first_guess(track, vehicle, course, options)
    step, c = _step(vehicle), options.reserve * vehicle.thrust_max
    speed = min(vehicle.speed_max_m_s, SPEED_BOUND)
    low = [*(np.array(track.bounds.low_m)), *[-speed] * 3]
    high = [*(np.array(track.bounds.high_m)), *[speed] * 3]
    begin, clearance = initial(track, options), Clearance(track, vehicle, options)
    counts = [one.shape[1] for one in guess.thrust]
    n, last = sum(counts), np.cumsum(counts) - 1
    X, U, T = ca.MX.sym("X", 6, n), ca.MX.sym("U", 3, n), ca.MX.sym("T", len(course))
    first = X[:, -1] if begin is None else ca.DM([*begin.position_m, *begin.velocity_m_s])
    starts = ca.horzcat(first, X[:, :-1])
    dt = ca.vertcat(*[ca.repmat(T[i] / count, count, 1) for i, count in enumerate(counts)]).T
    states = np.hstack([np.vstack([p, v])[:, 1:] for p, v in zip(guess.p, guess.v, strict=True)])
    g = [ca.vec(step.map(n)(starts, U, dt) - X), ca.sum1(U**2).T / c]
    lbg, ubg = [np.zeros(7 * n)], [np.repeat([0.0, c], [6 * n, n])]
    ends, number = (starts[:3, :], starts[3:, :], X[:3, :], X[3:, :]), np.repeat(np.arange(len(counts)), counts)
    own = [course[i].frame for i in number]
    near = clearance.near(np.hstack([guess.p[0][:, :1], states[:3]]).T, number, own, NEAR_M)
    passed = [(k, gate) for k, i in enumerate(number) if course[i].inside and (gate := course[i].gate) is not None]
    for inside in clearance.outside(ends, dt, near) + clearance.within(ends, dt, passed):
        g.append(inside)
        lbg.append(np.zeros(inside.numel()))
        ubg.append(np.full(inside.numel(), np.inf))
    at_gates = X[:, last.tolist()]
    expressions, lower, upper = windows(
        course, at_gates[:3, :], at_gates[3:, :], ca.MX(0, len(course)), vehicle, options
    )
    g += expressions
    lbg.append(lower)
    ubg.append(upper)
    w0 = np.concatenate([states.T.ravel(), np.hstack(guess.thrust).T.ravel(), guess.durations])
    shortest = [SHORTEST_INSIDE_S if leg.inside else SHORTEST_S for leg in course]
    lbw = np.concatenate([np.tile(low, n), np.full(3 * n, -c), shortest])
    ubw = np.concatenate([np.tile(high, n), np.full(3 * n, c), SLOWEST * (1.0 + guess.durations)])
    nlp = {"x": ca.veccat(X, U, T), "f": ca.sum1(T), "g": ca.veccat(*g)}
    settings = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes", "ipopt.max_iter": 400, "ipopt.tol": 1e-5}
    solver = ca.nlpsol("point_mass_plan", "ipopt", nlp, settings)
    result = solver(x0=w0, lbx=lbw, ubx=ubw, lbg=np.concatenate(lbg), ubg=np.concatenate(ubg))
    require_uninterrupted(solver)
    if not solver.stats()["success"]:
        return guess
    x, thrust, durations = (one.full() for one in ca.Function("unpack", [nlp["x"]], [starts, U, T])(result["x"]))
    x = np.column_stack([x, ca.Function("last", [nlp["x"]], [X[:, -1]])(result["x"]).full()])
    parts = [slice(end + 1 - count, end + 2) for end, count in zip(last, counts, strict=True)]
    forces = [thrust[:, part.start : part.stop - 1] for part in parts]
    return PointMass(durations.ravel(), [x[:3, part] for part in parts], [x[3:, part] for part in parts], forces, True)


def _first_guess(track: Track, vehicle: Vehicle, course: list[Leg], options: PlanOptions) -> PointMass:
    """Along the shortest free way, leg by leg, at a cruising speed.

    Raises:
        UserError: there is no way to a gate.
    """
    begin, keep = initial(track, options), keep_clear(vehicle, options)
    around = [solid.box for solid in solids(track, vehicle, options)]
    limits, most = box(track, vehicle, options), min(vehicle.speed_max_m_s, SPEED_BOUND)
    previous = course[-1].target if begin is None else np.array(begin.position_m)
    durations, p, v, thrust = [], [], [], []
    for i, leg in enumerate(course):
        way = np.stack([previous, leg.target]) if leg.inside else route(previous, leg.target, around, keep, *limits)
        if way is None:
            raise UserError(
                f"{track.name}: {_named(track, course, i, options)}: cannot be reached: obstacles and gates leave no way to it"
                f" inside the bounds that is {keep:.2f} m clear of them"
            )
        length = float(np.linalg.norm(np.diff(way, axis=0), axis=1).sum())
        speed = min(CRUISE * max(1.0, np.sqrt(length / LONG_M)), FAST_SHARE * most)
        n = INSIDE_NODES if leg.inside else max(NODES, ceil(length / SPACING_M))
        places, directions = along(way, np.linspace(0, 1, n + 1))
        durations.append(max(length, 0.01) / speed)
        p.append(places)
        v.append(speed * directions)
        thrust.append(np.tile([[0.0], [0.0], [-GRAVITY]], n))
        previous = leg.target
    return PointMass(np.array(durations), p, v, thrust, False)


def _named(track: Track, course: list[Leg], i: int, options: PlanOptions) -> str:
    """A leg's goal in the user's words."""
    if course[i].gate is None:
        return "the end"
    first = 0 if options.start is None else options.start.next_gate
    passed = sum(leg.passes for leg in course[:i])
    return f"gates[{(first + passed) % len(track.gates)}]"
