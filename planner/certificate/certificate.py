"""The proof that comes with a plan: it is flown again, measured against the world, and refused where anything is not as asked.

Nothing of the problem's constraints is used: `replay` integrates with DOP853 where the problem has fixed Runge-Kutta steps,
`sweep` has a geometry of its own, and everything is judged between the nodes too.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from planner.certificate.limits import BLOCKS, TOLERANCES, broken_ends, broken_limits
from planner.certificate.passages import beyond, broken_turns, passages, too_near
from planner.certificate.replay import ReplayedPath, open_loop_gap, replay
from planner.certificate.sight import blind_times, seen_shares
from planner.doubt.statement import FlightRisk, flight_risk
from planner.models import Q, V
from planner.plan import Effort, Plan, PlanError
from planner.task import Task
from vehicle.rotation import Array

RISK_TOLERANCE = 1.01  # of the risk asked for
VIEW_TOLERANCE = 0.02  # of a leg, since the view is asked for at the nodes
GAP_FACTOR, GAP_M = 2.0, 1e-3  # an open-loop gap up to so many times what the defects explain, and m, is none


@dataclass(frozen=True)
class Certificate:
    """What was proven. `status` is "certified", or says what failed."""

    status: str
    total_time_s: float
    gate_times_s: list[float]
    gate_margins_m: list[float]
    step_defect_m: float
    step_defect_m_s: float
    defects: dict[str, float]  # the largest of all intervals, by state
    tolerances: dict[str, float]  # of these
    open_loop_gap_m: float  # at the end, of the whole plan flown from its start without correction
    open_loop_explained_m: float  # what the defects explain of it
    clearance_m: float | None  # the least distance from the vehicle's centre to a solid; None: there is none
    clearance_of: str  # that solid
    clearance_t_s: float | None
    seen_share: list[
        float | None
    ]  # per gate, of the leg to it once near enough to be found, with what `see` asks for in the image; None: nothing to see
    blind_s: list[float | None]  # per gate, from the last full view of its opening to the crossing; None: never seen
    max_speed_m_s: float
    solver_status: str
    iterations: int
    build_s: float
    solve_s: float
    point_mass_bound_s: float | None
    guesses_s: dict[str, float | None]  # per first guess, the time of its optimum on a coarse mesh
    risk: FlightRisk | None  # under the doubt of the options; None: not asked for
    track_hash: str
    vehicle_hash: str
    plan_hash: str
    options: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status == "certified"

    @property
    def verdict(self) -> str:
        """The status on one line of bearable length."""
        causes = self.status.split("; ")
        return "; ".join(causes[:3]) + (f"; and {len(causes) - 3} more" if len(causes) > 3 else "")

    @property
    def effort(self) -> Effort:
        """How the plan was come by."""
        solved = self.solver_status, self.status == "certified", self.iterations, self.build_s, self.solve_s
        return Effort(*solved, self.point_mass_bound_s, self.guesses_s)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def certify(plan: Plan, task: Task, effort: Effort) -> Certificate:
    """Checks a plan, solved by an effort or read from a file, against what was asked.

    Raises:
        PlanError: the plan holds numbers that are not finite.
    """
    if not all(np.isfinite(part).all() for part in (plan.t, plan.x, plan.u)) or (np.diff(plan.t) <= 0).any():
        raise PlanError("the plan holds numbers that are not finite, or times that do not rise")
    failures = [] if effort.success else [f"solver stopped with {effort.solver_status}"]
    path, camera, see = replay(plan, task.vehicle), task.vehicle.camera, task.options.see
    defects = _defects(plan, path)
    failures += _broken_intervals(plan, defects) + _broken_form(plan, task)
    failures += broken_limits(path.x, plan, task) + broken_ends(plan, task)
    gap, explained = open_loop_gap(plan, task.vehicle, path.off)
    if not gap <= GAP_FACTOR * explained + GAP_M:
        failures.append(f"flown in one go it ends {gap:.2g} m off, of which its defects explain {explained:.2g} m")
    t, p_w = beyond(path, task)
    passed, failed = passages(t, p_w, plan, task)
    failures += failed + broken_turns(t, p_w, passed, task)
    near, failed = too_near(t, p_w, task)
    failures += failed
    times = [one.t for one in passed]
    seen = seen_shares(path, task.gates, times, camera, task)
    failures += [
        f"gate {i} is in view over {share:.3f} of the leg to it instead of {see:g}"
        for i, share in enumerate(seen)
        if share is not None and share < see - VIEW_TOLERANCE
    ]
    risk = flight_risk(plan, task) if task.options.risk is not None else None
    if risk is not None and not risk.total <= RISK_TOLERANCE * (task.options.risk or 0.0):
        failures.append(f"its risk is {risk.total:.2g} instead of {task.options.risk:g}")
    largest = {name: float(values.max()) for name, values in defects.items()}
    return Certificate(
        status="certified" if not failures else "failed: " + "; ".join(failures),
        total_time_s=plan.total_time,
        gate_times_s=times,
        gate_margins_m=[one.margin_m for one in passed],
        step_defect_m=largest["position_m"],
        step_defect_m_s=largest["velocity_m_s"],
        defects=largest,
        tolerances={name: TOLERANCES[name] for name in largest},
        open_loop_gap_m=gap,
        open_loop_explained_m=explained,
        clearance_m=None if near is None else near.distance_m,
        clearance_of="" if near is None else near.solid,
        clearance_t_s=None if near is None else float(t[near.at]),
        seen_share=seen,
        blind_s=blind_times(path, task.gates, times, camera),
        max_speed_m_s=float(np.linalg.norm(path.x[:, V], axis=1).max()),
        track_hash=task.track.hash,
        vehicle_hash=task.vehicle.hash,
        plan_hash=plan.hash,
        options=asdict(task.options),
        solver_status=effort.solver_status,
        iterations=effort.iterations,
        build_s=effort.build_s,
        solve_s=effort.solve_s,
        point_mass_bound_s=effort.point_mass_bound_s,
        guesses_s=effort.guesses_s,
        risk=risk,
    )


def _defects(plan: Plan, path: ReplayedPath) -> dict[str, Array]:
    """(N,) per state, how far each interval ends from the next node. Of attitudes the angle between them."""
    found = {}
    for name, block in BLOCKS.items():
        if block.stop <= plan.x.shape[1]:
            found[name] = np.linalg.norm(path.off[:, block], axis=1) * (2.0 if block == Q else 1.0)
    return found


def _broken_intervals(plan: Plan, defects: dict[str, Array]) -> list[str]:
    """Sentences on the first interval that does not lead to the next node, for each state."""
    failures = []
    for name, values in defects.items():
        broken = ~(values <= TOLERANCES[name])
        if broken.any():
            leg = int(np.searchsorted(plan.gate_nodes, broken.argmax(), side="right"))
            what, unit = name.split("_", 1)
            failures.append(
                f"an interval on leg {leg} is off by {np.max(values):.1e} {unit.replace('_s', '/s').replace('s2', 's^2')}"
                f" of {what}, {TOLERANCES[name]:g} are tolerated"
            )
    return failures


def _broken_form(plan: Plan, task: Task) -> list[str]:
    """Sentences on what the file says of itself and is not so."""
    failures, options = [], task.options
    count = len(task.gates) + (task.end_m is not None)
    nodes = np.array(plan.gate_nodes)
    if len(nodes) != count or (np.diff(nodes, prepend=0) < 0).any() or nodes[-1] != len(plan.t) - 1:
        failures.append(f"the gates' rows {list(plan.gate_nodes)} do not end the {count} legs of the course")
    if plan.laps != options.laps or plan.model != options.model:
        failures.append(
            f"it has {plan.laps} laps of the {plan.model} model instead of {options.laps} of {options.model}"
        )
    if plan.track_hash != task.track.hash or plan.vehicle_hash != task.vehicle.hash:
        failures.append("it was made for another track or vehicle")
    if not np.array_equal(plan.u[-1], plan.u[-2]):
        failures.append("the last row's inputs do not repeat the row before")
    return failures
