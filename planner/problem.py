"""The time-optimal control problem of a `rates` vehicle through a course, by direct multiple shooting.

    minimise  sum_i T_i  +  small weights on commanded body rates and on changes of the inputs
    subject to  x_{k+1} = Phi(x_k, u_k, T_i / n_i), x_0 at rest on the pad, each leg's last node in its gate's window,
                limits of the vehicle and the track, the next gate in the camera's view.

The gates' order is known, so one free duration per leg replaces the complementarity constraints of Foehn et al. (CPC, Science
Robotics 2021). Phi normalises the quaternion: without it the optimiser grows |q| to gain thrust.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf

import casadi as ca
import numpy as np

from planner.course import keep_clear, legs, passing, view
from planner.options import PlanOptions
from planner.point_mass import PointMass, solve_point_mass
from tracks.track import Track
from vehicle.dynamics import GRAVITY, RATES_U, RATES_X, rates, rk4
from vehicle.rotation import Array, conjugate, from_matrix, log, matrix, product, rotate
from vehicle.vehicle import Vehicle

NX, NU = RATES_X.size, RATES_U.size
P, Q, V, W, C = (RATES_X[name].at for name in "pqvwc")
NODE_S = 0.04  # s, spacing of the nodes at the guess: below it the time gained is under 0.1 %
SUBSTEPS = 2  # Runge-Kutta steps per node: the roll and pitch lag is as short as a node
BLIND = 0.15  # last fraction of each leg in which the gate may leave the picture
LIFT_OFF_NODES = 8  # nodes in which the vehicle may be as near to the floor as its pad is
WEIGHT_RATE = 1e-3  # s per (rad/s)^2 s of commanded rates, so that free yaw stays still
WEIGHT_CHANGE = 1e-5  # s per (rad/s)^2 and per (m/s^2)^2 of change between nodes, which keeps inputs trackable


@dataclass(frozen=True)
class Solution:
    """What the optimiser returned, good or not. Columns are nodes; `gate_nodes` end the legs."""

    t: Array  # (N + 1,) s
    x: Array  # (NX, N + 1)
    u: Array  # (NU, N), held over each interval
    gate_nodes: list[int]
    status: str
    success: bool
    iterations: int
    build_s: float
    solve_s: float
    point_mass_s: float


@dataclass
class _Nlp:
    """Variables, bounds, guesses and constraints as they are collected, in order."""

    w: list = field(default_factory=list)
    w0: list = field(default_factory=list)
    lbw: list = field(default_factory=list)
    ubw: list = field(default_factory=list)
    g: list = field(default_factory=list)
    lbg: list = field(default_factory=list)
    ubg: list = field(default_factory=list)

    def variable(self, symbol, guess, low, high) -> None:
        self.w.append(symbol)
        columns = symbol.shape[1]
        self.w0 += list(np.asarray(guess, float).T.ravel())
        self.lbw += list(np.broadcast_to(low, (columns, np.shape(low)[-1])).ravel())
        self.ubw += list(np.broadcast_to(high, (columns, np.shape(high)[-1])).ravel())

    def constrain(self, expressions: list, low: list[float], high: list[float]) -> None:
        self.g += expressions
        self.lbg += low
        self.ubg += high


def transition(vehicle: Vehicle) -> ca.Function:
    """Phi: (x, u, dt) -> x after dt with the input held, quaternion normalised."""
    x, u, dt = ca.SX.sym("x", NX), ca.SX.sym("u", NU), ca.SX.sym("dt")
    end = ca.vertsplit(x)
    for _ in range(SUBSTEPS):
        end = rk4(rates, end, ca.vertsplit(u), vehicle.rates_parameters, dt / SUBSTEPS)
        norm = ca.sqrt(sum(component**2 for component in end[Q]))
        end = [*end[P], *(component / norm for component in end[Q]), *end[Q.stop :]]
    return ca.Function("transition", [x, u, dt], [ca.vertcat(*end)])


def view_function(vehicle: Vehicle) -> ca.Function:
    """(x, target) -> 4 non-negative numbers while the world point is in the picture."""
    x, target = ca.SX.sym("x", NX), ca.SX.sym("target", 3)
    q = ca.vertsplit(x[Q])
    R_wb = ca.horzcat(*(ca.vertcat(*rotate(q, axis)) for axis in np.eye(3)))
    inside, _, _ = view(vehicle.camera, target, x[P], R_wb)
    return ca.Function("view", [x, target], [ca.vertcat(*inside)])


def solve(
    track: Track, vehicle: Vehicle, options: PlanOptions, progress: Callable[[int, float], None] | None = None
) -> Solution:
    """Plans the flight from the pad to the last gate (or to rest at the track's end point).

    Args:
        progress: called with the iteration's number and the time of flight so far, s.

    Raises:
        UserError: the course contradicts the vehicle, or not even a point mass can fly it.
    """
    begin = time.perf_counter()
    course = legs(track, vehicle, options)
    point_mass = solve_point_mass(track, vehicle, course, options)
    nodes = [max(8, ceil(duration / NODE_S)) for duration in point_mass.durations]
    nlp, total, cost, states, inputs, durations = _formulate(track, vehicle, options, course, point_mass, nodes)
    watch = _Progress(len(nlp.w0), len(nlp.lbg), ca.Function("T", [ca.veccat(*nlp.w)], [total]), progress)
    solver = ca.nlpsol(
        "plan",
        "ipopt",
        {"x": ca.veccat(*nlp.w), "f": total + cost, "g": ca.veccat(*nlp.g)},
        {
            "print_time": 0,
            "ipopt.print_level": 0,
            "ipopt.sb": "yes",
            "ipopt.max_iter": 600,
            "ipopt.tol": 1e-6,
            "ipopt.mu_strategy": "adaptive",
            "iteration_callback": watch,
        },
    )
    ready = time.perf_counter()
    result = solver(x0=nlp.w0, lbx=nlp.lbw, ubx=nlp.ubw, lbg=nlp.lbg, ubg=nlp.ubg)
    done = time.perf_counter()
    x, u, T = ca.Function("unpack", [ca.veccat(*nlp.w)], [states, inputs, durations])(result["x"])
    steps = np.repeat(T.full().ravel() / nodes, nodes)
    stats = solver.stats()
    return Solution(
        t=np.concatenate([[0.0], np.cumsum(steps)]),
        x=x.full(),
        u=u.full(),
        gate_nodes=list(np.cumsum(nodes)),
        status=stats["return_status"],
        success=stats["success"],
        iterations=int(stats["iter_count"]),
        build_s=ready - begin,
        solve_s=done - ready,
        point_mass_s=point_mass.total_time,
    )


def _formulate(track, vehicle, options, course, point_mass, nodes):
    """Collects the problem leg by leg; returns it with its total time, regularisation and the matrices to unpack."""
    step, seen, nlp = transition(vehicle), view_function(vehicle), _Nlp()
    w_high = options.reserve * np.array(vehicle.rate_max_rad_s)
    u_low, u_high = np.array([*-w_high, vehicle.thrust_min]), np.array([*w_high, options.reserve * vehicle.thrust_max])
    start = np.concatenate([track.start.p_wb, track.start.q_wb, np.zeros(6), [GRAVITY]])
    guess_x, guess_u = _guess(track, vehicle, point_mass, nodes, start)
    x, u_before = ca.MX(start), None
    total, cost, states, inputs, durations, first = 0, 0, [x], [], [], 0
    for i, (leg, n) in enumerate(zip(course, nodes, strict=True)):
        X, U, T = ca.MX.sym(f"X{i}", NX, n), ca.MX.sym(f"U{i}", NU, n), ca.MX.sym(f"T{i}")
        nlp.variable(X, guess_x[:, first + 1 : first + n + 1], *_state_limits(track, vehicle, n, lift_off=i == 0))
        nlp.variable(U, guess_u[:, first : first + n], u_low, u_high)
        nlp.variable(T, [[point_mass.durations[i] * 1.1]], [0.02], [60.0])
        reached = step.map(n)(ca.horzcat(x, X[:, :-1]), U, ca.repmat(T / n, 1, n))
        nlp.constrain([ca.vec(reached - X)], [0.0] * NX * n, [0.0] * NX * n)
        nlp.constrain(*passing(leg, X[P, -1], X[V, -1], keep_clear(vehicle, options)))
        if options.see > 0 and leg.gate is not None and leg.gate.visible:
            from_node, to_node = round(n * (1 - BLIND - options.see)), round(n * (1 - BLIND))
            columns = X[:, max(0, from_node) : to_node]
            m = columns.shape[1]
            nlp.constrain([ca.vec(seen.map(m)(columns, ca.repmat(leg.target, 1, m)))], [0.0] * 4 * m, [inf] * 4 * m)
        joined = U if u_before is None else ca.horzcat(u_before, U)
        change = joined[:, 1:] - joined[:, :-1]
        cost += WEIGHT_RATE * T / n * ca.sumsqr(U[:3, :]) + WEIGHT_CHANGE * ca.sumsqr(change)
        total, x, u_before, first = total + T, X[:, -1], U[:, -1], first + n
        states, inputs, durations = [*states, X], [*inputs, U], [*durations, T]
    return nlp, total, cost, ca.horzcat(*states), ca.horzcat(*inputs), ca.vertcat(*durations)


def _state_limits(track: Track, vehicle: Vehicle, n: int, lift_off: bool) -> tuple[Array, Array]:
    """Bounds (n, NX) on the nodes of a leg. The body stays inside the track's box, except while it leaves its pad."""
    low, high = np.full((n, NX), -np.inf), np.full((n, NX), np.inf)
    clear = vehicle.contact_radius_m
    low[:, P], high[:, P] = np.array(track.bounds.low_m) + clear, np.array(track.bounds.high_m) - clear
    if lift_off:
        nodes, start = min(LIFT_OFF_NODES, n), track.start.p_wb
        low[:nodes, P], high[:nodes, P] = np.minimum(low[:nodes, P], start), np.maximum(high[:nodes, P], start)
    low[:, V], high[:, V] = -vehicle.speed_max_m_s, vehicle.speed_max_m_s
    low[:, Q], high[:, Q] = -1.1, 1.1  # never active: it only keeps the search away from absurd steps
    return low, high


def _guess(track: Track, vehicle: Vehicle, point_mass: PointMass, nodes, start) -> tuple[Array, Array]:
    """States (NX, N + 1) and inputs (NU, N): the point mass, with the attitude that its thrust and a forward nose ask for."""
    p, v, a = [track.start.p_wb[:, None]], [np.zeros((3, 1))], []
    for k, n in enumerate(nodes):
        coarse, fine = np.linspace(0, 1, point_mass.p[k].shape[1]), np.linspace(0, 1, n + 1)[1:]
        p.append(np.array([np.interp(fine, coarse, row) for row in point_mass.p[k]]))
        v.append(np.array([np.interp(fine, coarse, row) for row in point_mass.v[k]]))
        held = np.minimum((fine * len(point_mass.thrust[k][0])).astype(int), len(point_mass.thrust[k][0]) - 1)
        a.append(point_mass.thrust[k][:, held])
    p_w, v_w, thrust = np.hstack(p), np.hstack(v), np.hstack(a)
    steps = np.repeat(1.1 * point_mass.durations / nodes, nodes)
    x, u = np.zeros((NX, len(steps) + 1)), np.zeros((NU, len(steps)))
    x[P], x[V], x[C] = p_w, v_w, GRAVITY
    q_before = start[Q]
    x[Q, 0] = q_before
    forward = matrix(start[Q])[:, 0]
    for k in range(len(steps)):
        c = float(np.linalg.norm(thrust[:, k]))
        down = -thrust[:, k] / c if c > 1e-3 else np.array([0.0, 0.0, 1.0])
        heading = v_w[:, k + 1] if np.linalg.norm(v_w[:, k + 1]) > 1.0 else forward
        q = _attitude(down, heading)
        q = q if q @ q_before > 0 else -q
        x[Q, k + 1], x[C.start, k + 1], u[3, k] = q, c, c
        turn = log(product(conjugate(q_before), q)) / steps[k]
        u[:3, k] = np.clip(turn, -np.array(vehicle.rate_max_rad_s) / 2, np.array(vehicle.rate_max_rad_s) / 2)
        x[W, k + 1] = u[:3, k]
        q_before = q
    return x, u


def _attitude(down: Array, heading: Array) -> Array:
    """q_wb with the body's z axis along `down` and its x axis as near to `heading` as that allows."""
    right = np.cross(down, heading)
    if right @ right < 1e-6:
        right = np.cross(down, [1.0, 0.1, 0.0])
    right = right / np.linalg.norm(right)
    return from_matrix(np.column_stack([np.cross(right, down), right, down]))


class _Progress(ca.Callback):
    """Tells the caller how far IPOPT is."""

    def __init__(self, nx: int, ng: int, total: ca.Function, report: Callable[[int, float], None] | None):
        ca.Callback.__init__(self)
        self.nx, self.ng, self.total, self.report, self.count = nx, ng, total, report, 0
        self.construct("progress", {})

    def get_n_in(self):
        return ca.nlpsol_n_out()

    def get_n_out(self):
        return 1

    def get_name_in(self, i):
        return ca.nlpsol_out(i)

    def get_sparsity_in(self, i):
        size = {"f": 1, "x": self.nx, "lam_x": self.nx, "g": self.ng, "lam_g": self.ng}.get(ca.nlpsol_out(i), 0)
        return ca.Sparsity.dense(size, 1) if size else ca.Sparsity(0, 0)

    def eval(self, arg):
        if self.report is not None:
            self.report(self.count, float(self.total(arg[0])))
        self.count += 1
        return [0]
