"""The rest of a plan again, from a state on it: warm, on a coarse mesh, in a fraction of a second, while the vehicle flies on.

What was planned is the first guess, and the barrier begins small. On the coarse mesh the rest of an unchanged course comes out
within 1 % of the refined plan's time; its defects are below what a controller corrects in any case, and are checked together with
what may be touched.
"""

import time
from dataclasses import dataclass, replace
from math import degrees

import numpy as np

from planner.certificate.passages import beyond, passages, too_near
from planner.certificate.replay import ReplayedPath
from planner.course.course import Course, resolve
from planner.models import P, Q, RatesModel, V, W
from planner.options import Initial, PlanOptions
from planner.plan import Plan
from planner.problem.mesh import Mesh, first_mesh, intervals
from planner.problem.problem import TimeOptimalProblem, flight_block
from planner.problem.terms import Point
from planner.search.multistart import as_plan, of_plan
from planner.search.refinement import COARSE_TOLERANCE, from_nearby
from planner.task import Task
from tracks.gate import Gate, Vector
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.rotation import Array, to_euler
from vehicle.vehicle import Vehicle

# A barrier of 1e-3: from 1e-4 and 1e-5 a gate 2 m elsewhere takes more iterations than are left, from 1e-2 nearly anything.
NEARBY = from_nearby(1e-3) | {"ipopt.tol": COARSE_TOLERANCE, "ipopt.max_iter": 60}
ON_PLANE_M = 0.05  # of a gate, where a plan passes it
PARTS = 8  # points per interval, at which a new plan is checked
DEFECT_M = 0.05  # of an interval, between the integration of the mesh and a fine one: a tenth of the room in an opening


@dataclass(frozen=True)
class Rest:
    """What is asked for: the gates that a plan of the `rates` model has not passed at `from_s`, from another state on."""

    plan: Plan
    from_s: float  # s of plan time
    x: Array  # (14,) as RATES_X, then
    track: Track  # as believed: gates may stand elsewhere than the plan has them
    vehicle: Vehicle  # as believed
    options: PlanOptions  # by which the plan was made


@dataclass(frozen=True)
class Replanned:
    """What came of it. The caller must look at `ok`."""

    plan: Plan  # as before up to `from_s`, in the same plan time, and anew from there; without a solution as before
    status: str  # empty, or what is wrong with it
    rest_s: float  # s of flight from there to the end
    iterations: int
    solve_s: float

    @property
    def ok(self) -> bool:
        return not self.status


class Replanner:
    """Holds what all rests have in common. Whatever the vehicle's parameters are, its flight is the same machine code."""

    def __init__(self, vehicle: Vehicle):
        self._flight = flight_block(RatesModel(vehicle))

    def __call__(self, rest: Rest) -> Replanned:
        """Solves the rest. Nothing is raised: what cannot be planned from there says so in its status."""
        begin, iterations = time.perf_counter(), 0
        plan, left_s = rest.plan, rest.plan.total_time - rest.from_s
        try:
            task = _task(rest)
            course = replace(resolve(task), begun=_begun(rest))
            mesh, point = _coarse(course, _led(_rest_of(rest, task.x0), task.gates))
            solved = TimeOptimalProblem(course, flight=self._flight).solve(mesh, point, NEARBY, None)
            iterations, status = solved.iterations, "" if solved.success else f"the solver stopped with {solved.status}"
            if solved.success:
                part = as_plan(course, mesh, solved.point)
                faults = _faults(part, task)
                status, left_s = "; ".join(faults[:1]), part.total_time
                plan = plan if faults else _joined(plan, rest.from_s, part)
        except (UserError, ValueError, ArithmeticError, RuntimeError) as error:  # the last as CasADi refuses numbers
            status = str(error).splitlines()[-1]
        return Replanned(plan, status, left_s, iterations, time.perf_counter() - begin)


def _task(rest: Rest) -> Task:
    """Raises UserError where nothing can be planned from such a state."""
    first = int(rest.plan.gate_times_s.searchsorted(rest.from_s, side="right"))
    roll, pitch, yaw = (degrees(angle) for angle in to_euler(rest.x[Q]))
    p_w, v_w, omega_b = (_vector(rest.x[part]) for part in (P, V, W))
    start = Initial(p_w, v_w, roll, pitch, yaw, omega_b, float(rest.x[-1]), first)
    margins = rest.options.edge_margins_m
    margins = margins[first:] if margins is not None else None
    return Task(rest.track, rest.vehicle, replace(rest.options, start=start, risk=None, edge_margins_m=margins))


def _begun(rest: Rest) -> float:
    """The share of the way to the next gate, in time, that the plan has flown."""
    ends = np.append(0.0, rest.plan.gate_times_s)
    k = int(ends.searchsorted(rest.from_s, side="right"))
    return float((rest.from_s - ends[k - 1]) / (ends[k] - ends[k - 1]))


