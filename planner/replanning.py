"""Replanning in flight: the rest of a plan from a state near it, from which `fast` starts with a small barrier.

On the coarse mesh it comes within 1 % of the refined plan's time; its defects, passages and clearances are checked.
"""

import time
from dataclasses import dataclass, replace
from math import degrees

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.planner.certificate.replay import ReplayedPath, beyond, passages, too_near
from gate_racer.planner.course import Course, resolve
from gate_racer.planner.fast import settled
from gate_racer.planner.interior import MU_NEARBY
from gate_racer.planner.mesh import Mesh, Point, first_mesh, intervals
from gate_racer.planner.models import P, Q, V, W
from gate_racer.planner.plan import Plan, gate_shift
from gate_racer.planner.search import as_plan, of_plan
from gate_racer.planner.task import Initial, PlanOptions, Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, as_vector, to_euler
from gate_racer.vehicle.vehicle import Vehicle

ON_PLANE_M = 0.05  # m, distance from a gate's plane within which a plan's gate node passes it
PARTS = 8  # points per interval at which a new plan is checked
DEFECT_M = 0.05  # m, largest difference of the mesh's integration to a finer one: a tenth of the room in an opening


@dataclass(frozen=True)
class Remainder:
    """Replanning request: the gates that a plan of the `rates` model has not passed at `from_s`, from a new state."""

    plan: Plan
    from_s: float  # s of plan time
    x: Array  # (14,) RATES_X, state at that time
    track: Track  # with the estimated gate poses, which may differ from the plan's
    vehicle: Vehicle  # with the estimated parameters
    options: PlanOptions  # options of the plan


@dataclass(frozen=True)
class ReplanResult:
    """Result of replanning. The caller must check `ok`."""

    plan: Plan  # unchanged up to `from_s`, in the same plan time, then new; the old plan if there is no solution
    status: str  # reason of failure; empty if there is none
    rest_s: float  # s, flight time from `from_s` to the end
    iterations: int
    solve_s: float  # s, wall time

    @property
    def ok(self) -> bool:
        return not self.status


def replan(rest: Remainder) -> ReplanResult:
    """Solve a request, in time once `warm_up` was called. Nothing is raised: a failure is reported in the status."""
    begin, iterations = time.perf_counter(), 0
    plan, left_s = rest.plan, rest.plan.total_time - rest.from_s
    try:
        task = _task(rest)
        assert task.x0 is not None, "a rest has a start"
        ends = np.append(0.0, plan.gate_times_s)
        k = int(ends.searchsorted(rest.from_s, side="right"))
        course = replace(resolve(task), flown_share=float((rest.from_s - ends[k - 1]) / (ends[k] - ends[k - 1])))
        mesh, point = _coarse(course, _led(_rest_of(rest, task.x0), task.gates))
        solved = settled(course, mesh, point, MU_NEARBY)
        iterations, status = solved.iterations, "" if solved.success else f"the solver stopped with {solved.status}"
        if solved.success:
            part = as_plan(course, solved)
            faults = _faults(part, task)
            status, left_s = "; ".join(faults[:1]), part.total_time
            plan = plan if faults else _joined(plan, rest.from_s, part)
    except (UserError, ValueError, ArithmeticError, RuntimeError) as error:  # RuntimeError is CasADi's
        status = str(error).splitlines()[-1]
    return ReplanResult(plan, status, left_s, iterations, time.perf_counter() - begin)


def _task(rest: Remainder) -> Task:
    first = int(rest.plan.gate_times_s.searchsorted(rest.from_s, side="right"))
    roll, pitch, yaw = (degrees(angle) for angle in to_euler(rest.x[Q]))
    p_w, v_w, omega_b = (as_vector(rest.x[part]) for part in (P, V, W))
    start = Initial(p_w, v_w, roll, pitch, yaw, omega_b, float(rest.x[-1]), first)
    margins, views = rest.options.edge_margins_m, rest.options.see_by_gate
    options = replace(rest.options, start=start, risk=None, edge_margins_m=margins and margins[first:])
    return Task(rest.track, rest.vehicle, replace(options, see_by_gate=views and views[first:]))


