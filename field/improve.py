"""`run-mpc --improve`: estimate vehicle, map and reserve from the last runs of a course, and change them for the next.

The vehicle's thrust and drag are fitted to the runs; its camera is the mean of the filter's calibrations, with which the next
flight starts; a gate is moved to where the runs saw it; all only where the change is significant, and with the last
exploration of the course (`run-mpc --explore`) in addition to the runs. The reserve is bisected between the fastest run that
kept its margins and the boldest that did not.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gate_racer.field.corrections import Change, better_camera, better_track, better_vehicle, unused
from gate_racer.field.files import write_vehicle
from gate_racer.field.runs import Run, explorations, history
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan, PlanError, write_plan
from gate_racer.planner.planning import make_plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.vehicle import Vehicle

CLEAR_M = 0.04  # m beyond the body's half diagonal, least margin of a good run
STEP, HALVED, LEAST_STEP = 0.04, 0.5, 0.01  # of the reserve: increment, bisection factor, smallest change worth a plan
RETREAT, LEAST, MOST = 0.06, 0.4, 0.97  # decrement after a failure, and bounds of the reserve


@dataclass(frozen=True)
class Improvement:
    """Next plan with its track and vehicle, the changes, and the best run so far."""

    track: Track
    vehicle: Vehicle
    plan: Plan
    changes: tuple[Change, ...]
    best: Run | None


def improve(track: Track, vehicle: Vehicle, logs: Path, plans: Path, laps: int) -> Improvement:
    """Make the next plan from the last runs, and store it in `plans` with its vehicle and track.

    Raises:
        UserError: no run of this track and vehicle exists, or no plan can be made.
    """
    runs = history(logs, plans, track.name, vehicle.name)
    if not runs:
        raise UserError(
            f"--improve: no run of {track.name} with {vehicle.name} in {logs} with its plan in {plans}; fly the course first"
        )
    floor = vehicle.half_diagonal + CLEAR_M
    reserve, why = next_reserve(runs, floor)
    changes = (
        [] if reserve == runs[-1].reserve else [Change("reserve", f"{runs[-1].reserve:.3f}", f"{reserve:.3f}", why)]
    )
    explored = explorations(logs)
    better, by_flights = better_vehicle(runs, vehicle, explored)
    better, by_camera = better_camera(runs, better)
    course, moved = better_track(runs, track, vehicle, plans, explored)
    changes += [*by_flights, *by_camera, *moved]
    good = [run for run in runs if run.good(floor)]
    best = min(good, key=lambda run: run.time_s or np.inf) if good else None
    if not any(change.made for change in changes):
        return Improvement(course, better, runs[-1].plan, tuple(changes), best)
    plan = _planned(plans, course, better, PlanOptions(laps=laps, reserve=reserve), runs[-1].plan)
    return Improvement(course, better, plan, tuple(changes), best)


def next_reserve(runs: list[Run], floor_m: float) -> tuple[float, str]:
    """Return the reserve to fly next, and the reason."""
    good = [run for run in runs if run.good(floor_m)]
    bad = [run for run in runs if not run.good(floor_m)]
    if not good:
        reserve = max(LEAST, min(run.reserve for run in runs) - RETREAT)
        return reserve, f"no run finished with a margin of {floor_m:.2f} m"
    best = max(run.reserve for run in good)
    above = [run.reserve for run in bad if run.reserve > best + 1e-9]
    if above:
        step = HALVED * (min(above) - best)
        reserve = best + step if step > LEAST_STEP else best
        return reserve, f"the margin was kept at {best:.3f}, and not at {min(above):.3f}"
    if any(abs(run.reserve - best) < 1e-9 for run in bad):
        return max(LEAST, best - LEAST_STEP), f"not every run at {best:.3f} kept the margin"
    margin = min(run.margin_m or 0.0 for run in good if run.reserve == best)
    return min(MOST, best + STEP), f"{best:.3f} was flown with a margin of {margin:.2f} m, {floor_m:.2f} m is required"


def _planned(plans: Path, track: Track, vehicle: Vehicle, options: PlanOptions, warm: Plan) -> Plan:
    plan, certificate = make_plan(track, vehicle, options, None, warm if warm.laps == options.laps else None)
    if not certificate.ok:
        raise PlanError(f"{track.name}: no certified plan ({certificate.status})")
    path = unused(plans, track.name, ".csv")
    write_plan(path, plan, vehicle, certificate.as_dict())
    write_vehicle(path.with_suffix(".vehicle.yaml"), vehicle)
    return plan


def summary(improvement: Improvement) -> str:
    """Return the changes and their reasons, a line each."""
    lines = [f"{c.what}: {c.before} -> {c.after} ({c.why})" for c in improvement.changes] or ["no change"]
    best = improvement.best
    if best is not None:
        lines.append(
            f"best so far {best.time_s:.3f} s with {best.margin_m:.2f} m; now planned {improvement.plan.total_time:.3f} s"
        )
    return "\n".join(lines)
