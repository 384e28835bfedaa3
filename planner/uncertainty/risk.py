"""Chance-constrained planning: buy views where they lower the risk, allocate it to edges, set margins by quantiles, repeat.

A risk is allocated to edges: P(any collision) <= sum of P(collision with edge j) (Boole), with a share r_j for each edge.

    P(deviation towards edge j > margin_j) = r_j,   sum_j r_j = P

Iterative risk allocation (Ono and Williams, "Iterative risk allocation: a new approach to robust model predictive control with a
joint chance constraint", CDC 2008): edges with an inactive margin give most of their share to those with an active one.

The covariance is no state of the optimal control problem, since it hardly depends on the path: on VQ1 the active margins
change by 9, 2, 1 and 0.2 mm from round to round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.planner.course import FreeSpace, Solid
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import RISK_MOST, PlanOptions, Task
from gate_racer.planner.uncertainty.prediction import Crossing, Prediction, Tails, predict
from gate_racer.tracks import gate as corridor
from gate_racer.vehicle.rotation import Array

REPEATS = 5  # determinations of the active edges
KEPT = 0.1  # -, fraction of its unused risk that an inactive edge keeps, so that the next plan may come nearer to it
# Excess over the margin, m, up to which it is active, since a frame has depth and distances are measured in its middle plane.
ACTIVE_M = 1e-2


def allocated(total: float, room_m: Array, tails: Tails) -> Array:
    """Return shares (J,) of a total risk, equal among the active edges; inactive ones keep `KEPT` of an equal share."""
    shares = equal = np.full(len(room_m), total / len(room_m))
    for _ in range(REPEATS):
        active = room_m <= tails.rooms(shares) + ACTIVE_M
        if active.all() or not active.any():
            break
        shares = np.where(active, 0.0, KEPT * equal)
        shares[active] = (total - shares.sum()) / active.sum()
    return shares


def reallocated(shares: Array, room_m: Array, tails: Tails) -> Array:
    """Return shares (J,) of the same sum, with the unused risk of inactive edges divided equally among the active ones."""
    active = room_m <= tails.rooms(shares) + ACTIVE_M
    if active.all() or not active.any():
        return shares
    used = np.minimum(tails.risks(room_m), shares)
    kept = np.where(active, shares, KEPT * shares + (1 - KEPT) * used)
    kept[active] += (shares.sum() - kept.sum()) / active.sum()
    return np.asarray(kept)


NEAR_M = 2.0  # m, distance above which a solid is ignored
CLEAR = 6.0  # standard deviations above which a collision is ignored, with a probability of 1e-9


class NearSolid(NamedTuple):
    """Point of a flight at which a collision with a solid is most likely."""

    name: str
    room_m: float  # m, from the body's sphere to the solid
    sigma_m: float  # m, standard deviation of the position towards the solid


def near_solids(prediction: Prediction, task: Task, solids: tuple[Solid, ...]) -> list[NearSolid]:
    """Return the solids near a flight; a gate's frame not during its passage, for which the opening's edges are checked."""
    found, p_w = [], prediction.motion.p_w
    for solid in solids:
        distance = solid.box.distance(p_w)
        if solid.frame >= 0:
            distance[_passing(prediction, task, solid.frame)] = np.inf
        near = np.flatnonzero(distance < NEAR_M)
        if not len(near):
            continue
        off_b = (p_w[near] - solid.box.centre) @ solid.box.axes
        off_b -= np.clip(off_b, -solid.box.half, solid.box.half)
        away = off_b @ solid.box.axes.T / np.maximum(np.linalg.norm(off_b, axis=1, keepdims=True), 1e-9)
        shortfall = np.maximum(-(prediction.short_w[near] @ away[..., None])[..., 0], 0.0)
        sigma = np.sqrt(np.einsum("mi,mij,mj->m", away, prediction.cov[near], away) + (shortfall**2).sum(axis=1))
        room = distance[near] - task.vehicle.contact_radius_m
        worst = int((room / np.maximum(sigma, 1e-9)).argmin())
        if room[worst] > CLEAR * sigma[worst]:
            continue
        found.append(NearSolid(solid.name, float(room[worst]), float(sigma[worst])))
    return found


def _passing(prediction: Prediction, task: Task, landmark: int) -> np.ndarray:
    """Return for each sample, (M,), whether it lies on the passage of a gate, within the gate's outer size of the crossing."""
    path, inside = prediction.motion, np.zeros(len(prediction.motion.t), bool)
    for one, mark in zip(prediction.crossings, task.landmarks, strict=True):
        if mark == landmark:
            speed = max(float(np.linalg.norm(one.v_w)), 1.0)
            inside |= np.abs(path.t - one.t) * speed < one.gate.outer_m
    return inside


