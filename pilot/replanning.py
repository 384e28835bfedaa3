"""Replanning in flight: whether it pays, in which process, and the hand-over to the new plan.

Criterion for replanning: the vehicle performs better than its plan assumed, by more than the controller can exploit.

For thrust against drag, v^2 = thrust / drag: the square of the speed is proportional to

    r = (thrust now / thrust planned with) / (drag now / drag planned with)

A controller flies a plan faster by up to its greatest pace; where r exceeds the square of that, a new plan gains the
difference. A weaker vehicle needs none: it flies the same line slower (0.2 % of time at 15 % less thrust). With more drag a new
plan is even slower, since it keeps the gates in view from a body that tilts further.

A plan is requested one planner latency ahead from the state the controller predicts for then. It stays in the map
frame, from which the controller shifts it to the estimated gates, and in the time of the first plan, so that gates keep
their numbers.
"""

import contextlib
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import numpy as np

from gate_racer.common.compiled import warm_up
from gate_racer.common.process import Worker, ignore_signals
from gate_racer.mpc.controller import PlanController
from gate_racer.pilot.flight import Replan
from gate_racer.planner.plan import Plan
from gate_racer.planner.replanning import Remainder, ReplanResult, replan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array, as_vector
from gate_racer.vehicle.vehicle import Vehicle

BETTER = 1.1  # r above which a plan is requested: `mpcc` flies a plan at up to 1.05 of its pace, the square root
DRAG_LEAST = 0.2  # least drag relative to the file's: smaller values are an estimation error


@dataclass(frozen=True, slots=True)
class VehicleEstimate:
    """Thrust and drag estimated in flight, relative to the vehicle's file."""

    thrust: float = 1.0
    drag: float = 1.0
    sigma: float = 0.0  # standard deviation of the logarithm of thrust over drag

    @staticmethod
    def of(scales: Array, cov: Array) -> "VehicleEstimate":
        """Create from the scales (2,) of thrust and drag and their covariance (2, 2); only their ratio affects the speed."""
        thrust, drag = float(scales[0]), max(float(scales[1]), DRAG_LEAST)
        slope = np.array([1 / thrust, -1 / drag])
        return VehicleEstimate(thrust, drag, math.sqrt(max(float(slope @ cov @ slope), 0.0)))

    def worth_a_plan(self, planned: "VehicleEstimate") -> bool:
        """Return whether r, less one standard deviation, exceeds what a controller can exploit."""
        return (self.thrust / planned.thrust) / (self.drag / planned.drag) * math.exp(-self.sigma) > BETTER

    def vehicle(self, of: Vehicle) -> Vehicle:
        """Return the vehicle of a file with the estimated thrust and drag, as far as the `rates` model has them."""
        throttle = replace(of.throttle, thrust_m_s2=tuple(c * self.thrust for c in of.throttle.thrust_m_s2))
        linear_1_s = as_vector(self.drag * np.array(of.drag_linear_1_s))
        quadratic_1_m = self.drag * of.drag_quadratic_1_m
        return replace(of, throttle=throttle, drag_linear_1_s=linear_1_s, drag_quadratic_1_m=quadratic_1_m)


BEHIND = 5  # niceness, below the flight loop and perception
STANDING_S = 0.6  # s of simulator time charged for a plan in lock-step: twice the time of six gates on one core
SPARE = 1.5  # factor on the last solve time that the next may take
SOONEST_S, LATEST_S = 0.3, 0.9  # s, bounds of the latency; a controller's horizon of 1 s must be longer than the latest


class InlinePlanner:
    """Planner of the rest of a course that runs while the flight's time stands still, so that nothing depends on the load."""

    idle = True  # whether a request can be made
    latency_s = STANDING_S  # s, expected time from request to answer

    def __init__(self) -> None:
        self._answer: ReplanResult | None = None
        warm_up()

    def ask(self, rest: Remainder) -> None:
        """Request a plan of the rest. Earlier answers are dropped."""
        self._answer = replan(rest)

    def answer(self) -> ReplanResult | None:
        """Return the answer; None until there is one."""
        return self._answer

    def close(self) -> None:
        """Release nothing."""


class PlannerProcess:
    """The same in a process beside the loop. Once the process has died it is never idle again, and answers nothing."""

    def __init__(self, warm: Remainder):
        """Start the process and let it plan `warm`, so that all is loaded and the solve time known before the flight."""
        self.worker, self.latency_s = Worker(_work, name="planner"), LATEST_S
        self._carrier = ThreadPoolExecutor(1, "planner")  # since a pipe may block, and the flight loop must not
        self.ask(warm)

    @property
    def idle(self) -> bool:
        return self.asked.done() and self.asked.exception() is None

    def ask(self, rest: Remainder) -> None:
        self.asked = self._carrier.submit(self._exchange, rest)

    def answer(self) -> ReplanResult | None:
        return self.asked.result() if self.idle else None

    def close(self) -> None:
        self.worker.process.kill()  # its plan is no longer needed
        self._carrier.shutdown()
        self.worker.close(0.0)

    def _exchange(self, rest: Remainder) -> ReplanResult:
        begin = time.monotonic()
        self.worker.pipe.send(rest)
        answer: ReplanResult = self.worker.pipe.recv()
        self.latency_s = min(max(SPARE * (time.monotonic() - begin), SOONEST_S), LATEST_S)
        return answer


