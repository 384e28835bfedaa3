"""Hand-over to a new plan in flight, requested one planner latency ahead from the state the controller predicts for then.

The plan stays in the map frame, from which the controller shifts it to the estimated gates, and in the time of the first
plan, so that gates keep their numbers.
"""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.mpc.controller import Controller
from gate_racer.pilot.flight import Replan
from gate_racer.pilot.replanning.planners import RemainderPlanner
from gate_racer.pilot.replanning.worth import VehicleEstimate
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.replanning import Remainder, ReplanResult
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

BELOW = 1 - 1e-6  # factor just inside a limit, against rounding
P, V, C = RATES_X["p"].at, RATES_X["v"].at, RATES_X["c"].at.start


@dataclass(frozen=True, slots=True)
class ReplanningConfig:
    """Conditions to request a plan and to take it over."""

    apart_s: float = 0.1  # s of plan time, least distance from its start to a gate: the next gate must be unambiguous
    join_m: float = 0.3  # m, largest distance of the vehicle from its start: a third of the free room in an opening
    join_m_s: float = 3.0  # m/s, largest difference in velocity: what thrust changes in a tenth of a second
    least_s: float = 0.05  # s of flight, least saving


@dataclass(frozen=True, slots=True)
class _Request:
    """Request to the planner, until its answer is due."""

    rest: Remainder
    x: Array  # (14,) predicted state, in the frame of the estimate
    estimate: VehicleEstimate  # for which the plan is made
    asked_t: float  # s, time of the request
    due_t: float  # s, time of the first command by the new plan

    @property
    def before_s(self) -> float:
        """Remaining flight time from there by the current plan, s."""
        return self.rest.plan.total_time - self.rest.from_s


class Replanning:
    """Replanning of one flight. Call `follow` once per command, before it."""

    def __init__(
        self,
        controller: Controller,
        plan: Plan,
        track: Track,
        vehicle: Vehicle,
        options: PlanOptions,
        planner: RemainderPlanner,
        config: ReplanningConfig | None = None,
    ):
        """Create it; `options` are those of the plan."""
        self._controller, self._track, self._vehicle, self._planner = controller, track, vehicle, planner
        self._options, self._config = options, config or ReplanningConfig()
        self.plan, self.vehicle, self._planned = plan, vehicle, VehicleEstimate()
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
            if answer is not None and not why:
                self._take_over(request, answer, t - request.due_t + early_s)
            after_s, solve_s = (answer.rest_s, answer.solve_s) if answer is not None else (None, None)
            self.made.append(
                Replan(
                    asked_s=request.asked_t - go_t,
                    taken_s=t - go_t if not why else None,
                    thrust=request.estimate.thrust,
                    drag=request.estimate.drag,
                    before_s=request.before_s,
                    after_s=after_s,
                    solve_s=solve_s,
                    why=why,
                )
            )

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
        if x is None or theta > gates_s[-1] or np.abs(gates_s - theta).min() < self._config.apart_s:
            return None
        moved, moving = (rows[0] for rows in controller.reference.belief.line(np.array([theta])))
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
        config = self._config
        if answer is None:
            return "no answer in time"
        if not answer.ok:
            return answer.status
        save_s = request.before_s / self._controller.progress.most - answer.rest_s
        if save_s < config.least_s:
            return f"saves only {save_s:.2f} s"
        if not (off_m <= config.join_m and off_m_s <= config.join_m_s):
            return f"starts {off_m:.2f} m and {off_m_s:.1f} m/s off the vehicle's state"
        return ""

    def _take_over(self, request: _Request, answer: ReplanResult, since_s: float) -> None:
        """Continue by a plan that began since_s (s) ago, in its time."""
        self.plan, self.vehicle, self._planned = answer.plan, request.rest.vehicle, request.estimate
        self._controller.follow(self.plan, self.vehicle, request.rest.from_s + since_s)
