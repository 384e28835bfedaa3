"""The proof that comes with a plan: every interval flown again from its node by an integrator that the problem never used.

DOP853 with tolerance 1e-9 against the problem's fixed-step RK4; limits and gate passings are checked between the nodes too.
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy.integrate import solve_ivp

from planner.course import box, flown, initial, keep_clear
from planner.model import P, Q, V, W, model
from planner.options import PlanOptions
from planner.plan import Plan
from planner.search import Effort
from tracks.gate import Gate
from tracks.track import Track
from vehicle.camera import Camera
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

DEFECT_M, DEFECT_M_S = 1e-5, 1e-3  # largest tolerated step defects
LIMIT_TOLERANCE = 1e-4  # relative: what the optimiser's constraint tolerance may leave
MARGIN_TOLERANCE = 2e-3  # m
SPEED_TOLERANCE = 1e-3  # relative: limits that hold at the nodes may be passed between them by that
END_TOLERANCE = 1e-2  # in the units of each state
ON_PLANE_M = 1e-3
FINE = 8  # points per interval at which limits and gates are checked


@dataclass(frozen=True)
class Certificate:
    """What was proven. `status` is "certified", or says what failed."""

    status: str
    total_time_s: float
    gate_times_s: list[float]
    gate_margins_m: list[float]
    step_defect_m: float
    step_defect_m_s: float
    open_loop_gap_m: float  # at the end, of the whole plan flown from its start without correction
    blind_s: list[float | None]  # per gate, from the last full view of its opening to the crossing; None: never seen
    max_speed_m_s: float
    solver_status: str
    iterations: int
    build_s: float
    solve_s: float
    point_mass_bound_s: float | None
    guesses_s: dict[str, float | None]  # per first guess, the time of its optimum on a coarse mesh
    track_hash: str
    vehicle_hash: str
    plan_hash: str
    options: dict

    @property
    def ok(self) -> bool:
        return self.status == "certified"

    @property
    def verdict(self) -> str:
        """The status on one line of bearable length."""
        causes = self.status.split("; ")
        return "; ".join(causes[:3]) + (f"; and {len(causes) - 3} more" if len(causes) > 3 else "")

    def as_dict(self) -> dict:
        return asdict(self)


def certify(plan: Plan, track: Track, vehicle: Vehicle, options: PlanOptions, effort: Effort) -> Certificate:
    """Checks a plan, solved by an effort or read from a file, against its track and vehicle."""
    failures = [] if effort.success else [f"solver stopped with {effort.solver_status}"]
    path, defects_m, defects_m_s = _replay(plan, vehicle)
    defect_m, defect_m_s = float(defects_m.max()), float(defects_m_s.max())
    broken = (defects_m > DEFECT_M) | (defects_m_s > DEFECT_M_S)
    if broken.any():
        leg = int(np.searchsorted(plan.gate_nodes, broken.argmax(), side="right"))
        failures.append(f"an interval on leg {leg} is off by {defect_m:.1e} m, {defect_m_s:.1e} m/s")
    failures += _broken_limits(path, plan, track, vehicle, options)
    failures += _broken_ends(plan, track, options)
    course = flown(track, options)
    times, margins, failed = _passings(path, plan, course, keep_clear(vehicle, options))
    failures += failed
    return Certificate(
        status="certified" if not failures else "failed: " + "; ".join(failures),
        total_time_s=plan.total_time,
        gate_times_s=times,
        gate_margins_m=margins,
        step_defect_m=defect_m,
        step_defect_m_s=defect_m_s,
        open_loop_gap_m=_open_loop_gap(plan, vehicle),
        blind_s=_blind(path, course, times, vehicle.camera),
        max_speed_m_s=float(np.linalg.norm(path[:, 1:][:, V], axis=1).max()),
        track_hash=track.hash,
        vehicle_hash=vehicle.hash,
        plan_hash=plan.hash,
        options=asdict(options),
        solver_status=effort.solver_status,
        iterations=effort.iterations,
        build_s=effort.build_s,
        solve_s=effort.solve_s,
        point_mass_bound_s=effort.point_mass_bound_s,
        guesses_s=effort.guesses_s,
    )


def _replay(plan: Plan, vehicle: Vehicle) -> tuple[Array, Array, Array]:
    """Path (M, 1 + NX) with time first, and the position and velocity defects (N,) of the intervals."""
    fine = [_integrate(plan, vehicle, k, plan.x[k]) for k in range(len(plan.t) - 1)]
    rows = [np.column_stack([one.t[:-1], one.y.T[:-1]]) for one in fine]
    off = np.array([one.y[:, -1] for one in fine]) - plan.x[1:]
    rows.append(np.append(plan.t[-1], plan.x[-1])[None])
    return np.vstack(rows), np.linalg.norm(off[:, P], axis=1), np.linalg.norm(off[:, V], axis=1)


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
    p_wc, R_wc = camera.pose(x[P], x[Q])
    corners_c = (gate.corners() - p_wc) @ R_wc
    return bool((corners_c[:, 2] > 0).all() and camera.sees(camera.project(corners_c)).all())


def _broken_limits(path: Array, plan: Plan, track: Track, vehicle: Vehicle, options: PlanOptions) -> list[str]:
    """Sentences on every limit that the path or its inputs exceed."""
    x, limits = path[:, 1:], model(vehicle, options)
    low, high = box(track, vehicle, options)
    outside = np.maximum(low - x[:, P], x[:, P] - high)
    outside -= np.maximum(np.maximum(low - x[0, P], x[0, P] - high), 0.0)  # the pad may lie nearer than that
    nearest = min((obstacle.distance(x[:, P]).min() for obstacle in track.obstacles), default=np.inf)
    span = limits.u_high - limits.u_low
    rate = np.abs(np.array(limits.thrust_rates(plan.x[:-1].T, plan.u[:-1].T, np.diff(plan.t)[None]))).max()
    excesses = {  # limit: (how far it is passed, what of that the optimiser's tolerance may leave)
        "input, of its range": (
            np.maximum((limits.u_low - plan.u) / span, (plan.u - limits.u_high) / span),
            LIMIT_TOLERANCE,
        ),
        "body rate, relative": (np.abs(x[:, W]) / limits.x_high[W] - 1, LIMIT_TOLERANCE),
        "speed, relative": (np.linalg.norm(x[:, V], axis=1) / limits.speed_max - 1, SPEED_TOLERANCE),
        "thrust rate, relative": (rate / limits.thrust_rate_max - 1, SPEED_TOLERANCE),
        "distance from obstacles, m": (keep_clear(vehicle, options) - nearest, MARGIN_TOLERANCE),
        "bounds, m": (outside, MARGIN_TOLERANCE),
        "quaternion norm": (np.abs(np.linalg.norm(x[:, Q], axis=1) - 1), 1e-6),
    }
    largest = {name: (float(np.max(excess)), tolerance) for name, (excess, tolerance) in excesses.items()}
    return [f"limit broken by {size:.2g}: {name}" for name, (size, tolerance) in largest.items() if size > tolerance]


def _broken_ends(plan: Plan, track: Track, options: PlanOptions) -> list[str]:
    """Sentences on a start or an end that is not where it should be."""
    begin = initial(track, options)
    if begin is None:
        gap = np.abs(plan.x[0] - plan.x[-1])
        gap[Q] = min(np.abs(plan.x[0, Q] - s * plan.x[-1, Q]).max() for s in (1, -1))
        return ["the lap does not end in the state that it began with"] if gap.max() > END_TOLERANCE else []
    failures = []
    q_error = 1 - abs(plan.x[0, Q] @ begin.q_wb)
    off = np.abs(plan.x[0, P] - begin.position_m).max(), np.abs(plan.x[0, V] - begin.velocity_m_s).max(), q_error
    if max(off) > END_TOLERANCE:
        failures.append("the plan does not begin in the state that was asked for")
    end = options.stop_m or track.end_m
    if end is not None and max(np.abs(plan.x[-1, P] - end).max(), np.abs(plan.x[-1, V]).max()) > END_TOLERANCE:
        failures.append("the plan does not come to rest at its end")
    return failures


def _passings(path: Array, plan: Plan, course: tuple[Gate, ...], keep: float):
    """(times, margins, failures) of the gates, passed in order along the replayed path."""
    times, margins, failures, row = [], [], [], 0
    points = path[:, 1:][:, P]
    for i, gate in enumerate(course):
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
                continue
        margins.append(margin)
        planned = 0.0 if gate.is_ball else keep
        if margin < planned - MARGIN_TOLERANCE:
            failures.append(f"gate {i} is passed with {margin:.3f} m instead of {planned:.3f} m")
    return times, margins, failures