@dataclass(frozen=True)
class GateRisk:
    """Risk of one passage. Edges in the order of `Gate.edges`: up, right, down and left of a square."""

    drawn_m: list[float]  # (2,) m, right and down, mean shift of the crossing by the controller's corridor
    cov_m2: list[list[float]]  # (2, 2) m^2, right and down, of the crossing point about the planned one so shifted
    # (2, 2) m, right and down, shift of the crossing by one standard deviation less thrust, or more drag
    short_m: list[list[float]]
    estimate_m: list[float]  # (2,) m, right and down, standard deviation of the estimate's error in it
    rooms_m: list[float]  # m, from the body's sphere to each edge, across the path
    sigmas_m: list[float]  # m, standard deviation towards each edge, across the path
    risks: list[float]  # probability of a collision with each edge


@dataclass(frozen=True)
class FlightRisk:
    """Risk of a whole flight; `total` is an upper bound, the sum of all probabilities (Boole)."""

    total: float
    gates: list[GateRisk]
    solids: dict[str, float]  # probability of a collision, by name, for solids near the flight


def flight_risk(plan: Plan, task: Task) -> FlightRisk:
    """Return the risk of a plan, from rest on the pad, under the uncertainty model of its options."""
    return stated(predict(plan, task, task.options.doubt), task)


def stated(prediction: Prediction, task: Task) -> FlightRisk:
    gates = [_gate(one, task.vehicle.contact_radius_m) for one in prediction.crossings if not one.gate.is_ball]
    near = near_solids(prediction, task, FreeSpace.of(task).solids)
    solids = {one.name: float(Tails.normal(np.array([one.sigma_m])).risks(np.array([one.room_m]))[0]) for one in near}
    return FlightRisk(sum(sum(gate.risks) for gate in gates) + sum(solids.values()), gates, solids)


def _gate(crossing: Crossing, radius_m: float) -> GateRisk:
    seen, tails = np.sqrt(np.diag(crossing.estimate_across)), crossing.slanted
    rooms = crossing.distances_m - radius_m
    parts = crossing.drawn_m, crossing.cov_across, crossing.short_m, seen, rooms, tails.spread_m, tails.risks(rooms)
    return GateRisk(*(part.tolist() for part in parts))


ROUNDS = 8  # largest number of rounds (chosen)
SETTLED_M = 0.005  # m, change of the active margins below which the rounds end
OFFERED = 5.0  # -, risk that is offered over that of passages through the middle only; VQ2 needs 5
FASTER_S = 1e-3  # s, gain of flight time below which the rounds end

# Plan under options, from a warm start; None without a certified plan.
Solve = Callable[[PlanOptions, Plan | None], Plan | None]


# -, shares of view beyond the least that are compared, and prices of risk, s per probability of a contact (chosen).
VIEWS, PRICES_S = (0.2, 0.25, 0.3, 0.4, 0.5), np.geomspace(1.0, 1e3, 7)


@dataclass(frozen=True, eq=False)
class _Looked:
    """A plan with its legs' times, s, and risks, (G,)."""

    plan: Plan
    times_s: Array
    risks: Array

    @staticmethod
    def of(plan: Plan, task: Task) -> "_Looked":
        crossings = predict(plan, task, task.options.doubt).crossings
        risks = np.array([sum(_gate(one, task.vehicle.contact_radius_m).risks) for one in crossings])
        return _Looked(plan, np.diff(plan.gate_times_s[: len(crossings)], prepend=0.0), risks)


def looking(task: Task, solve: Solve, warm: Plan | None) -> Plan:
    """Return the fastest plan found whose views buy the asked risk; the safest one if none is within.

    Plans with the same share of view on all legs tell leg by leg what a share costs, s, and which risk it leaves. At a price of
    risk each leg has a best share, as far as legs are independent; the price is raised until the plan of these shares is within.

    Raises UserError: no plan was found.
    """
    base, count, asked = replace(task.options, risk=None), len(task.gates), task.options.risk or 0.0
    found = list[_Looked]()

    def look(views: Sequence[float]) -> _Looked | None:
        plan = solve(replace(base, see_by_gate=tuple(views)), found[-1].plan if found else warm)
        if plan is not None:
            found.append(_Looked.of(plan, task))
        return None if plan is None else found[-1]

    levels = [base.see, *(share for share in VIEWS if share > base.see)]
    even = [(share, one) for share in levels if (one := look((share,) * count)) is not None]
    if not even:
        raise UserError(f"{task.track.name}: no certified plan was found")
    times_s, risks = np.array([one.times_s for _, one in even]), np.array([one.risks for _, one in even])
    for price_s in PRICES_S if risks.min(axis=0).sum() <= asked else ():
        best = (times_s + price_s * risks).argmin(axis=0)
        mixed = look([even[k][0] for k in best])
        if mixed is not None and mixed.risks.sum() <= asked:
            break
    within = [one for one in found if one.risks.sum() <= asked] or [min(found, key=lambda one: float(one.risks.sum()))]
    return min(within, key=lambda one: one.plan.total_time).plan


