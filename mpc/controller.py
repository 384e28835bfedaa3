"""From a state estimate to a command: predict over the delay, advance along the plan, solve, and never send garbage."""

import enum
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpc.predictor import Predictor
from mpc.problem import NP, REFERENCE, VEHICLE, Settings, input_limits, vehicle_parameters
from mpc.reference import Reference
from planner.plan import Plan
from vehicle.dynamics import GRAVITY, RATES_X
from vehicle.rotation import Array, aligned, conjugate, log, matrix, product
from vehicle.vehicle import Vehicle

P, Q, V, W = (RATES_X[name].at for name in "pqvw")
SHIFTED_LIMIT = 6  # ticks flown on an old solution before the vehicle is slowed down instead
BRAKE_GAIN = 1.0  # 1/s, of the velocity while slowing down
BRAKE_LIMIT = 5.0  # m/s^2
LEVEL_GAIN = 8.0  # 1/s, attitude error to body rates while slowing down


class Source(enum.StrEnum):
    """Where a command comes from, best first."""

    SOLVED = "solved"
    SHIFTED = "shifted previous solution"
    LEVEL = "level and slow"


class Solver(Protocol):
    """A back-end: acados, or anything that solves the same problem."""

    def start(self, x: Array, u: Array) -> None: ...
    def solve(self, x0: Array, parameters: Array): ...


@dataclass(frozen=True, slots=True)
class Control:
    """One command in SI and how it came about."""

    u: Array  # (4,) body rates rad/s and thrust m/s^2
    q_wb: Array  # (4,) the attitude this leads to one step of the horizon later
    source: Source
    status: int  # of the solver
    solve_s: float
    theta: float  # s of plan time
    reference: Array  # (14,) p, q, v, u of the plan at theta


class Controller:
    """Tracks a plan. One call of `step` per command."""

    def __init__(self, plan: Plan, vehicle: Vehicle, settings: Settings, solver: Solver):
        self.reference = Reference(plan, vehicle)
        self.theta = 0.0
        self._vehicle, self._settings, self._solver = vehicle, settings, solver
        self._low, self._high = input_limits(vehicle)
        self._predictor = Predictor(vehicle)
        self._horizon: Array = np.linspace(0.0, settings.steps * settings.step_s, settings.steps + 1)
        self._parameters = np.zeros((settings.steps + 1, NP))
        self._parameters[:, VEHICLE] = vehicle_parameters(vehicle)
        self._last: tuple[float, Array, Array] | None = None  # time, x and u of the last good solution
        self._failures = 0

    def step(self, t: float, x: Array, dt: float) -> Control:
        """The command for the state x (14,) at time t; dt is the time since the last one, s."""
        if not np.isfinite(x).all():
            return self._fall_back(t, x, -1, 0.0)
        ahead = self._predictor.ahead(t, x)
        self.theta = self.reference.advance(self.theta, ahead[P], dt)
        rows = self.reference.sample(self.theta + self._horizon)
        if rows[0, Q] @ ahead[Q] < 0:
            rows[:, Q] *= -1.0
        self._parameters[:, REFERENCE] = rows
        if self._last is None:
            self._restart(rows)
        solution = self._solver.solve(ahead, self._parameters)
        if solution.status != 0 or not (np.isfinite(solution.u).all() and np.isfinite(solution.x).all()):
            self._restart(rows)
            return self._fall_back(t, ahead, solution.status, solution.solve_s)
        self._last, self._failures = (t, solution.x, solution.u), 0
        return self._send(t, solution.u[0], solution.x[1, Q], Source.SOLVED, 0, solution.solve_s)

    def _restart(self, rows: Array) -> None:
        """Gives the solver the reference as its first guess."""
        guess = np.zeros((len(rows), RATES_X.size))
        guess[:, : V.stop], guess[:, W], guess[:, -1] = rows[:, : V.stop], rows[:, 10:13], rows[:, 13]
        self._solver.start(guess, rows[:-1, 10:14])

    def _fall_back(self, t: float, x: Array, status: int, solve_s: float) -> Control:
        """Without a solution: the old one, as long as it reaches; then level and slow."""
        self._failures += 1
        if self._last is not None and self._failures <= SHIFTED_LIMIT:
            since, states, inputs = self._last
            k = min(int((t - since) / self._settings.step_s), len(inputs) - 1)
            return self._send(t, inputs[k], states[k + 1, Q], Source.SHIFTED, status, solve_s)
        u, q_wb = self._level(x)
        return self._send(t, u, q_wb, Source.LEVEL, status, solve_s)

    def _level(self, x: Array) -> tuple[Array, Array]:
        """Input and attitude that brake gently; hover if the state is unknown."""
        if not np.isfinite(x).all():
            return np.array([0.0, 0.0, 0.0, GRAVITY]), np.array([1.0, 0.0, 0.0, 0.0])
        brake = -BRAKE_GAIN * x[V]
        brake *= min(1.0, BRAKE_LIMIT / max(float(np.linalg.norm(brake)), 1e-9))
        thrust_w = brake - np.array([0.0, 0.0, GRAVITY])
        down = -thrust_w / np.linalg.norm(thrust_w)
        q_wb = aligned(down, matrix(x[Q])[:, 0])
        rates = LEVEL_GAIN * log(product(conjugate(x[Q]), q_wb))
        return np.array([*rates, np.linalg.norm(thrust_w)]), q_wb

    def _send(self, t: float, u: Array, q_wb: Array, source: Source, status: int, solve_s: float) -> Control:
        u = np.clip(u, self._low, self._high)
        self._predictor.sent(t, u)
        reference = self.reference.sample(np.array([self.theta]))[0]
        return Control(u, q_wb, source, status, solve_s, self.theta, reference)
