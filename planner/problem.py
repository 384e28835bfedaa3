"""The time-optimal control problem through a course, by direct multiple shooting on a given mesh.

    minimise  sum_i T_i  +  small weights on inputs and on their changes
    subject to  x_{k+1} = Phi(x_k, u_k, fraction_k T_i), x_0 given, each leg's last node in its gate's window,
                limits of the vehicle and the track, the next gate in the camera's view.

The gates' order is known, so one free duration per leg replaces the complementarity constraints of Foehn et al. (CPC, Science
Robotics 2021); the Hessian is exact and banded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import casadi as ca
import numpy as np

from planner.clearance import Clearance, cubic
from planner.compiled import compiled, require_uninterrupted
from planner.course import Leg, box, intervals, view, view_window, ways
from planner.model import Model, P, Q, V, W
from planner.options import PlanOptions
from planner.windows import windows
from tracks.track import Track
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array, rotate
from vehicle.vehicle import Vehicle

DOWN = P.start + 2
# A vehicle on its pad may at first be as near to the floor as that is, and climbs, wherever the first gate lies: for LIFT_OFF_S,
# with at least this share of the acceleration that its thrust allows, after so many lags of the thrust.
LIFT_OFF_S, LIFT_OFF_SHARE, SPOOL_UP = 0.3, 0.25, 2.0
STRAY_M = 1e-3  # beyond a bound, or too near to an obstacle, between nodes by more than that: the interval is too long
SHARE_SLACK = 5e-3  # of the asked share of the view, by which nodes may miss the ends of its window
NEAR_M = 3.0  # solids farther than that from the present path play no part on a mesh
SHORTEST, LONGEST = 0.3, 4.0  # of a leg's guessed duration
SHORTEST_INSIDE, LONGEST_INSIDE = 0.05, 20.0  # the same of a leg within a gate, whose guess is poor


@dataclass(frozen=True)
class Duals:
    """Multipliers of a solution: of the dynamics (the costate), of the bounds, and of the gates' windows."""

    costate: Array  # (NX, N)
    x: Array  # (NX, N)
    u: Array  # (NU, N)
    durations: Array  # (L,)
    windows: Array  # in the order of `planner.windows`


@dataclass(frozen=True)
class Point:
    """A candidate: states x (NX, N + 1), inputs u (NU, N), durations (L,) of the legs; multipliers where known."""

    x: Array
    u: Array
    durations: Array
    duals: Duals | None = None


@dataclass(frozen=True)
class Outcome:
    """A point and how the solver came to it."""

    point: Point
    success: bool
    status: str
    iterations: int


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
        """Column by column: guess (n, m), bounds (n, m) or (n, 1)."""
        shape = symbol.shape
        self.w.append(symbol)
        for store, values in ((self.w0, guess), (self.lbw, low), (self.ubw, high)):
            store.append(np.broadcast_to(values, shape).T.ravel())

    def constrain(self, expressions: list, low, high) -> None:
        self.g += expressions
        self.lbg.append(np.ravel(low))
        self.ubg.append(np.ravel(high))


