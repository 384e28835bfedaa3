"""Controller from state estimate to command: delay prediction, progress along the plan, solver, fall-backs.

The next problem is prepared between two commands (`prepare`), so that a command waits for the feedback phase only.
Fall-backs without a solution, in this order: the previous solution, for a few ticks; a spare solver; the geometric
controller, slowly along the plan; and braking, if there is no plan or no state.
"""

import math
import time
from collections.abc import Sequence

import numpy as np

from gate_racer.mpc.adaptation import DisturbanceEstimator, ResponseEstimator, load_adaptation
from gate_racer.mpc.avoidance import AvoidanceTube, displace
from gate_racer.mpc.control import Control, EstimatedParameters, Source
from gate_racer.mpc.geometric import SLOW, SLOWING_S, brake, follow
from gate_racer.mpc.model import PARAMETERS, Allocation, Predictor, unpack
from gate_racer.mpc.problem import Problem, Solution, Solver
from gate_racer.mpc.reference import PACE, TARGET_PACE, PlanProgress, Reference
from gate_racer.mpc.terms import NP, NR, REFERENCE
from gate_racer.planner.plan import Plan
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import RATES_U, RATES_X
from gate_racer.vehicle.rotation import Array, exp, product
from gate_racer.vehicle.vehicle import Vehicle

P, Q, V, W = (RATES_X[name].at for name in "pqvw")
C, U_C = RATES_X["c"].at.start, REFERENCE["u_c"].at.start
RESIDUAL = slice(NR + PARAMETERS["residual"].at.start, NP)
SCALE, RATE_LAG = PARAMETERS["thrust_scale"].at.start, PARAMETERS["rate_lag"].at
NX, NU = RATES_X.size, RATES_U.size
LEARN_LIMIT_S = 0.1  # s, longest interval between two steps from which parameters are estimated
SHIFTED_LIMIT = 6  # most consecutive ticks flown on the previous solution
LEVEL_Q = np.array([1.0, 0.0, 0.0, 0.0])
MOVING_M_S = 1.0  # m/s, speed below which pad and ground disturb the estimation of the rate response
STALE_S = 1.0  # s, largest age of a state that the model still predicts to the present