@dataclass(frozen=True, eq=False)
class EdgeDistances:
    """Distances of a plan and deviations from it towards all J edges, then towards the K solids near it."""

    crossings: tuple[Crossing, ...]
    solids: tuple[str, ...]  # names
    room_m: Array  # (J + K,) m, from the body's sphere
    tails: Tails  # of J + K edges
    undrawn: Tails  # likewise, as in `Crossing`, for the margins of the next plan
    least_m: Array  # (J + K,) m, margin below which a plan would lie outside the controller's corridor, where it is not flown

    def options(self, base: PlanOptions, margins_m: Array) -> PlanOptions:
        """Return options with the margins (J + K,), m, beyond the body's sphere."""
        ends = np.cumsum([len(one.gate.edges) for one in self.crossings])
        *by_gate, by_solid = (part.tolist() for part in np.split(margins_m, ends))
        solids = tuple(zip(self.solids, by_solid, strict=True))
        return replace(base, edge_margins_m=tuple(map(tuple, by_gate)), solid_margins_m=solids)


def plan_at_risk(task: Task, solve: Solve, first: Plan) -> Plan:
    """Return the fastest plan found, from `first` on, whose risk is at most that of the options, by plans that `solve` makes.

    Rounds end when the margins have settled, or a plan gains nothing. Raises UserError: an opening is too small, or no plan
    is within.
    """
    risk, base = task.options.risk, replace(task.options, risk=None)
    assert risk is not None
    plan, best, before, shares = first, None, None, np.zeros(0)
    for _ in range(ROUNDS):
        rooms = _rooms(plan, task)
        kept = len(shares) == len(rooms.room_m)
        parts = rooms.room_m, rooms.tails
        shares = reallocated(shares, *parts) if kept else allocated(risk, *parts)
        margins = np.maximum(rooms.undrawn.rooms(shares), rooms.least_m)
        if rooms.tails.risks(rooms.room_m).sum() <= risk:  # the sum over edges and solids, an upper bound
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
        again = solve(rooms.options(base, margins), plan)
        if again is None:
            break
        plan, before = again, margins
    if best is None:
        mend = "give a higher risk, or a margin instead"
        raise UserError(f"{task.track.name}: risk {risk:g}: no plan within this risk was found; {mend}")
    return best


def _rooms(plan: Plan, task: Task) -> EdgeDistances:
    prediction, radius = predict(plan, task, task.options.doubt), task.vehicle.contact_radius_m
    crossings = prediction.crossings
    near = near_solids(prediction, task, FreeSpace.of(task).solids)
    room = np.concatenate([*(one.distances_m - radius for one in crossings), [one.room_m for one in near]])
    beside = np.array([one.sigma_m for one in near])
    tails = Tails.joined([one.slanted for one in crossings]).and_normal(beside)
    undrawn = Tails.joined([one.undrawn for one in crossings]).and_normal(beside)
    least = [np.full(len(one.inside_m), one.gate.half - radius - corridor.room(one.gate, radius)) for one in crossings]
    least_m = np.maximum(np.concatenate([*least, np.zeros(len(near))]), 0.0)
    return EdgeDistances(crossings, tuple(one.name for one in near), room, tails, undrawn, least_m)


def _require_room(task: Task, rooms: EdgeDistances, risk: float) -> None:
    """Check that the middle of all openings fits the risk. Raises UserError with the gate at most risk, and a risk that fits."""
    radius, parts = task.vehicle.contact_radius_m, []
    for one in rooms.crossings:  # the controller is not drawn away from the middle
        middle = replace(one.slanted, means_m=np.zeros_like(one.slanted.means_m))
        parts.append(float(middle.risks(one.slants * one.gate.half - radius).sum()))
    least = OFFERED * sum(parts)
    if sum(parts) <= risk:
        return
    i = int(np.argmax(parts))
    remedy = f"risk {least:.1g}" if least <= RISK_MOST else "a wider opening, or a smaller uncertainty (doubt),"
    small = f"the opening of {2 * rooms.crossings[i].gate.half:g} m is too small for risk {risk:g}"
    raise UserError(f"{task.track.name}: gates[{task.number(i)}]: {small}: {remedy} would fit")
