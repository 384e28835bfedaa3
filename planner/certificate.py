"""The proof that comes with a plan: every interval flown again from its node by an integrator that the problem never used.

DOP853 with tolerance 1e-9 against the problem's fixed-step RK4; limits and gate passings are checked between the nodes too.
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy.integrate import solve_ivp

from planner.course import box, keep_clear
from planner.model import P, Q, V, model
from planner.options import PlanOptions
from planner.plan import Plan
from tracks.gate import Gate
from tracks.track import Track
from vehicle.camera import Camera
from vehicle.rotation import Array, matrix
from vehicle.vehicle import Vehicle

DEFECT_M, DEFECT_M_S = 1e-5, 1e-3  # largest tolerated step defects
LIMIT_TOLERANCE = 1e-4  # relative: what the optimiser's constraint tolerance may leave
MARGIN_TOLERANCE = 2e-3  # m
ON_PLANE_M = 1e-3
FINE = 8  # points per interval at which limits and gates are checked


@dataclass(frozen=True)
class Certificate:
    """What was proven. `status` is "certified", or says what failed."""

    status: str
    total_time_s: float
    point_mass_bound_s: float
    gate_times_s: list[float]
    gate_margins_m: list[float]
    step_defect_m: float
    step_defect_m_s: float
    open_loop_gap_m: float  # at the end, of the whole plan flown from its start without correction
    blind_s: list[float | None]  # per gate, from the last full view of its opening to the crossing; None: never seen
    max_speed_m_s: float
    solver_status: str
    solve_s: float
    build_s: float
    iterations: int
    track_hash: str
    vehicle_hash: str
    plan_hash: str
    options: dict

    @property
    def ok(self) -> bool:
        return self.status == "certified"

    def as_dict(self) -> dict:
        return asdict(self)


def certify(plan: Plan, track: Track, vehicle: Vehicle, options: PlanOptions, solver: dict) -> Certificate:
    """Checks a plan against its track and vehicle.

    Args:
        solver: what the solver reported: solver_status, success, solve_s, build_s, iterations, point_mass_bound_s.
    """
    solver = dict(solver)
    failures = [] if solver.pop("success") else [f"solver stopped with {solver['solver_status']}"]
    path, defect_m, defect_m_s = _replay(plan, vehicle)
    if defect_m > DEFECT_M or defect_m_s > DEFECT_M_S:
        failures.append(f"an interval is off by {defect_m:.1e} m, {defect_m_s:.1e} m/s")
    failures += _broken_limits(path, plan, track, vehicle, options)
    times, margins, failed = _passings(path, plan, track, vehicle, options)
    failures += failed
    return Certificate(
        status="certified" if not failures else "failed: " + "; ".join(failures),
        total_time_s=plan.total_time,
        gate_times_s=times,
        gate_margins_m=margins,
        step_defect_m=defect_m,
        step_defect_m_s=defect_m_s,
        open_loop_gap_m=_open_loop_gap(plan, vehicle),
        blind_s=_blind(path, track.course(plan.laps), times, vehicle.camera),
        max_speed_m_s=float(np.linalg.norm(path[:, 1:][:, V], axis=1).max()),
        track_hash=track.hash,
        vehicle_hash=vehicle.hash,
        plan_hash=plan.hash,
        options=asdict(options),
        **solver,
    )


def _replay(plan: Plan, vehicle: Vehicle) -> tuple[Array, float, float]:
    """Path (M, 1 + NX) with time first, and the largest position and velocity defects of one interval."""
    rows, defect_m, defect_m_s = [], 0.0, 0.0
    for k in range(len(plan.t) - 1):
        fine = _integrate(plan, vehicle, k, plan.x[k])
        rows.append(np.column_stack([fine.t[:-1], fine.y.T[:-1]]))
        end = fine.y[:, -1]
        defect_m = max(defect_m, float(np.linalg.norm(end[P] - plan.x[k + 1, P])))
        defect_m_s = max(defect_m_s, float(np.linalg.norm(end[V] - plan.x[k + 1, V])))
    rows.append(np.append(plan.t[-1], plan.x[-1])[None])
    return np.vstack(rows), defect_m, defect_m_s


def _open_loop_gap(plan: Plan, vehicle: Vehicle) -> float:
    """m, between the plan's end and where its inputs lead in one go."""
    x = plan.x[0]
    for k in range(len(plan.t) - 1):
        x = _integrate(plan, vehicle, k, x).y[:, -1]
    return float(np.linalg.norm(x[P] - plan.x[-1, P]))