RemainderPlanner = InlinePlanner | PlannerProcess


def _work(pipe: Connection) -> None:
    ignore_signals()
    if hasattr(os, "nice"):
        os.nice(BEHIND)
    warm_up()
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        replan(rest := pipe.recv())  # the first solve loads what later ones need
        while True:
            pipe.send(replan(rest))
            rest = pipe.recv()


BELOW = 1 - 1e-6  # factor just inside a limit, against rounding
P, V, C = RATES_X["p"].at, RATES_X["v"].at, RATES_X["c"].at.start
# Conditions to request a plan and to take it over.
APART_S = 0.1  # s of plan time, least distance from its start to a gate: the next gate must be unambiguous
JOIN_M = 0.3  # m, largest distance of the vehicle from its start: a third of the free room in an opening
JOIN_M_S = 3.0  # m/s, largest difference in velocity: what thrust changes in a tenth of a second
LEAST_S = 0.05  # s of flight, least saving


@dataclass(frozen=True, slots=True)
class _Request:
    rest: Remainder
    x: Array  # (14,) predicted state, in the frame of the estimate
    estimate: VehicleEstimate  # for which the plan is made
    asked_t: float  # s, time of the request
    due_t: float  # s, time of the first command by the new plan

    @property
    def before_s(self) -> float:
        return self.rest.plan.total_time - self.rest.from_s


class Replanning:
    """Replanning of one flight. Call `follow` once per command, before it."""

    def __init__(
        self,
        controller: PlanController,
        plan: Plan,
        track: Track,
        vehicle: Vehicle,
        options: PlanOptions,
        planner: RemainderPlanner,
    ):
        self._controller, self._track, self._vehicle, self._planner = controller, track, vehicle, planner
        self.plan, self.vehicle, self._planned, self._options = plan, vehicle, VehicleEstimate(), options
        self._request: _Request | None = None
        self.made: list[Replan] = []

    def follow(self, t: float, go_t: float) -> None:
        """Request a plan, or take over the one requested, at t (s); GO was at go_t (s)."""
        request = self._request
        if request is None:
            self._request = self._request_plan(t)
        elif t >= request.due_t:
            self._request, answer = None, self._planner.answer()
            early_s, off_m, off_m_s = self._offsets(request)
            why = self._refused(request, answer, off_m, off_m_s)
            if answer is not None and not why:  # continue by a plan that began a moment ago, in its time
                self.plan, self.vehicle, self._planned = answer.plan, request.rest.vehicle, request.estimate
                self._controller.follow(self.plan, self.vehicle, request.rest.from_s + (t - request.due_t + early_s))
            after_s, solve_s = (answer.rest_s, answer.solve_s) if answer is not None else (None, None)
            asked_s, taken_s, of = request.asked_t - go_t, None if why else t - go_t, request.estimate
            self.made.append(Replan(asked_s, taken_s, of.thrust, of.drag, request.before_s, after_s, solve_s, why))

    def forget(self) -> None:
        """Drop the request: the plan is not followed for now."""
        self._request = None

    def _request_plan(self, t: float) -> _Request | None:
        controller = self._controller
        estimate = VehicleEstimate.of(*controller.disturbance.vehicle)
        if not self._planner.idle or not estimate.worth_a_plan(self._planned):
            return None
        ahead_s = self._planner.latency_s
        theta = controller.progress.theta + controller.progress.pace * ahead_s
        gates_s, x = controller.reference.gate_times_s, controller.expected(t, ahead_s)
        if x is None or theta > gates_s[-1] or np.abs(gates_s - theta).min() < APART_S:
            return None
        moved, moving = (rows[0] for rows in controller.reference.offsets.line(np.array([theta])))
        on_map = x.copy()
        on_map[P] -= moved
        on_map[V] -= moving * controller.progress.pace
        vehicle = estimate.vehicle(self._vehicle)
        on_map[C] = min(on_map[C], vehicle.thrust_max)
        on_map[V] *= min(BELOW * vehicle.speed_max_m_s / max(float(np.linalg.norm(on_map[V])), 1e-6), 1.0)
        rest = Remainder(self.plan, theta, on_map, self._track, vehicle, self._options)
        self._planner.ask(rest)
        return _Request(rest, x, estimate, t, t + ahead_s)

    def _offsets(self, request: _Request) -> tuple[float, float, float]:
        """Return the lead (s) of the vehicle over the start of the new plan, and its offsets (m) and (m/s) beside it."""
        x = self._controller.expected(request.due_t, 0.0)
        if x is None:
            return 0.0, math.inf, math.inf
        off, v = x - request.x, request.x[V]
        early_s = float(off[P] @ v) / max(float(v @ v), 1.0)
        return early_s, float(np.linalg.norm(off[P] - early_s * v)), float(np.linalg.norm(off[V]))

    def _refused(self, request: _Request, answer: ReplanResult | None, off_m: float, off_m_s: float) -> str:
        """Return why a plan is not taken over; empty if it is."""
        if answer is None:
            return "no answer in time"
        if not answer.ok:
            return answer.status
        save_s = request.before_s / self._controller.progress.most - answer.rest_s
        if save_s < LEAST_S:
            return f"saves only {save_s:.2f} s"
        if not (off_m <= JOIN_M and off_m_s <= JOIN_M_S):
            return f"starts {off_m:.2f} m and {off_m_s:.1f} m/s off the vehicle's state"
        return ""