class Problem:
    """One course for one vehicle. `solve` may be called for finer and finer meshes."""

    def __init__(
        self, track: Track, vehicle: Vehicle, options: PlanOptions, chosen: Model, course: list[Leg], x0: Array | None
    ):
        """`x0` (NX,) is the state before the first leg; None closes the flight, which then begins as it ends."""
        self.track, self.vehicle, self.options = track, vehicle, options
        self.model, self.course, self._x0 = chosen, course, x0
        self._step = chosen.step()
        self._seen = _view_function(vehicle) if options.see > 0 else None
        self._clearance = Clearance(track, vehicle, options)

    def solve(
        self, mesh: list[Array], start: Point, settings: dict, progress: Callable[[int, float], None] | None
    ) -> Outcome:
        """Solves on a mesh (per leg, the fractions of its duration) from a starting point on the same mesh."""
        nlp, total, cost, blocks, at_gates = self._formulate(mesh, start)
        variables = ca.veccat(*nlp.w)
        sizes = (variables.numel(), sum(map(len, nlp.lbg)))
        quiet = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes"}
        if progress is not None:
            watch = _Progress(*sizes, ca.Function("total", [variables], [total]), progress)
            quiet["iteration_callback"] = watch
        problem = {"x": variables, "f": total + cost, "g": ca.veccat(*nlp.g)}
        solver = ca.nlpsol("plan", "ipopt", problem, {**quiet, **settings})
        bounds = {name: np.concatenate(getattr(nlp, name)) for name in ("lbg", "ubg")}
        duals = _pack(start.duals, nlp, at_gates) if start.duals else {}
        result = solver(
            x0=np.concatenate(nlp.w0), lbx=np.concatenate(nlp.lbw), ubx=np.concatenate(nlp.ubw), **bounds, **duals
        )
        require_uninterrupted(solver)
        unpack = ca.Function("unpack", [variables], blocks)
        x, u, durations = (value.full() for value in unpack(result["x"]))
        lam_x, lam_u, lam_T = (value.full() for value in unpack(result["lam_x"]))
        lam_g, stats = result["lam_g"].full().ravel(), solver.stats()
        costate = lam_g[: x.size].reshape(x.shape[::-1]).T
        known = Duals(costate, lam_x, lam_u, lam_T.ravel(), lam_g[at_gates])
        first = self._x0 if self._x0 is not None else _turned(start.x) * x[:, -1]
        point = Point(np.column_stack([first, x]), u, durations.ravel(), known)
        return Outcome(point, stats["success"], stats["return_status"], int(stats["iter_count"]))

    def strays(self, mesh: list[Array], point: Point) -> Array:
        """(N,) whether the candidate leaves the bounds or comes too near to an obstacle between the nodes of an interval."""
        dt = intervals(mesh, point.durations)
        ends = (point.x[P, :-1], point.x[V, :-1], point.x[P, 1:], point.x[V, 1:])
        path = np.stack([cubic(*ends, dt, s).T for s in np.linspace(0, 1, 9)])
        low, high = box(self.track, self.vehicle, self.options)
        inner = np.minimum(low, path[[0, -1]].min(axis=0)), np.maximum(high, path[[0, -1]].max(axis=0))
        result = ((path < inner[0] - STRAY_M) | (path > inner[1] + STRAY_M)).any(axis=(0, 2))
        return result | self._clearance.strays(path, self._surrounding(mesh), STRAY_M)

    def _surrounding(self, mesh: list[Array]) -> list[int]:
        """(N) per interval, the frame that it leads through, or -1."""
        return [leg.frame for leg, fractions in zip(self.course, mesh, strict=True) for _ in fractions]

    def _formulate(self, mesh: list[Array], start: Point):
        chosen, nlp = self.model, _Nlp()
        nodes = [len(fractions) for fractions in mesh]
        n = sum(nodes)
        X, U, T = ca.MX.sym("X", chosen.x.size, n), ca.MX.sym("U", chosen.u.size, n), ca.MX.sym("T", len(mesh))
        low, high = self._state_limits(mesh, start.durations)
        nlp.variable(X, start.x[:, 1:], low, high)
        nlp.variable(U, start.u, chosen.u_low[:, None], chosen.u_high[:, None])
        duration = start.durations[:, None]
        inside = np.array([leg.inside for leg in self.course])[:, None]
        shortest, longest = np.where(inside, SHORTEST_INSIDE, SHORTEST), np.where(inside, LONGEST_INSIDE, LONGEST)
        nlp.variable(T, duration, shortest * duration, longest * duration)
        dt = ca.vertcat(*[T[i] * fractions for i, fractions in enumerate(mesh)]).T
        first = ca.MX(self._x0) if self._x0 is not None else _turned(start.x) * X[:, -1]
        before = reached = ca.horzcat(first, X[:, :-1])
        step = self._step.map(n)
        for _ in range(chosen.substeps):
            reached = step(reached, U, dt / chosen.substeps)
        zero = np.zeros(X.numel())
        nlp.constrain([ca.vec(reached - X)], zero, zero)
        last = X[:, (np.cumsum(nodes) - 1).tolist()]
        still = ca.vertcat(last[Q, :][1:3, :], last[W, :])  # hover is level, with the yaw free
        nlp.constrain(*windows(self.course, last[P, :], last[V, :], still, self.vehicle, self.options))
        at_gates = slice(X.numel(), sum(map(len, nlp.lbg)))
        self._keep_in_view(nlp, mesh, X, start.durations)
        self._keep_limits(nlp, before, X, U, dt)
        self._keep_clear(nlp, mesh, before, X, dt, start)
        change = U[:, 1:] - U[:, :-1]
        level, changed = (ca.DM(weight).T for weight in (chosen.weight_level, chosen.weight_change))
        cost = ca.sum2(level @ U**2 * dt) + ca.sum2(changed @ change**2)
        return nlp, ca.sum1(T), cost, [X, U, T], at_gates

    def _keep_in_view(self, nlp: _Nlp, mesh: list[Array], X, durations: Array) -> None:
        """Each gate stays in the picture over the asked share of the way to it, before the blind end of that.

        An interval counts where it ends in view; for corners, which enter the picture last, where it begins so as well. The mesh
        has nodes at the window's ends (`first_mesh`), or near them.
        """
        nodes, targets, first = [], [], 0
        for parts in ways(self.course):
            fractions = intervals([mesh[i] for i in parts], durations[parts])
            done, gate = np.cumsum(fractions) / fractions.sum(), self.course[parts[-1]].gate
            end = int(np.abs(done - view_window(self.options)[1]).argmin())
            begin = np.searchsorted(done, done[end] - self.options.see + SHARE_SLACK, side="right")
            keep = np.arange(max(begin - self.options.see_corners, 0), end + 1)
            if gate is not None and gate.visible:
                for target in gate.corners() if self.options.see_corners else gate.p_wg[None]:
                    nodes += (first + keep).tolist()
                    targets += [target] * len(keep)
            first += len(fractions)
        if self._seen is not None and nodes:
            inside = self._seen.map(len(nodes))(X[:10, nodes], np.column_stack(targets))
            nlp.constrain([ca.vec(inside)], np.zeros(inside.numel()), np.full(inside.numel(), inf))

    def _keep_limits(self, nlp: _Nlp, before, X, U, dt) -> None:
        """Limits that are no bounds of one variable: of the speed and of the thrust's rate."""
        speed, rate = self.model.speed_max, self.model.thrust_rate_max
        if speed < inf:
            nlp.constrain([(ca.sum1(X[V, :] ** 2) / speed).T], np.zeros(X.shape[1]), np.full(X.shape[1], speed))
        if rate < inf:
            rates = ca.vec(self.model.thrust_rates(before, U, dt)) / rate
            nlp.constrain([rates], np.full(rates.numel(), -1.0), np.ones(rates.numel()))

    def _keep_clear(self, nlp: _Nlp, mesh: list[Array], before, X, dt, start: Point) -> None:
        """The path keeps clear of solids near the present path and within the gates' prisms, between the nodes too."""
        ends, own = (before[P, :], before[V, :], X[P, :], X[V, :]), self._surrounding(mesh)
        number = np.repeat(np.arange(len(mesh)), [len(fractions) for fractions in mesh])
        near = self._clearance.near(start.x[P].T, number, own, NEAR_M)
        legs = [self.course[i] for i in number]
        passed = [(k, leg.gate) for k, leg in enumerate(legs) if leg.inside and leg.gate is not None]
        for clear in self._clearance.outside(ends, dt, near) + self._clearance.within(ends, dt, passed):
            nlp.constrain([clear], np.zeros(clear.numel()), np.full(clear.numel(), inf))

    def _state_limits(self, mesh: list[Array], durations: Array) -> tuple[Array, Array]:
        """Bounds (NX, N) on the nodes. The body stays inside the track's box, except while it leaves its pad."""
        t = np.cumsum(intervals(mesh, durations))
        high = np.repeat(self.model.x_high[:, None], len(t), axis=1)
        high[Q] = 1.1  # never active: it only keeps the search away from absurd steps
        low = -high
        lowest, highest = box(self.track, self.vehicle, self.options)
        low[P], high[P] = lowest[:, None], highest[:, None]
        if self._x0 is None:
            return low, high
        early, p0 = t < LIFT_OFF_S, self._x0[P, None]
        low[P] = np.where(early, np.minimum(low[P], p0), low[P])
        high[P] = np.where(early, np.maximum(high[P], p0), high[P])
        if self.options.start is None:
            high[DOWN] = np.where(early, np.minimum(high[DOWN], self._lifted(self._x0, t)), high[DOWN])
        return low, high

    def _lifted(self, x0: Array, t: Array) -> Array:
        """The lowest that the vehicle, which stands on something at first, may be at these times."""
        vehicle = self.vehicle
        upright = 1 - 2 * (x0[Q][1] ** 2 + x0[Q][2] ** 2)  # of its thrust
        climb = max(self.options.reserve * vehicle.thrust_max * upright - GRAVITY, 0.0)
        late = np.maximum(t - SPOOL_UP * vehicle.thrust_lag_s, 0.0)
        return x0[DOWN] - LIFT_OFF_SHARE * climb / 2 * late**2


