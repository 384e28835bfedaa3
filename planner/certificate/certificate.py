"""Certificate of a plan, independent of the problem's constraints: other integrators and geometry, also between the nodes."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gate_racer.planner.certificate import replay
from gate_racer.planner.certificate.replay import TOLERANCES, ReplayedPath
from gate_racer.planner.course import BLIND
from gate_racer.planner.models import P, Q, V
from gate_racer.planner.plan import Plan, PlanError, SolverStatistics
from gate_racer.planner.task import Task
from gate_racer.planner.uncertainty.risk import FlightRisk, flight_risk
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array


def seen(path: ReplayedPath, times: list[float], task: Task) -> list[tuple[float | None, float | None]]:
    """Return per gate the share of its leg, and the time, s, on it and the leg before, in view and in range, or None."""
    begins, found = [float(path.t[0])] * 2 + times, []
    for i, (gate, crossed) in enumerate(zip(task.gates, times, strict=False)):
        leg, both = (_seen(path, gate, begin, crossed, task) for begin in (begins[i + 1], begins[i]))
        found.append((leg and leg[0] / leg[1], both and both[0]))
    return found


def _seen(path: ReplayedPath, gate: Gate, begin: float, crossed: float, task: Task) -> tuple[float, float] | None:
    """Return the time in s in view, and that within detection range, from `begin` until a gate is crossed; or None."""
    leg = (path.t[1:] > begin) & (path.t[1:] <= crossed + 1e-9)
    off = np.linalg.norm(path.x[1:, P] - np.array(gate.centre_m), axis=1)
    leg[: np.flatnonzero(leg & (off > task.view_range_m(gate))).max(initial=-1) + 1] = False
    if gate.is_ball or not gate.visible or not leg.any():
        return None
    points = gate.corners() if task.options.see_corners else np.array(gate.centre_m)[None]
    dt, x = np.diff(path.t)[leg], path.x[1:][leg]
    seen = _in_view(task.vehicle.camera, points, x)
    for point in points:
        seen &= ~replay.hidden(task.track, x[:, P], point)
    return float(dt @ seen), float(dt.sum())


def _in_view(camera: Camera, points_w: Array, x: Array) -> np.ndarray:
    """Return for each state x (M, NX), (M,), whether all world points (K, 3) are in the image."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    turn = Rotation.from_quat(x[:, Q], scalar_first=True)
    result = np.ones(len(x), dtype=bool)
    for point in points_w:
        p_c = (turn.inv().apply(point - x[:, P]) - camera.p_bc) @ camera.R_bc
        ahead = p_c[:, 2] > 1e-3
        p_c[~ahead] = [0.0, 0.0, 1.0]
        result &= ahead & camera.sees(camera.project(p_c))
    return result


RISK_TOLERANCE = 1.01  # -, tolerated risk over the requested one
VIEW_TOLERANCE = 0.02  # -, s, tolerated shortfall of the visible fraction or time: the constraint holds at the nodes