def _rest_of(rest: Remainder, x0: Array) -> Plan:
    """Return the rest of the plan, with initial state x0 (14,) and quaternions in its hemisphere."""
    plan, k = rest.plan, int(rest.plan.t.searchsorted(rest.from_s, side="right"))
    return replace(
        plan,
        t=np.append(0.0, plan.t[k:] - rest.from_s),
        x=np.vstack([x0, _signed(plan.x[k:], x0)]),
        u=np.vstack([plan.u[k - 1], plan.u[k:]]),
        gate_nodes=tuple(node - k + 1 for node in plan.gate_nodes if node >= k),
    )


def _led(plan: Plan, gates: tuple[Gate, ...]) -> Plan:
    """Shift the plan to the centre of each gate that it does not pass: else one moved by 1.3 m is not reached in time."""
    steps = np.zeros((len(plan.gate_nodes) + 1, 3))
    for i, (gate, node) in enumerate(zip(gates, plan.gate_nodes, strict=False)):
        p_w = plan.x[node, P]
        missed = gate.margin(p_w) < 0 or (not gate.is_ball and abs(gate.local(p_w)[0]) > ON_PLANE_M)
        steps[i + 1] = gate.p_wg - p_w if missed else 0.0
    moved, moving = gate_shift(plan.t, np.append(0.0, plan.gate_times_s), steps)
    x = plan.x.copy()
    x[:, P] += moved
    x[:, V] += moving
    return replace(plan, x=x)


def _coarse(course: Course, plan: Plan) -> tuple[Mesh, Point]:
    fine, point = of_plan(plan, course)
    ends = np.append(0.0, np.cumsum(point.durations))
    paths = [_at(plan, np.linspace(a, b, len(part) + 1))[P] for a, b, part in zip(ends, ends[1:], fine, strict=False)]
    mesh = first_mesh(course, point.durations, paths)
    t = np.append(0.0, np.cumsum(intervals(mesh, point.durations)))
    held = plan.t.searchsorted((t[1:] + t[:-1]) / 2, side="right") - 1
    return mesh, Point(_at(plan, t), plan.u[held].T, point.durations)


def _at(plan: Plan, t: Array) -> Array:
    """Return states (NX, M) at times t (M,), s, by linear interpolation."""
    x = np.array([np.interp(t, plan.t, column) for column in plan.x.T])
    x[Q] /= np.linalg.norm(x[Q], axis=0)
    return x


def _faults(part: Plan, task: Task) -> list[str]:
    """Return violations, as sentences: defects, and the certificate's checks of gate passages and clearances."""
    t, x, _ = part.dense(task.vehicle, PARTS)
    t, p_w = beyond(ReplayedPath(t, x, np.zeros(0)), task)
    ends = task.model.integrate(part.x[:-1].T, part.u[:-1].T, np.diff(part.t), PARTS)[P].T
    defect = float(np.linalg.norm(ends - part.x[1:, P], axis=1).max())
    faults = [f"an interval has a defect of {defect:.2f} m"] if defect > DEFECT_M else []
    return faults + passages(t, p_w, part, task)[1] + too_near(t, p_w, task)[1]


def _signed(x: Array, like: Array) -> Array:
    """Return states (N, NX) with quaternion signs continuous with the state `like` (NX,)."""
    x = x.copy()
    x[:, Q] *= -1.0 if x[0, Q] @ like[Q] < 0 else 1.0
    return x


def _joined(plan: Plan, from_s: float, part: Plan) -> Plan:
    k = int(plan.t.searchsorted(from_s, side="left"))
    return replace(
        part,
        t=np.concatenate([plan.t[:k], from_s + part.t]),
        x=np.vstack([plan.x[:k], _signed(part.x, plan.x[k - 1])]),
        u=np.vstack([plan.u[:k], part.u]),
        gate_nodes=tuple(one for one in plan.gate_nodes if one < k) + tuple(k + one for one in part.gate_nodes),
    )
