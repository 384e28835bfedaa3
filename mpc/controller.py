"""From a state estimate to a command: predict over the delay, advance along the plan, solve, and never send garbage.

Between two commands the next problem is prepared (`prepare`), so that a command waits for the feedback phase only.
"""

import enum
from dataclasses import dataclass

import numpy as np

from mpc.adaptation import Adaptation, Residuals
from mpc.model import BELIEF
from mpc.predictor import Predictor
from mpc.problem import NP, NR, REFERENCE, Problem
from mpc.reference import PACE, THETA, U_W, Reference
from mpc.solver import Solver
from planner.plan import Plan
from tracks.gate import Gate
from vehicle.dynamics import GRAVITY, RATES_U, RATES_X
from vehicle.rotation import Array, aligned, conjugate, log, matrix, product
from vehicle.vehicle import Vehicle

P, Q, V, W = (RATES_X[name].at for name in "pqvw")
C, U_C = RATES_X["c"].at.start, REFERENCE["u_c"].at.start
RESIDUAL = slice(NR + BELIEF["residual"].at.start, NP)
SCALE = BELIEF["thrust_scale"].at.start
NX, NU = RATES_X.size, RATES_U.size
LEARN_LIMIT_S = 0.1  # between two steps that can be compared
SHIFTED_LIMIT = 6  # ticks flown on an old solution before the vehicle is slowed down instead
BRAKE_GAIN = 1.0  # 1/s, of the velocity while slowing down
BRAKE_LIMIT = 5.0  # m/s^2
LEVEL_GAIN = 8.0  # 1/s, attitude error to body rates while slowing down


class Source(enum.StrEnum):
    """Where a command comes from, best first."""

    SOLVED = "solved"
    SHIFTED = "shifted previous solution"
    LEVEL = "level and slow"


@dataclass(frozen=True, slots=True)
class Control:
    """One command in SI and how it came about."""

    u: Array  # (4,) body rates rad/s and thrust m/s^2
    q_wb: Array  # (4,) the attitude this leads to one step of the horizon later
    source: Source
    reason: str  # why it is not a solution; empty when it is
    status: int  # of the solver
    solve_s: float
    theta: float  # s of plan time
    reference: Array  # (14,) p, q, v, u of the plan at theta


