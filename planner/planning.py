"""From a track and a vehicle to a certified plan: what `plan-track` does, for any caller."""

from collections.abc import Callable
from pathlib import Path

from planner.certificate import Certificate, certify
from planner.options import PlanOptions
from planner.plan import Plan, PlanError, read_plan, write_plan
from planner.refinement import solve
from tracks.track import Track
from vehicle.vehicle import Vehicle


def make_plan(
    track: Track, vehicle: Vehicle, options: PlanOptions, progress: Callable[[int, float], None] | None = None
) -> tuple[Plan, Certificate]:
    """Solves and certifies. The caller must look at `Certificate.ok`.

    Raises:
        UserError: the course contradicts the vehicle, or cannot be flown at all.
    """
    solution = solve(track, vehicle, options, progress)
    u = solution.u.T
    plan = Plan(
        track_name=track.name,
        track_file=track.file,
        track_hash=track.hash,
        vehicle_name=vehicle.name,
        vehicle_hash=vehicle.hash,
        model=solution.model,
        laps=options.laps,
        t=solution.t,
        x=solution.x.T,
        u=u[[*range(len(u)), -1]],
        gate_nodes=tuple(int(node) for node in solution.gate_nodes),
    )
    solver = {
        "solver_status": solution.status,
        "success": solution.success,
        "solve_s": solution.solve_s,
        "build_s": solution.build_s,
        "iterations": solution.iterations,
        "point_mass_bound_s": solution.point_mass_s,
    }
    return plan, certify(plan, track, vehicle, options, solver)


def plan_path(folder: Path, track: Track, vehicle: Vehicle, laps: int) -> Path:
    """Where the plan of this combination lives: `plans/vq1.csv`, `plans/vq1-swift.csv`, `plans/figure8-3laps.csv`."""
    parts = [track.name] + ([vehicle.name] if vehicle.name != "dcl" else []) + ([f"{laps}laps"] if laps > 1 else [])
    return folder / ("-".join(parts) + ".csv")


def find_or_make_plan(
    folder: Path, track: Track, vehicle: Vehicle, options: PlanOptions, progress: Callable[[int, float], None] | None
) -> Plan:
    """The stored plan when it is of this very track and vehicle, else a new one, stored.

    Raises:
        UserError: the course cannot be flown, or the new plan fails its certificate.
    """
    path = plan_path(folder, track, vehicle, options.laps)
    if path.exists():
        try:
            plan = read_plan(path)
            plan.require(track, vehicle)
            if plan.laps == options.laps:
                return plan
        except PlanError:
            pass  # stale or damaged: made again below
    plan, certificate = make_plan(track, vehicle, options, progress)
    if not certificate.ok:
        raise PlanError(f"{track.name}: no certified plan ({certificate.status})")
    write_plan(path, plan, vehicle, certificate.as_dict())
    return plan