class PlanController:
    """Predictive controller for a plan. Call `step` once per command, and `prepare` after it if time allows."""

    def __init__(
        self,
        plan: Plan,
        vehicle: Vehicle,
        problem: Problem,
        solver: Solver,
        course: tuple[Gate, ...] = (),
        spare: Solver | None = None,
        floor_m: float = math.inf,
    ):
        """Start at the beginning of a plan; a `spare` back-end is used when the solver fails. Others as in `Reference`."""
        self._course, self._floor_m = course, floor_m
        self.reference, adaptation = Reference(plan, vehicle, course, floor_m), load_adaptation()
        self.disturbance = DisturbanceEstimator(vehicle, adaptation)
        self._formulation, self.solver, self._spare = problem.formulation, solver, spare
        self._low, self._high = (limit[:NU] for limit in problem.input_limits(vehicle))
        self._attitude_gain = vehicle.attitude_gain_1_s
        self.predictor, self._allocation = Predictor(vehicle), Allocation(vehicle)
        self.response = ResponseEstimator(vehicle, self.predictor, adaptation.response)
        settings, horizon = problem.settings, problem.settings.horizon
        most = settings.headroom * self._high[-1]
        self._step_s = horizon.step_s
        self._horizon: Array = np.linspace(0.0, horizon.steps * horizon.step_s, horizon.steps + 1)
        slowing, camera = settings.pace_change_max * self._horizon, vehicle.camera if course else None
        self.progress = PlanProgress(most, horizon.steps + 1, settings.pace_max, camera, slowing)
        self._fading = np.exp(-self._horizon / adaptation.residual_s)[:, None]
        self._parameters = np.zeros((horizon.steps + 1, NP))
        self._x0 = np.zeros(problem.formulation.x.size)
        self._before: tuple[float, Array] | None = None  # time, s, and state (14,) of the previous step
        self._last: tuple[float, Array, Array] | None = None  # time, s, x and u of the last good solution
        self._warm = self._prepared = self._whole = False
        self.others: Sequence[AvoidanceTube] = ()  # tubes of vehicles that have priority
        self.due_t = 0.0  # s, time of the next command, to which `theta` refers
        self.flies = True  # else another flies, whose inputs are reported to the predictor
        self._failures = 0

    @property
    def theta(self) -> float:
        return self.progress.theta

    @property
    def learned(self) -> EstimatedParameters:
        thrust, drag, lift = self.disturbance.theta[:3].tolist()
        return EstimatedParameters(thrust, drag, lift, self.response.delay_s, self.response.lag_scale)

    def begin_at(self, p_w: Array) -> None:
        """Start the course at p_w (3,) m, world NED; it joins the plan's line at the first gate."""
        self.reference.offsets.set_start_offset(np.zeros(3))
        self.reference.offsets.set_start_offset(p_w - self.reference.sample(np.zeros(1))[0, P])

    def ahead(self, t: float, x: Array, age: float) -> Array:
        """Predict the state (14,) when a command issued at t (s) acts, from the state x (14,) at t - age."""
        return self.predictor.ahead(t, x, self.disturbance.parameters, max(age, 0.0))

    def allocated(self, u: Array, x: Array) -> Array:
        """Return the input (4,) nearest to u (4,) within the limits, and the rotors' range if the state x (14,) is finite."""
        if np.isfinite(x).all():
            u = self._allocation.within(u, x[W])
        return np.minimum(np.maximum(u, self._low), self._high)

    def rejoin(self, theta: float, pace: float) -> None:
        """Continue at another point of the plan, theta in s of plan time, and discard previous solutions."""
        self.progress.theta, self.progress.pace = theta, pace
        self._before = self._last = None
        self._warm = self._prepared = False
        self._failures = 0

    def follow(self, plan: Plan, vehicle: Vehicle, theta: float, course: tuple[Gate, ...] | None = None) -> None:
        """Continue with another plan through the same gates, made for `vehicle`, from theta, s of its time, at pace 1.

        The plan begins at the vehicle's present state, so that the last solution stays the initial guess. `course`: the gates, if
        the plan was made for where they stand; else they keep their offsets.
        """
        offsets, self._course = self.reference.offsets, course or self._course
        self.reference = Reference(plan, vehicle, self._course, self._floor_m)
        if course is None:
            self.reference.offsets.take(offsets)
        self.progress.theta, self.progress.pace = theta, 1.0
        self._prepared = False

    def expected(self, t: float, ahead_s: float) -> Array | None:
        """Return the state (14,) of the last solution at t + ahead_s, s, when that command will act; None beyond its horizon."""
        if self._last is None or not self._warm:
            return None
        since, states, _ = self._last
        k, share = divmod((t + ahead_s - since) / self._step_s, 1.0)
        if not 0 <= k < len(states) - 1:
            return None
        x = states[int(k), :NX] + share * (states[int(k) + 1, :NX] - states[int(k), :NX])
        x[Q] /= np.linalg.norm(x[Q])
        return np.asarray(x)

    def way(self, within_s: float) -> Array:
        """Return the positions (M, 3) m, world NED, of the last solution within that time; none without a solution."""
        return self._last[1][: int(within_s / self._step_s) + 1, P] if self._last and self._warm else np.empty((0, 3))

    def step(self, t: float, x: Array, dt: float, age: float = 0.0) -> Control:
        """Compute the command at t, s, from the state x (14,) at t - age; dt is the time until the next command, s."""
        begin = time.perf_counter()
        ahead, reason = self._ahead(t, x, age)
        late = t - self.due_t
        if self._last is not None:  # progress continues over a late call
            self.progress.theta += late * self.progress.pace
            self._prepared = self._prepared and abs(late) < dt / 2
        if not self._prepared:
            self.prepare()
        theta, solution = self.theta, None
        if not reason and not self._whole:
            reason = "the reference is not finite"
        if not reason:
            self._x0[:] = self._formulation.initial(ahead, self.progress)
            if self._parameters[0, REFERENCE["q"].at] @ ahead[Q] < 0:  # into the hemisphere of the plan's
                self._x0[Q] *= -1.0
            solution = self.solver.solve(self._x0)
            reason = _fault(solution)
        self._prepared = False
        status, solve_s = (solution.status, solution.solve_s) if solution else (-1, 0.0)
        source = Source.SOLVED
        if reason:
            self._failures, self._warm = self._failures + 1, False
            source, solution = self._fall_back(ahead, solution is not None)
        u, q_wb = self._command(t, source, solution, ahead)
        row = self._parameters[0]
        if source is Source.GEOMETRIC:
            slow = min(SLOW, self.progress.limit)
            self.progress.pace += (slow - self.progress.pace) * dt / SLOWING_S
        elif solution is not None:
            self._formulation.drive(self.progress, solution, row, ahead[V], dt)
        self.progress.advance(row, ahead[P], dt)
        self.due_t, reference = t + dt, row[: U_C + 1].copy()
        return Control(u, q_wb, source, reason, status, solve_s, time.perf_counter() - begin, theta, reference)

    def prepare(self) -> None:
        """Set up and linearise the problem of the next step."""
        last = self._last[1] if self._warm and self._last else None
        rows = self.reference.sample(self._formulation.stages(self.progress, self._horizon, last))
        rows[:, PACE] = self.progress.pace
        length_ratio: Array | float = 1.0
        if self.others:
            length_ratio = displace(rows, self.due_t + self.predictor.delay_s + self._horizon, self.others)
        self._whole = bool(np.isfinite(rows).all())
        parameters = self._parameters
        parameters[:, :NR], parameters[:, NR:] = rows, self.disturbance.parameters
        parameters[:, RESIDUAL] *= self._fading
        self._prepared = True
        if not self._whole:
            return
        parameters[:, TARGET_PACE] = self.progress.look_ahead(parameters, length_ratio)
        if not self._warm:
            self.solver.start(*self._formulation.first_guess(rows))
        self.solver.prepare(parameters)

    def _ahead(self, t: float, x: Array, age: float) -> tuple[Array, str]:
        """Return the predicted state (14,) when a command issued at t acts, and the reason why there is none, or ""."""
        if not np.isfinite(x).all():
            self._before = None
            return np.full(NX, np.nan), "the state is not finite"
        if age > STALE_S:
            self._before = None
            return np.full(NX, np.nan), f"the state is older than {STALE_S:g} s"
        self._learn(t - age, x)
        return self.ahead(t, x, age), ""

    def _fall_back(self, ahead: Array, solvable: bool) -> tuple[Source, Solution | None]:
        """Return the best source of a command other than the solver, and its solution if it has one."""
        if self._last is not None and self._failures <= SHIFTED_LIMIT:
            return Source.SHIFTED, None
        if solvable and self._spare is not None:
            self._spare.start(*self._formulation.first_guess(self._parameters[:, :NR]))
            self._spare.prepare(self._parameters)
            solution = self._spare.solve(self._x0)
            if not _fault(solution):
                return Source.SPARE, solution
        known = np.isfinite(ahead).all() and np.isfinite(self._parameters[0]).all()
        return (Source.GEOMETRIC if known else Source.LEVEL), None

    def _command(self, t: float, source: Source, solution: Solution | None, ahead: Array) -> tuple[Array, Array]:
        """Return input (4,) and attitude setpoint (4,) from a source, within the limits, and record the input as sent."""
        q_wb = ahead[Q] if np.isfinite(ahead).all() else LEVEL_Q
        if solution is not None:
            u = solution.u[0, :NU]
        elif source is Source.SHIFTED and self._last is not None:
            since, states, inputs = self._last
            k = min(int((t - since) / self._step_s), len(inputs) - 1)
            u, q_wb = inputs[k, :NU], states[k, Q]
        elif source is Source.GEOMETRIC:
            row, following = self._parameters[:2]
            u = follow(row[:NR], following[:NR], self._step_s, self.progress.pace, ahead, unpack(row[NR:]))
        else:
            u = brake(ahead)
        if source is Source.SOLVED and solution is not None:
            self._last, self._failures, self._warm = (t, solution.x, solution.u), 0, True
        u = self.allocated(u, ahead)
        if self.flies:
            self.predictor.sent(t, u)
        return u, np.array(product(q_wb, exp(u[:3] / self._attitude_gain)))

    def _learn(self, t: float, x: Array) -> None:
        """Update the parameter estimates from the model's prediction error between the previous step and t."""
        before, model = self._before, self.disturbance.parameters
        now = x.copy()
        now[C] = thrust = self.predictor.thrust_at(t)
        if before is not None and 0 < t - before[0] < LEARN_LIMIT_S:
            start = before[1].copy()
            start[C] *= model[SCALE]
            reached = self.predictor.fly(start, before[0], t, model)
            acting, mean = self.predictor.acting, (thrust + before[1][C]) / 2
            self.disturbance.update(now, now[V] - reached[V], acting, mean, t - before[0])
            if now[V] @ now[V] > MOVING_M_S**2:
                self.response.update(before[0], before[1][W], t, now[W])
                self.predictor.delay_s = self.response.delay_s
                model[RATE_LAG] = self.response.rate_lag_s
        self._before = (t, now)


def _fault(solution: Solution) -> str:
    if solution.status:
        return solution.fault or f"solver status {solution.status}"
    return "" if np.isfinite(solution.u).all() and np.isfinite(solution.x).all() else "the solution is not finite"