class Controller:
    """Flies a plan. One call of `step` per command, and one of `prepare` after it, when there is time."""

    def __init__(
        self,
        plan: Plan,
        vehicle: Vehicle,
        problem: Problem,
        solver: Solver,
        adaptation: Adaptation,
        course: tuple[Gate, ...] = (),
    ):
        """`course`: the plan's gates in the order of flight, for the terms that know of gates."""
        self.reference = Reference(plan, vehicle, course)
        self.theta, self.pace = 0.0, 1.0
        self.residuals = Residuals(vehicle, adaptation)
        self._problem, self._solver = problem, solver
        self._low, self._high = (limit[:NU] for limit in problem.input_limits(vehicle))
        self._predictor = Predictor(vehicle)
        horizon = problem.settings.horizon
        self._step_s = horizon.step_s
        self._horizon: Array = np.linspace(0.0, horizon.steps * horizon.step_s, horizon.steps + 1)
        self._fading = np.exp(-self._horizon / adaptation.residual_s)[:, None]
        self._parameters = np.zeros((horizon.steps + 1, NP))
        self._x0 = np.zeros(problem.x.size)
        self._before: tuple[float, Array] | None = None  # time and state, thrust included, of the step before
        self._last: tuple[float, Array, Array] | None = None  # time, x and u of the last good solution
        self._warm = self._prepared = False
        self._due = 0.0  # the time for which `theta` is meant
        self._failures = 0

    def step(self, t: float, x: Array, dt: float) -> Control:
        """The command for the state x (14,) at time t; dt is the time until the next one, s."""
        if not np.isfinite(x).all():
            self._before = None
            return self._fall_back(t, x, "the state is not finite", -1, 0.0)
        self._learn(t, x)
        ahead = self._predictor.ahead(t, x, self.residuals.belief)
        late = t - self._due
        if self._last is not None and abs(late) > dt / 2:
            self.theta, self._prepared = self.theta + late * self.pace, False
        if not self._prepared:
            self.prepare()
        solution = self._solver.solve(self._initial(ahead))
        self._prepared = False
        good = solution.status == 0 and bool(np.isfinite(solution.u).all() and np.isfinite(solution.x).all())
        theta = self.theta
        if not self._problem.contouring:
            self.pace = self.reference.keep_pace(self.pace, theta, ahead[V], dt)
        elif good:
            self.pace = float(solution.x[0, NX + 1] + dt * solution.u[0, NU])
        self.theta, self._due = self.reference.advance(theta, ahead[P], dt, self.pace), t + dt
        if not good:
            self._warm = False
            reason = f"solver status {solution.status}" if solution.status else "the solution is not finite"
            return self._fall_back(t, ahead, reason, solution.status, solution.solve_s)
        self._last, self._failures, self._warm = (t, solution.x, solution.u), 0, True
        return self._send(t, solution.u[0, :NU], solution.x[1, Q], Source.SOLVED, "", 0, solution.solve_s, theta)

    def prepare(self) -> None:
        """Sets and linearises the problem of the next step."""
        rows = self.reference.sample(self._progress())
        rows[:, PACE] = self.pace
        parameters = self._parameters
        parameters[:, :NR], parameters[:, NR:] = rows, self.residuals.belief
        parameters[:, RESIDUAL] *= self._fading
        if not self._warm:
            self._restart(rows)
        self._solver.prepare(parameters)
        self._prepared = True

    def _progress(self) -> Array:
        """Where along the plan each stage is expected (N + 1,)."""
        if not (self._problem.contouring and self._warm and self._last):
            return self.theta + self.pace * self._horizon
        theta = self._last[1][:, NX]
        return self.theta + theta - theta[0]

    def _initial(self, ahead: Array) -> Array:
        """The initial state of the problem; the quaternion of the same sign as the plan's."""
        x0 = self._x0
        x0[:NX] = ahead
        if self._parameters[0, REFERENCE["q"].at] @ ahead[Q] < 0:
            x0[Q] *= -1.0
        if self._problem.contouring:
            x0[NX], x0[NX + 1] = self.theta, self.pace
        return x0

    def _learn(self, t: float, x: Array) -> None:
        """Compares where the model went since the step before with where the vehicle is."""
        before, belief = self._before, self.residuals.belief
        now = x.copy()
        now[C] = thrust = self._predictor.thrust_at(t)
        if before is not None and 0 < t - before[0] < LEARN_LIMIT_S:
            start = before[1].copy()
            start[C] *= belief[SCALE]
            reached = self._predictor.fly(start, before[0], t, belief)
            self.residuals.update(
                now, now[V] - reached[V], self._predictor.acting, (thrust + before[1][C]) / 2, t - before[0]
            )
        self._before = (t, now)

    def _restart(self, rows: Array) -> None:
        """Gives the solver the reference as its first guess."""
        x, u = np.zeros((len(rows), self._problem.x.size)), np.zeros((len(rows) - 1, self._problem.u.size))
        x[:, : V.stop], x[:, W], x[:, C] = rows[:, : V.stop], rows[:, U_W], rows[:, U_C]
        u[:, :NU] = rows[:-1, U_W.start : U_C + 1]
        if self._problem.contouring:
            x[:, NX], x[:, NX + 1] = rows[:, THETA], self.pace
        self._solver.start(x, u)

    def _fall_back(self, t: float, x: Array, reason: str, status: int, solve_s: float) -> Control:
        """Without a solution: the old one, as long as it reaches; then level and slow."""
        self._failures += 1
        if self._last is not None and self._failures <= SHIFTED_LIMIT:
            since, states, inputs = self._last
            k = min(int((t - since) / self._step_s), len(inputs) - 1)
            return self._send(t, inputs[k, :NU], states[k + 1, Q], Source.SHIFTED, reason, status, solve_s, self.theta)
        u, q_wb = level(x)
        return self._send(t, u, q_wb, Source.LEVEL, reason, status, solve_s, self.theta)

    def _send(
        self, t: float, u: Array, q_wb: Array, source: Source, reason: str, status: int, solve_s: float, theta: float
    ) -> Control:
        u = np.minimum(np.maximum(u, self._low), self._high)
        self._predictor.sent(t, u)
        return Control(u, q_wb, source, reason, status, solve_s, theta, self._parameters[0, : U_C + 1].copy())


def level(x: Array) -> tuple[Array, Array]:
    """Input and attitude that brake gently, from the state x (14,); hover if the state is unknown."""
    if not np.isfinite(x).all():
        return np.array([0.0, 0.0, 0.0, GRAVITY]), np.array([1.0, 0.0, 0.0, 0.0])
    brake = -BRAKE_GAIN * x[V]
    brake *= min(1.0, BRAKE_LIMIT / max(float(np.linalg.norm(brake)), 1e-9))
    thrust_w = brake - np.array([0.0, 0.0, GRAVITY])
    down = -thrust_w / np.linalg.norm(thrust_w)
    q_wb = aligned(down, matrix(x[Q])[:, 0])
    rates = LEVEL_GAIN * log(product(conjugate(x[Q]), q_wb))
    return np.array([*rates, np.linalg.norm(thrust_w)]), q_wb