def _pack(duals: Duals, nlp: _Nlp, at_gates: slice) -> dict[str, Array]:
    """Multipliers in the order of the problem; those of the view start at zero."""
    lam_g = np.zeros(sum(map(len, nlp.lbg)))
    lam_g[: duals.costate.size] = duals.costate.T.ravel()
    lam_g[at_gates] = duals.windows
    return {"lam_x0": np.concatenate([duals.x.T.ravel(), duals.u.T.ravel(), duals.durations]), "lam_g0": lam_g}


def _view_function(vehicle: Vehicle) -> ca.Function:
    """(p, q, v; target) -> 4 non-negative numbers while the world point is in the picture."""
    x, target = ca.SX.sym("x", 10), ca.SX.sym("target", 3)
    q = ca.vertsplit(x[Q])
    R_wb = ca.horzcat(*(ca.vertcat(*rotate(q, axis)) for axis in np.eye(3)))
    return compiled(ca.Function("view", [x, target], [ca.vertcat(*view(vehicle.camera, target, x[P], R_wb))]))


def _turned(x: Array) -> Array:
    """(NX,) of ones, with minus one for a quaternion that comes back from the flight x (NX, N + 1) with the other sign."""
    sign = np.ones(len(x))
    sign[Q] = np.sign(x[Q, 0] @ x[Q, -1])
    return sign


class _Progress(ca.Callback):
    """Tells the caller how far IPOPT is."""

    def __init__(self, nx: int, ng: int, total: ca.Function, report: Callable[[int, float], None]):
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
        self.report(self.count, float(self.total(arg[0])))
        self.count += 1
        return [0]
