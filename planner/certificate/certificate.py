"""Certificate of a plan, independent of the problem's constraints: other integrators and geometry, also between the nodes."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gate_racer.planner.certificate import replay
from gate_racer.planner.certificate.replay import TOLERANCES
from gate_racer.planner.course import BLIND
from gate_racer.planner.models import V
from gate_racer.planner.plan import Plan, PlanError, SolverStatistics
from gate_racer.planner.task import Task
from gate_racer.planner.uncertainty.risk import FlightRisk, flight_risk

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
    failures += replay.broken_rows(plan, defects, drifts) + replay.broken_form(plan, task)
    failures += replay.broken_limits(path.x, plan, task) + replay.broken_ends(plan, task)
    t, p_w = replay.beyond(path, task)
    passed, failed = replay.passages(t, p_w, plan, task)
    failures += failed + replay.scraped(path, task) + replay.out_of_turn(t, p_w, passed, task)
    near, failed = replay.too_near(t, p_w, task)
    failures += failed
    times = [one.t for one in passed]
    views = replay.seen(path, times, task)
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
