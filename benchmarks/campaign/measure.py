"""From a flight to its figures, and to the rule that explains a flight that did not finish."""

from dataclasses import replace

import numpy as np

from benchmarks.campaign.case import Case, Flown, Outcome
from benchmarks.campaign.choice import Course
from mpc.reference import Reference
from pilot.flight import Tally
from pilot.recorder import Flight
from pilot.result import Verdict, off_path, true_positions
from vehicle.rotation import Array

LAST_S = 0.5  # before the end, in which the cause is sought
PATH_HZ = 30.0  # of the path that is kept


def measure(
    case: Case, course: Course, flight: Flight, tally: Tally, verdict: Verdict, flown_s: float, cpu_s: float
) -> Flown:
    """Everything that tables and reports need of a flight."""
    t = np.array(flight.t)
    off = lost = np.full(len(t), np.nan)
    truth = true_positions(verdict, t) if len(t) else None
    if truth is not None:
        known = np.isfinite(truth).all(axis=1)
        off, lost = off.copy(), np.linalg.norm(np.array(flight.p) - truth, axis=1)
        off[known] = off_path(Reference(course.plan, course.vehicle), np.array(flight.theta)[known], truth[known])
    solve_ms = 1e3 * np.array(flight.solve_s)
    gates, gate_s = len(course.track.gates), verdict.gate_times_s
    ends = np.array([0.0, *gate_s[gates - 1 :: gates]])
    outcome = Outcome(
        status=verdict.status,
        cause=verdict.cause,
        gates_total=len(course.gates_s),
        planned_s=course.plan.total_time,
        bound_s=course.bound_s,
        race_s=gate_s[-1] if verdict.status == "finished" else None,
        lap_s=np.diff(ends).tolist(),
        gate_s=gate_s,
        planned_gate_s=list(course.gates_s),
        margin_m=verdict.gate_margins_m,
        tracking_m=_rms(off),
        estimate_m=_rms(lost),
        solve_p50_ms=float(np.percentile(solve_ms, 50)) if len(solve_ms) else None,
        solve_p99_ms=float(np.percentile(solve_ms, 99)) if len(solve_ms) else None,
        fallbacks=tally.fallbacks,
        frames=tally.frames,
        sightings=tally.sightings,
        rejected=tally.rejected,
        flown_s=flown_s,
        cpu_s=cpu_s,
    )
    late = t > t[-1] - LAST_S if len(t) else np.zeros(0, bool)
    half_m = course.track.gates[len(gate_s) % gates].half
    return Flown(replace(outcome, rule=why(outcome, off[late], lost[late], half_m)), path_of(verdict))


def why(outcome: Outcome, off: Array, lost: Array, half_m: float) -> str:
    """The first rule that holds. off, lost: distances in m from the plan, and of the estimate from the truth, at the end."""
    if outcome.finished:
        return ""
    if outcome.cause.startswith("no solution"):
        return "no solution"
    if len(lost) and np.nanmax(lost, initial=0.0) > half_m:
        return "estimate lost: off by more than half a gate"
    if len(off) and np.nanmax(off, initial=0.0) > half_m:
        return "tracking lost: off the plan by more than half a gate"
    if outcome.status == "crashed":
        return "clipped: near the plan, which left too little room"
    return outcome.status.replace("_", " ")


def path_of(verdict: Verdict) -> Array:
    """(M, 5) time since GO, position and speed of the true path, thinned."""
    if verdict.t is None or verdict.x is None or len(verdict.t) < 2:
        return np.empty((0, 5))
    every = max(1, round(1 / (PATH_HZ * np.diff(verdict.t).mean())))
    t, x = verdict.t[::every], verdict.x[::every]
    return np.column_stack([t - verdict.t[0], x[:, :3], np.linalg.norm(x[:, 7:10], axis=1)])


def _rms(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else None