def _vector(a: Array) -> Vector:
    x, y, z = a.tolist()
    return x, y, z


def _rest_of(rest: Rest, x0: Array | None) -> Plan:
    """The plan from there on, begun in the state x0 (14,), its quaternions of the same sign."""
    assert x0 is not None, "a rest has a start"
    plan, k = rest.plan, int(rest.plan.t.searchsorted(rest.from_s, side="right"))
    return replace(
        plan,
        t=np.append(0.0, plan.t[k:] - rest.from_s),
        x=np.vstack([x0, _signed(plan.x[k:], x0)]),
        u=np.vstack([plan.u[k - 1], plan.u[k:]]),
        gate_nodes=tuple(node - k + 1 for node in plan.gate_nodes if node >= k),
    )


def _led(plan: Plan, gates: tuple[Gate, ...]) -> Plan:
    """The plan led to the middle of each gate that it does not pass: a guess that need not be flyable.

    Between gates the line is led as by a controller (`mpc.course_belief`); from the plan itself, a gate 1.3 m elsewhere is not
    reached within the iterations.
    """
    steps = np.zeros((len(plan.gate_nodes) + 1, 3))
    for i, (gate, node) in enumerate(zip(gates, plan.gate_nodes, strict=False)):
        p_w = plan.x[node, P]
        missed = gate.margin(p_w) < 0 or (not gate.is_ball and abs(gate.local(p_w)[0]) > ON_PLANE_M)
        steps[i + 1] = gate.p_wg - p_w if missed else 0.0
    knots = np.append(0.0, plan.gate_times_s)
    k = np.clip(knots.searchsorted(plan.t, side="right") - 1, 0, len(knots) - 2)
    span = np.diff(knots)[k, None]
    s, step = (plan.t - knots[k])[:, None] / span, np.diff(steps, axis=0)[k]
    x = plan.x.copy()
    x[:, P] += steps[k] + step * (s * s * (3 - 2 * s))
    x[:, V] += step * (6 * s * (1 - s) / span)
    return replace(plan, x=x)


def _coarse(course: Course, plan: Plan) -> tuple[Mesh, Point]:
    """The first mesh of a course, and a plan of its legs on it."""
    fine, point = of_plan(plan, course)
    ends = np.append(0.0, np.cumsum(point.durations))
    paths = [_at(plan, np.linspace(a, b, len(part) + 1))[P] for a, b, part in zip(ends, ends[1:], fine, strict=False)]
    mesh = first_mesh(course, point.durations, paths)
    t = np.append(0.0, np.cumsum(intervals(mesh, point.durations)))
    held = plan.t.searchsorted((t[1:] + t[:-1]) / 2, side="right") - 1
    return mesh, Point(_at(plan, t), plan.u[held].T, point.durations)


def _at(plan: Plan, t: Array) -> Array:
    """(NX, M) states at times t (M,), s, between its nodes in straight lines."""
    x = np.array([np.interp(t, plan.t, column) for column in plan.x.T])
    x[Q] /= np.linalg.norm(x[Q], axis=0)
    return x


def _faults(part: Plan, task: Task) -> list[str]:
    """Sentences on what the flight does that it must not, between nodes too: the certificate's own passages and solids."""
    t, x, _ = part.dense(task.vehicle, PARTS)
    t, p_w = beyond(ReplayedPath(t, x, np.zeros(0)), task)
    ends = task.model.integrate(part.x[:-1].T, part.u[:-1].T, np.diff(part.t), PARTS)[P].T
    defect = float(np.linalg.norm(ends - part.x[1:, P], axis=1).max())
    faults = [f"an interval is off by {defect:.2f} m"] if defect > DEFECT_M else []
    return faults + passages(t, p_w, part, task)[1] + too_near(t, p_w, task)[1]


def _signed(x: Array, like: Array) -> Array:
    """States (N, NX) with quaternions of the sign by which they go on from another state (NX,)."""
    x = x.copy()
    x[:, Q] *= -1.0 if x[0, Q] @ like[Q] < 0 else 1.0
    return x


def _joined(plan: Plan, from_s: float, part: Plan) -> Plan:
    """A plan up to a time, and another one from there on."""
    k = int(plan.t.searchsorted(from_s, side="left"))
    return replace(
        part,
        t=np.concatenate([plan.t[:k], from_s + part.t]),
        x=np.vstack([plan.x[:k], _signed(part.x, plan.x[k - 1])]),
        u=np.vstack([plan.u[:k], part.u]),
        gate_nodes=tuple(one for one in plan.gate_nodes if one < k) + tuple(k + one for one in part.gate_nodes),
    )
