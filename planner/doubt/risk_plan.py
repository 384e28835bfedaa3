"""Chance-constrained planning: plan, predict the covariance, allocate the risk to edges, set margins by quantiles, repeat.

The covariance is no state of the optimal control problem, since it hardly depends on the path: on VQ1 the active margins
change by 9, 2, 1 and 0.2 mm from round to round, sigma by 1 mm at most, and it would add 3160 states to 14.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.planner.course.solids import FreeSpace
from gate_racer.planner.doubt.allocation import ACTIVE_M, allocated, reallocated
from gate_racer.planner.doubt.prediction import Crossing, edges_of, predict
from gate_racer.planner.doubt.solids import near_solids
from gate_racer.planner.doubt.tails import Tails
from gate_racer.planner.options import RISK_MOST, PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.tracks import corridor
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array

ROUNDS = 8  # largest number of rounds (chosen)
SETTLED_M = 0.005  # m, change of the active margins below which the rounds end
OFFERED = 5.0  # -, risk that is offered over that of passages through the middle only; VQ2 needs 5
FASTER_S = 1e-3  # s, gain of flight time below which the rounds end

# Plan under options, from a warm start; None without a certified plan.
Solve = Callable[[PlanOptions, Plan | None], Plan | None]


@dataclass(frozen=True, eq=False)
class EdgeDistances:
    """Distances of a plan and deviations from it towards all J edges, then towards the K solids near it."""

    crossings: tuple[Crossing, ...]
    solids: tuple[str, ...]  # names
    room_m: Array  # (J + K,) m, from the body's sphere
    tails: Tails  # of J + K edges
    undrawn: Tails  # likewise, as in `Crossing`, for the margins of the next plan
    least_m: Array  # (J + K,) m, margin below which a plan would lie outside the controller's corridor, where it is not flown

    @property
    def edges(self) -> int:
        """Number J of edges."""
        return len(self.room_m) - len(self.solids)

    @property
    def total(self) -> float:
        """Risk of the plan: the sum over edges and solids, an upper bound."""
        return float(self.tails.risks(self.room_m).sum())

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
        parts = rooms.room_m, rooms.tails
        shares = reallocated(shares, *parts) if kept else allocated(risk, *parts)
        margins = np.maximum(rooms.undrawn.rooms(shares), rooms.least_m)
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
            _require_room(task, rooms, risk)
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
    beside = Tails.normal(np.array([one.sigma_m for one in near]))
    tails, undrawn = (
        Tails.joined([*parts, beside])
        for parts in ([one.slanted for one in crossings], [one.undrawn for one in crossings])
    )
    least = [np.full(len(one.inside_m), one.gate.half - radius - corridor.room(one.gate, radius)) for one in crossings]
    names = tuple(one.name for one in near)
    return EdgeDistances(
        crossings, names, room, tails, undrawn, np.maximum(np.concatenate([*least, np.zeros(len(near))]), 0.0)
    )


def _require_room(task: Task, rooms: EdgeDistances, risk: float) -> None:
    """Check that passages through the middle of all openings fit the risk.

    Raises:
        UserError: they do not; the message names the gate at most risk, and gives a feasible risk.
    """
    radius, middles = task.vehicle.contact_radius_m, [_in_the_middle(one) for one in rooms.crossings]
    parts = [
        float(middle.risks(one.slants * one.gate.half - radius).sum())
        for one, middle in zip(rooms.crossings, middles, strict=True)
    ]
    least = OFFERED * sum(parts)
    if sum(parts) <= risk:
        return
    i = int(np.argmax(parts))
    opening_m, middle = 2 * rooms.crossings[i].gate.half, middles[i]
    edges = len(middle.means_m)
    needed_m = 2 * (radius + float(middle.rooms(np.full(edges, risk * parts[i] / sum(parts) / edges)).max()))
    remedy = f"--risk {least:.1g}" if least <= RISK_MOST else "a wider opening, or a smaller uncertainty (--doubt),"
    raise UserError(
        f"{task.track.name}: gates[{task.number(i)}]: the opening of {opening_m:g} m is too small for --risk {risk:g}:"
        f" {needed_m:.2f} m are needed at a predicted standard deviation of {float(middle.spread_m.max()):.2f} m;"
        f" {remedy} would fit"
    )


def _in_the_middle(crossing: Crossing) -> Tails:
    """Return the deviations of a passage through the middle of its opening, from which the controller is not drawn away."""
    tails = crossing.slanted
    return Tails(tails.weights, np.zeros_like(tails.means_m), tails.sigmas_m)
