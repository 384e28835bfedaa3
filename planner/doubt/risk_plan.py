"""Chance-constrained planning: plan, predict the covariance, allocate the risk to edges, set margins by quantiles, repeat.

The covariance is no state of the optimal control problem, since it hardly depends on the path: on VQ1 the active margins
change by 9, 2, 1 and 0.2 mm from round to round, sigma by 1 mm at most, and it would add 3160 states to 14.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.course.solids import FreeSpace
from planner.doubt.allocation import ACTIVE_M, quantile, reallocated, risk_of, uniform
from planner.doubt.prediction import Crossing, edges_of, predict
from planner.doubt.solids import near_solids
from planner.options import RISK_MOST, PlanOptions
from planner.plan import Plan
from planner.task import Task
from vehicle.errors import UserError
from vehicle.rotation import Array

ROUNDS = 8  # largest number of rounds (chosen)
SETTLED_M = 0.005  # m, change of the active margins below which the rounds end
FASTER_S = 1e-3  # s, gain of flight time below which the rounds end

# Plan under options, from a warm start; None without a certified plan.
Solve = Callable[[PlanOptions, Plan | None], Plan | None]


@dataclass(frozen=True, eq=False)
class EdgeDistances:
    """Distances of a plan and standard deviations towards all J edges, then towards the K solids near it."""

    crossings: tuple[Crossing, ...]
    solids: tuple[str, ...]  # names
    room_m: Array  # (J + K,) m, from the body's sphere
    sigma_m: Array  # (J + K,) m

    @property
    def edges(self) -> int:
        """Number J of edges."""
        return len(self.room_m) - len(self.solids)

    @property
    def total(self) -> float:
        """Risk of the plan: the sum over edges and solids, an upper bound."""
        return float(risk_of(self.room_m, self.sigma_m).sum())

    def options(self, base: PlanOptions, margins_m: Array) -> PlanOptions:
        """Return options with the margins (J + K,), m, beyond the body's sphere."""
        ends = np.cumsum([len(edges_of(one.gate)) for one in self.crossings])
        parts = iter(np.split(margins_m[: self.edges], ends[:-1]))
        by_gate = tuple(tuple(next(parts).tolist()) for _ in self.crossings)
        by_solid = tuple(zip(self.solids, margins_m[self.edges :].tolist(), strict=True))
        return replace(base, edge_margins_m=by_gate, solid_margins_m=by_solid)


def plan_at_risk(task: Task, solve: Solve, warm: Plan | None) -> Plan:
    """Return the fastest plan found whose risk is at most that of the task's options.

    Rounds end when the margins have settled, or when a plan gains nothing, since visibility changes in steps.

    Args:
        solve: plans the same course under other options.
        warm: a plan for a warm start.

    Raises:
        UserError: an opening is too small for the uncertainty, or no plan was found within the risk.
    """
    risk, base = task.options.risk, replace(task.options, risk=None)
    assert risk is not None
    plan, best, before, shares = solve(base, warm), None, None, np.zeros(0)
    for _ in range(ROUNDS):
        if plan is None:
            break
        rooms = _rooms(plan, task)
        kept = len(shares) == len(rooms.room_m)
        shares = reallocated(shares, rooms.room_m, rooms.sigma_m) if kept else uniform(risk, len(rooms.room_m))
        margins = quantile(shares) * rooms.sigma_m
        if rooms.total <= risk:
            if best is not None and plan.total_time > best.total_time - FASTER_S:
                break
            best = plan
        elif best is not None:
            break
        if before is not None and len(before) == len(margins):
            touched = rooms.room_m <= before + ACTIVE_M
            if best is not None and float(np.abs(margins - before)[touched].max(initial=0.0)) < SETTLED_M:
                break
        if best is None:
            _require_room(task, rooms, margins)
        plan, before = solve(rooms.options(base, margins), plan), margins
    if best is None:
        raise UserError(
            f"{task.track.name}: --risk {risk:g}: no plan within this risk was found; give a higher --risk, or --margin instead"
        )
    return best


def _rooms(plan: Plan, task: Task) -> EdgeDistances:
    prediction, radius = predict(plan, task, task.options.doubt), task.vehicle.contact_radius_m
    crossings = prediction.crossings
    near = near_solids(prediction, task, FreeSpace.of(task).solids)
    room = np.concatenate([*(one.distances_m - radius for one in crossings), [one.room_m for one in near]])
    sigma = np.concatenate([*(one.sigmas_m for one in crossings), [one.sigma_m for one in near]])
    return EdgeDistances(crossings, tuple(one.name for one in near), room, sigma)


def _require_room(task: Task, rooms: EdgeDistances, margins_m: Array) -> None:
    """Check that the margins of opposite edges leave room between them.

    Raises:
        UserError: they do not; the message gives a feasible risk.
    """
    radius, first = task.vehicle.contact_radius_m, 0
    for i, one in enumerate(rooms.crossings):
        count = len(edges_of(one.gate))
        keep, sigma = margins_m[first : first + count] + radius, rooms.sigma_m[first : first + count]
        normals, h = edges_of(one.gate)[:, :2], edges_of(one.gate)[:, 2]
        opposite = normals @ normals.T < -0.99
        wide = (h[:, None] + h)[opposite] - (keep[:, None] + keep)[opposite]
        if len(wide) and wide.min() <= 0:
            least = float(rooms.edges * risk_of(np.array(one.gate.half - radius), sigma.max()))
            remedy = (
                f"--risk {least:.1g}" if least <= RISK_MOST else "a wider opening, or a smaller uncertainty (--doubt),"
            )
            raise UserError(
                f"{task.track.name}: gates[{task.number(i)}]: the opening of {2 * one.gate.half:g} m is too small for --risk"
                f" {task.options.risk:g}: {2 * one.gate.half - float(wide.min()):.2f} m are needed at"
                f" a predicted standard deviation of {sigma.max():.2f} m; {remedy} would fit"
            )
        first += count
