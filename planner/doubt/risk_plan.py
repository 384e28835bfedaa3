"""The fastest plan of a given risk: plan, predict its doubt, share the risk out, keep each edge at its quantile, plan again.

Doubt hardly depends on the path within its tube, so this fixed point is reached in a few rounds, each from the plan before it;
covariances as states of the optimal control problem would make it exact at 6 to 20 times the states and with a dense Hessian.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.course.solids import FreeSpace
from planner.doubt.allocation import ACTIVE_M, quantile, reallocated, risk_of, uniform
from planner.doubt.prediction import Crossing, predict
from planner.doubt.solids import near_solids
from planner.options import RISK_MOST, PlanOptions
from planner.plan import Plan
from planner.task import Task
from vehicle.errors import UserError
from vehicle.rotation import Array

ROUNDS = 8
SETTLED_M = 0.005  # margins that move by less are the answer
WITHIN = 1.02  # of the risk asked for: what margins that still move by less may leave

Solve = Callable[
    [PlanOptions, Plan | None], Plan | None
]  # under options, from a plan; None where there is no certified one


@dataclass(frozen=True, eq=False)
class Margins:
    """What each edge and the solids are kept at."""

    edges_m: Array  # (J,) beyond the body's ball, edge by edge and gate by gate
    solids_m: float


@dataclass(frozen=True, eq=False)
class Rooms:
    """What a plan keeps, and how far it may be off, towards all J edges and then all K solids that it comes near to."""

    crossings: tuple[Crossing, ...]
    room_m: Array  # (J + K,)
    sigma_m: Array  # (J + K,)
    edges: int  # J

    @property
    def total(self) -> float:
        """The risk of the plan."""
        return float(risk_of(self.room_m, self.sigma_m).sum())


def plan_at_risk(task: Task, solve: Solve, warm: Plan | None) -> Plan:
    """The plan of the risk that the task's options ask for.

    Args:
        solve: plans the same course under other options.
        warm: a plan to start from.

    Raises:
        UserError: an opening is too small for the doubt, or no plan was found that keeps to the risk.
    """
    risk, asked = task.options.risk, replace(task.options, risk=None)
    assert risk is not None
    plan, options, before, shares = solve(asked, warm), asked, None, uniform(risk, 1)
    for _ in range(ROUNDS):
        if plan is None:
            break
        rooms = _rooms(plan, replace(task, options=options))
        if len(shares) != len(rooms.room_m):
            shares = uniform(risk, len(rooms.room_m))
        else:
            shares = reallocated(shares, rooms.room_m, rooms.sigma_m)
        margins = _margins(shares, rooms, task)
        if before is not None and rooms.total <= WITHIN * risk and _moved(before, margins, rooms) < SETTLED_M:
            return plan
        _require_room(task, rooms, margins.edges_m)
        options = replace(asked, margin_m=margins.solids_m, edge_margins_m=_by_gate(rooms.crossings, margins.edges_m))
        plan, before = solve(options, plan) or solve(options, None), margins
    raise UserError(
        f"{task.track.name}: --risk {risk:g}: no plan keeps to it; ask for more, or plan with --margin instead"
    )


def _rooms(plan: Plan, task: Task) -> Rooms:
    prediction, radius = predict(plan, task, task.options.doubt), task.vehicle.contact_radius_m
    crossings = tuple(one for one in prediction.crossings if not one.gate.is_ball)
    near = near_solids(prediction, task, FreeSpace.of(task).solids)
    room = np.concatenate([*(one.distances_m - radius for one in crossings), [one.room_m for one in near]])
    sigma = np.concatenate([*(one.sigmas_m for one in crossings), [one.sigma_m for one in near]])
    return Rooms(crossings, room, sigma, sum(len(one.gate.edges) for one in crossings))


def _margins(shares: Array, rooms: Rooms, task: Task) -> Margins:
    """Each edge at the quantile of its share, and all solids at the greatest one's: as usual where none is near."""
    asked = quantile(shares) * rooms.sigma_m
    return Margins(asked[: rooms.edges], float(asked[rooms.edges :].max(initial=0.0)) or task.options.margin_m)


def _moved(before: Margins, after: Margins, rooms: Rooms) -> float:
    """m, the most that a margin has moved by, of those that the plan touches: what others give away moves no plan."""
    touched = rooms.room_m[: rooms.edges] <= before.edges_m + ACTIVE_M
    return max(
        float(np.abs(after.edges_m - before.edges_m)[touched].max(initial=0.0)), after.solids_m - before.solids_m
    )


def _by_gate(crossings: tuple[Crossing, ...], edges_m: Array) -> tuple[tuple[float, ...], ...]:
    ends = np.cumsum([len(one.gate.edges) for one in crossings])[:-1]
    return tuple(tuple(part.tolist()) for part in np.split(edges_m, ends))


def _require_room(task: Task, rooms: Rooms, edges_m: Array) -> None:
    """Raises UserError where two opposite edges' margins leave no way between them, with the risk that would."""
    radius, first = task.vehicle.contact_radius_m, 0
    for i, one in enumerate(rooms.crossings):
        count = len(one.gate.edges)
        keep, sigma = edges_m[first : first + count] + radius, rooms.sigma_m[first : first + count]
        normals, h = one.gate.edges[:, :2], one.gate.edges[:, 2]
        opposite = normals @ normals.T < -0.99
        wide = (h[:, None] + h)[opposite] - (keep[:, None] + keep)[opposite]
        if len(wide) and wide.min() <= 0:
            least = float(rooms.edges * risk_of(np.array(one.gate.half - radius), sigma.max()))
            mend = (
                f"--risk {least:.1g} would fit" if least <= RISK_MOST else "a wider one, or a smaller doubt, would fit"
            )
            raise UserError(
                f"{task.track.name}: gates[{task.number(i)}]: opening {2 * one.gate.half:g} m is too small for --risk"
                f" {task.options.risk:g}: {2 * one.gate.half - float(wide.min()):.2f} m are needed, as the flight is"
                f" {sigma.max():.2f} m in doubt there; {mend}"
            )
        first += count