@dataclass(frozen=True)
class Trial:
    """Flights of a plan on the vehicle's own plant: on the true state, then by camera, until one fails."""

    gates: int  # passed by the last flight
    gates_total: int
    needed_m: float  # m, distance of the centre from an edge or an obstacle that is enough on the true state
    reserve: float  # of the plan
    speed_m_s: float  # m/s, largest of the plan
    flights: int = 0
    margin_m: float | None = None  # of the centre from an edge, at the least; None before the first gate, or for balls
    clearance_m: float | None = None  # m, of the centre from an obstacle, at the least; None without obstacles
    cause: str = ""  # why the last flight is not good enough; empty if it is
    because: str = ""  # failure of the first plan; empty if this is it

    @property
    def ok(self) -> bool:
        return not self.cause

    def then(self, gates: int, margins_m: list[float], clearance_m: float | None, cause: str, by: str = "") -> "Trial":
        """Return the trial with a further flight, whose margins count only on the true state: `by` is empty."""
        near = _least(*margins_m, clearance_m)
        if not cause and not by and near is not None and near < self.needed_m:
            cause = f"less than {self.needed_m:.2f} m from an edge or an obstacle"
        margin_m, clearance_m = _least(self.margin_m, *margins_m), _least(self.clearance_m, clearance_m)
        flown = replace(self, gates=gates, flights=self.flights + 1, cause=cause and cause + by)
        return replace(flown, margin_m=margin_m, clearance_m=clearance_m)

    @property
    def failure(self) -> str:
        """What went wrong, and in which plan."""
        return f"flown on the vehicle's own plant {self._passed}: {self.cause}"

    @property
    def sentence(self) -> str:
        """The trial of a plan that is good enough, and why it is not the first one."""
        why = f", because the first plan was {self.because}" if self.because else ""
        seen = f" and {self.flights - 1} times by camera" if self.flights > 1 else ""
        return f"flown on the vehicle's own plant, on the true state{seen}: {self._passed}{why}"

    @property
    def _passed(self) -> str:
        margin = f", least margin {self.margin_m:.2f} m" if self.margin_m is not None else ""
        clear = f", {self.clearance_m:.2f} m from an obstacle" if self.clearance_m is not None else ""
        limits = f"reserve {self.reserve:.2g}, at most {self.speed_m_s:.1f} m/s"
        return f"{self.gates} of {self.gates_total} gates{margin}{clear} ({limits})"


def _least(*values: float | None) -> float | None:
    return min((one for one in values if one is not None), default=None)


