"""From a track and a vehicle to a certified plan: what `plan-track` does, for any caller."""

from collections.abc import Callable
from pathlib import Path

from planner.certificate import Certificate, certify
from planner.options import PlanOptions
from planner.plan import Plan, PlanError, read_plan, write_plan
from planner.search import Solution, solutions
from tracks.track import Track
from vehicle.vehicle import Vehicle


def make_plan(
    track: Track,
    vehicle: Vehicle,
    options: PlanOptions,
    progress: Callable[[int, float], None] | None = None,
    warm: Plan | None = None,
) -> tuple[Plan, Certificate]:
    """Solves and certifies, until a solution passes. The caller must look at `Certificate.ok`.

    Args:
        warm: a plan of a similar course, to start from.

    Raises:
        UserError: the course contradicts the vehicle, or cannot be flown at all.
    """
    first = None
    for solution in solutions(track, vehicle, options, progress, warm):
        plan = as_plan(solution, track, vehicle, options)
        certificate = certify(plan, track, vehicle, options, solution.effort)
        if certificate.ok:
            return plan, certificate
        first = first or (plan, certificate)
    assert first is not None
    return first


def as_plan(solution: Solution, track: Track, vehicle: Vehicle, options: PlanOptions) -> Plan:
    """What the optimiser returned, as a plan that is still to be certified."""
    u = solution.u.T
    return Plan(
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
        gate_nodes=solution.gate_nodes,
    )


def plan_path(folder: Path, track: Track, vehicle: Vehicle, options: PlanOptions) -> Path:
    """Where a plan lives: `plans/vq1.csv`, `plans/vq1-swift.csv`, `plans/figure8-3laps.csv`, `plans/figure8-flying.csv`."""
    parts = [track.name] + ([vehicle.name] if vehicle.name != "dcl" else [])
    parts += [f"{options.laps}laps"] if options.laps > 1 else []
    parts += ["flying"] if options.flying_lap else []
    parts += ["moving"] if options.start is not None and not options.start.at_rest else []
    return folder / ("-".join(parts) + ".csv")


def find_or_make_plan(
    folder: Path, track: Track, vehicle: Vehicle, options: PlanOptions, progress: Callable[[int, float], None] | None
) -> Plan:
    """The stored plan when it is of this very track and vehicle, else a new one, stored.

    Raises:
        UserError: the course cannot be flown, or the new plan fails its certificate.
    """
    path = plan_path(folder, track, vehicle, options)
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