def _integrate(plan: Plan, vehicle: Vehicle, k: int, x: Array):
    """Interval k from x with its inputs held, at FINE points."""
    span = (plan.t[k], plan.t[k + 1])
    return solve_ivp(
        lambda _, x: plan.derivative(vehicle, x, plan.u[k]),
        span,
        x,
        method="DOP853",
        rtol=1e-9,
        atol=1e-9,
        t_eval=np.linspace(*span, FINE + 1),
    )


def _blind(path: Array, course: tuple[Gate, ...], times: list[float], camera: Camera) -> list[float | None]:
    """s, per gate, since all four corners of its opening were last in the picture."""
    result: list[float | None] = []
    before = 0.0
    for gate, crossed in zip(course, times, strict=True):
        leg = path[(path[:, 0] >= before) & (path[:, 0] <= crossed)]
        seen = [row[0] for row in leg if not gate.is_ball and _in_view(camera, gate, row[1:])]
        result.append(crossed - seen[-1] if seen else None)
        before = crossed
    return result


def _in_view(camera: Camera, gate: Gate, x: Array) -> bool:
    corners_c = (gate.corners() - x[P]) @ matrix(x[Q]) @ camera.R_bc
    return bool((corners_c[:, 2] > 0).all() and camera.sees(camera.project(corners_c)).all())


def _broken_limits(path: Array, plan: Plan, track: Track, vehicle: Vehicle, options: PlanOptions) -> list[str]:
    """Sentences on every limit that the path or its inputs exceed."""
    x, limits = path[:, 1:], model(vehicle, options)
    slack = LIMIT_TOLERANCE * (limits.u_high - limits.u_low)
    low, high = box(track, vehicle, options)
    outside = np.maximum(low - x[:, P], x[:, P] - high)
    outside -= np.maximum(np.maximum(low - x[0, P], x[0, P] - high), 0.0)  # the pad may lie nearer than that
    checks = {
        "input": (plan.u < limits.u_low - slack).any() or (plan.u > limits.u_high + slack).any(),
        "state": (np.abs(x) > limits.x_high * (1 + LIMIT_TOLERANCE) + LIMIT_TOLERANCE).any(),
        "bounds": outside.max() > MARGIN_TOLERANCE,
        "quaternion norm": np.abs(np.linalg.norm(x[:, Q], axis=1) - 1).max() > 1e-6,
    }
    return [f"limit broken: {name}" for name, broken in checks.items() if broken]


def _passings(path: Array, plan: Plan, track: Track, vehicle: Vehicle, options: PlanOptions):
    """(times, margins, failures) of the gates, passed in order along the replayed path."""
    times, margins, failures, row = [], [], [], 0
    points = path[:, 1:][:, P]
    for i, gate in enumerate(track.course(plan.laps)):
        # A course may pass the plane of a gate on its way elsewhere, so the search ends at the gate's own node.
        last = min(plan.gate_nodes[i] * FINE + FINE, len(points) - 1)
        found = None
        for k in range(row, last):
            crossing = gate.crossing(points[k], points[k + 1])
            if crossing is not None and crossing.margin >= -MARGIN_TOLERANCE:
                found = (k, crossing)
        if found is not None:
            row, (s, margin) = found
            times.append(float(path[row, 0] + s * (path[row + 1, 0] - path[row, 0])))
        else:  # a course may end on the gate's plane itself, just short of it by the solver's tolerance
            end = plan.x[plan.gate_nodes[i], P]
            times.append(float(plan.t[plan.gate_nodes[i]]))
            margin = gate.margin(end)
            if margin < -MARGIN_TOLERANCE or (not gate.is_ball and abs(gate.local(end)[0]) > ON_PLANE_M):
                failures.append(f"gate {i} is not passed")
        margins.append(margin)
        planned = 0.0 if gate.is_ball else keep_clear(vehicle, options)
        if margin < planned - MARGIN_TOLERANCE:
            failures.append(f"gate {i} is passed with {margin:.3f} m instead of {planned:.3f} m")
    return times, margins, failures