@dataclass(frozen=True)
class Certificate:
    """Result of the certification. `status` is "certified" or lists what failed."""

    status: str
    total_time_s: float
    gate_times_s: list[float]
    gate_margins_m: list[float]
    defects: dict[str, float]  # largest defect over all intervals, by state
    tolerances: dict[str, float]  # largest tolerated defects, by state
    drifts_per_s: dict[str, float]  # largest sum of defects per second, over windows, by state
    drift_tolerances_per_s: dict[str, float]
    clearance_m: float | None  # m, least distance from the vehicle's centre to a solid; None without solids
    clearance_of: str  # name of that solid
    clearance_t_s: float | None  # s, time of that distance
    # Per gate, fraction of time in view on the leg to it, once within detection range; None if not applicable.
    seen_share: list[float | None]
    seen_s: list[float | None]  # s, per gate, time in view on the leg to it and the one before, within detection range
    max_speed_m_s: float
    effort: SolverStatistics
    risk: FlightRisk | None  # under the options' uncertainty model; None if not requested
    track_hash: str
    vehicle_hash: str
    plan_hash: str
    options: dict[str, Any]
    trial: Trial | None = None  # flight on the vehicle's own plant, where that is more than the plan's model

    @property
    def ok(self) -> bool:
        return self.status == "certified"

    @property
    def verdict(self) -> str:
        causes = self.status.split("; ")
        return "; ".join(causes[:3]) + (f"; and {len(causes) - 3} more" if len(causes) > 3 else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, and those of `effort`, as one dictionary for JSON."""
        about = asdict(self)
        effort = about.pop("effort")
        return about | effort


def certify(plan: Plan, task: Task, effort: SolverStatistics) -> Certificate:
    """Check a plan against its task. Raises PlanError: it holds numbers that are not finite."""
    if not all(np.isfinite(part).all() for part in (plan.t, plan.x, plan.u)) or (np.diff(plan.t) <= 0).any():
        raise PlanError("the plan holds numbers that are not finite, or times that do not increase")
    failures = [] if effort.success else [f"solver stopped with {effort.solver_status}"]
    path = replay.replay(plan, task.vehicle)
    defects = replay.state_errors(path.off)
    drifts = replay.defect_rates(plan.t, defects)
    failures += _broken_rows(plan, defects, drifts) + _broken_form(plan, task)
    failures += replay.broken_limits(path.x, plan, task) + replay.broken_ends(plan, task)
    t, p_w = replay.beyond(path, task)
    passed, failed = replay.passages(t, p_w, plan, task)
    failures += failed + replay.scraped(path, task) + replay.out_of_turn(t, p_w, passed, task)
    near, failed = replay.too_near(t, p_w, task)
    failures += failed
    times = [one.t for one in passed]
    views = seen(path, times, task)
    for i, (when, (share, seconds)) in enumerate(zip(times, views, strict=False)):
        if share is not None and share < task.see(i) - VIEW_TOLERANCE:
            failures.append(f"gate {i} is in view over a share of {share:.3f} of its leg instead of {task.see(i):g}")
        least_s = min(task.options.sight_s, (1 - BLIND) * (when - path.t[0]))
        if seconds is not None and seconds < least_s - VIEW_TOLERANCE:
            failures.append(f"gate {i} is in view for {seconds:.3f} s instead of {least_s:.3g}")
    risk = flight_risk(plan, task) if task.options.risk is not None else None
    if risk is not None and not risk.total <= RISK_TOLERANCE * (task.options.risk or 0.0):
        failures.append(f"its risk is {risk.total:.2g} instead of {task.options.risk:g}")
    largest = {name: float(values.max()) for name, values in defects.items()}
    return Certificate(
        status="certified" if not failures else "failed: " + "; ".join(failures),
        total_time_s=plan.total_time,
        gate_times_s=times,
        gate_margins_m=[one.margin_m for one in passed],
        defects=largest,
        tolerances={name: TOLERANCES[name].defect for name in largest},
        drifts_per_s=drifts,
        drift_tolerances_per_s={name: TOLERANCES[name].drift_per_s for name in drifts},
        clearance_m=None if near is None else near.distance_m,
        clearance_of="" if near is None else near.solid,
        clearance_t_s=None if near is None else float(t[near.at]),
        seen_share=[share for share, _ in views],
        seen_s=[seconds for _, seconds in views],
        max_speed_m_s=float(np.linalg.norm(path.x[:, V], axis=1).max()),
        track_hash=task.track.hash,
        vehicle_hash=task.vehicle.hash,
        plan_hash=plan.hash,
        options=asdict(task.options),
        risk=risk,
        effort=effort,
    )


def _broken_rows(plan: Plan, defects: dict[str, Array], drifts: dict[str, float]) -> list[str]:
    """Return sentences on states whose defects exceed their tolerances, with the first such interval's leg."""
    failures = []
    for name, values in defects.items():
        (state, unit), most = name.split("_", 1), TOLERANCES[name]
        unit, broken = unit.replace("_s", "/s").replace("s2", "s^2"), ~(values <= most.defect)
        if broken.any():
            leg = int(np.searchsorted(plan.gate_nodes, broken.argmax(), side="right"))
            defect = f"a defect of {np.max(values):.1e} {unit} in {state}"
            failures.append(f"an interval on leg {leg} has {defect}, the tolerance is {most.defect:g}")
        if not drifts[name] <= most.drift_per_s:
            drift = f"by {drifts[name]:.2g} {unit} per s in {state}"
            failures.append(f"its inputs lead away from its rows {drift}, the tolerance is {most.drift_per_s:g}")
    return failures


def _broken_form(plan: Plan, task: Task) -> list[str]:
    """Return sentences on metadata that do not match the plan or the task."""
    options, nodes = task.options, np.array(plan.gate_nodes)
    count = len(task.gates) + (task.end_m is not None)
    unmarked = len(nodes) != count or (np.diff(nodes, prepend=0) < 0).any() or nodes[-1] != len(plan.t) - 1
    own, asked = (plan.laps, plan.model), (options.laps, options.model)
    foreign = (plan.track_hash, plan.vehicle_hash) != (task.track.hash, task.vehicle.hash)
    faults = {
        f"gate_nodes {list(plan.gate_nodes)} do not mark the ends of the course's {count} legs": unmarked,
        f"it has {own[0]} laps of the {own[1]} model instead of {asked[0]} of {asked[1]}": own != asked,
        "it was made for another track or vehicle": foreign,
        "the inputs of the last row differ from those of the row before": not np.array_equal(plan.u[-1], plan.u[-2]),
    }
    return [fault for fault, found in faults.items() if found]
