"""Planning from track and vehicle to a certified plan, the core of `plan-track`."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gate_racer.common.command import remark
from gate_racer.common.config import from_dict
from gate_racer.common.errors import UserError
from gate_racer.common.files import FileError, read_json, require_output
from gate_racer.common.process import never_swallowed
from gate_racer.planner.certificate.certificate import Certificate, Trial, certify
from gate_racer.planner.course import resolve
from gate_racer.planner.fast import fast_plans
from gate_racer.planner.nlp import Deadline, find_compiler
from gate_racer.planner.plan import Plan, PlanError, read_plan, require_certified, write_plan
from gate_racer.planner.problem import Progress
from gate_racer.planner.search import plans
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.uncertainty.risk import looking, plan_at_risk
from gate_racer.tracks.gate import TIGHT_M
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

REPLAN = 0.25  # -, CPU time limit of a solve with updated margins, as a fraction of the search's (chosen)
UNCOMPILED = 8.0  # -, factor by which the time limit grows without a C compiler
# Where a plant is more than the plan's model, a certified plan may be faster than it can fly. Reserve and speed of each further
# plan over those of the first, and its least share of view (chosen).
EASED = ((0.9, 0.75, 0.0), (0.8, 0.6, 0.5), (0.75, 0.45, 0.5))
# Flies a plan of a task; None if the plant is the plan's model, or the flight does not begin at rest on the pad.
Fly = Callable[[Plan, Task], Trial | None]


def make_plan(
    track: Track,
    vehicle: Vehicle,
    options: PlanOptions,
    progress: Progress | None = None,
    warm: Plan | None = None,
    fly: Fly | None = None,
) -> tuple[Plan, Certificate]:
    """Solve and certify until a solution passes. The caller must check `Certificate.ok`.

    Args:
        warm: a plan of a similar course, for a warm start.
        fly: flies a certified plan on the vehicle's own plant; where that fails, plans are made again with more reserve.

    Raises:
        UserError: the course contradicts the vehicle, or cannot be flown.
        KeyboardInterrupt: on Ctrl-C, also while a solver runs.

    Examples:
        >>> from gate_racer import make_plan
        >>> plan, certificate = make_plan(track, vehicle, options)
        >>> certificate.ok, min(certificate.gate_margins_m) > 0.15
        (True, True)
    """
    task = Task(track, vehicle, options)
    plan, certificate = _roomy(task, progress, warm)
    if fly is None or not certificate.ok:
        return plan, certificate
    task = replace(task, options=replace(options, margin_m=certificate.options["margin_m"]))
    return _flown(plan, certificate, task, progress, fly)


def _roomy(task: Task, progress: Progress | None, warm: Plan | None) -> tuple[Plan, Certificate]:
    """Plan with the usual margin, or the narrower one where the course leaves no more."""
    if task.options.margin_m is not None:
        return _planned(task, progress, warm)
    found = None
    with contextlib.suppress(UserError):
        found = _planned(task, progress, warm)
        if found[1].ok:
            return found
    again = _planned(replace(task, options=replace(task.options, margin_m=TIGHT_M)), progress, warm)
    return again if found is None or again[1].ok else found


def _flown(
    plan: Plan, certificate: Certificate, task: Task, progress: Progress | None, fly: Fly
) -> tuple[Plan, Certificate]:
    """Fly a certified plan, and others with more reserve until one is flown well; else the last one's certificate has failed."""
    because, first, speed_m_s = "", task.options, certificate.max_speed_m_s
    further = [
        replace(first, reserve=first.reserve * c, speed_m_s=speed_m_s * v, see=max(first.see, see))
        for c, v, see in EASED
    ]
    while (trial := fly(plan, task)) is not None:
        trial = replace(trial, because=because)
        certificate = replace(certificate, trial=trial)
        if trial.ok:
            break
        certificate = replace(certificate, status=f"failed: {trial.failure}")
        if not further:
            break
        because, task, again = because or trial.failure, replace(task, options=further.pop(0)), None
        with contextlib.suppress(UserError):  # no way with this reserve
            again = _planned(task, progress, None)
        if again is None or not again[1].ok:
            break
        plan, certificate = again
    return plan, certificate


def _planned(task: Task, progress: Progress | None, warm: Plan | None) -> tuple[Plan, Certificate]:
    return _solved(task, progress, warm) if task.options.risk is None else _at_risk(task, progress, warm)


def _solved(task: Task, progress: Progress | None, warm: Plan | None) -> tuple[Plan, Certificate]:
    """Return the first certified solution, or the best uncertified one, with its certificate."""
    first = None
    deadline = Deadline.after(task.limit_s * (1.0 if find_compiler() else UNCOMPILED))
    with never_swallowed():
        course = resolve(task)
        for plan, effort in fast_plans(course) if task.options.fast else plans(course, deadline, progress, warm):
            certificate = certify(plan, task, effort)
            if certificate.ok:
                return plan, certificate
            first = first or (plan, certificate)
    assert first is not None
    return first


def _at_risk(task: Task, progress: Progress | None, warm: Plan | None) -> tuple[Plan, Certificate]:
    """Return the plan for the requested risk and its certificate, in which the risk is evaluated again."""
    found: dict[str, tuple[Certificate, PlanOptions]] = {}

    def solve(options: PlanOptions, warm: Plan | None) -> Plan | None:
        again = replace(options, limit_s=REPLAN * task.limit_s) if warm is not None else options
        try:
            plan, certificate = _solved(Task(task.track, task.vehicle, again), progress, warm)
        except UserError:
            if warm is None:
                raise
            return None
        found[plan.hash] = certificate, options
        return plan if certificate.ok else None

    plan = looking(task, solve, warm)
    if task.options.edge_margins_m is None:
        plan = plan_at_risk(replace(task, options=replace(found[plan.hash][1], risk=task.options.risk)), solve, plan)
    certificate, options = found[plan.hash]
    own = replace(options, risk=task.options.risk, limit_s=task.options.limit_s)
    return plan, certify(plan, Task(task.track, task.vehicle, own), certificate.effort)


def plan_path(folder: Path, track: Track, vehicle: Vehicle, options: PlanOptions) -> Path:
    """Return a plan's path: `plans/vq1.csv`, `plans/vq1-swift.csv`, `plans/figure8-3laps.csv`, `plans/figure8-flying.csv`."""
    parts = [track.name] + ([vehicle.name] if vehicle.name != "dcl" else [])
    parts += [f"{options.laps}laps"] if options.laps > 1 else []
    parts += ["flying"] if options.flying_lap else []
    parts += ["moving"] if options.start is not None and any(options.start.velocity_m_s) else []
    return folder / ("-".join(parts) + ".csv")


def find_or_make_plan(
    folder: Path,
    track: Track,
    vehicle: Vehicle,
    options: PlanOptions,
    progress: Progress | None,
    uncertified: bool = False,
    fly: Fly | None = None,
) -> Plan:
    """Return the stored plan if it was made for exactly this track and vehicle, else make and store a new one.

    A stored plan of other inputs is made again with its own options; `options` are those of a first one. `uncertified`
    accepts a plan that was changed, or fails. Raises UserError: the stored plan was changed, or there is no certified one.
    """
    path = plan_path(folder, track, vehicle, options)
    stored = _stored(path, track, vehicle, options)
    if stored is not None:
        if not uncertified:
            require_certified(path, stored)
        return stored
    outdated = path.exists()
    if outdated:
        if options == PlanOptions(laps=options.laps):
            options = options_of(path, options.laps)
        if options.risk is not None:  # found again
            options = replace(options, edge_margins_m=None, solid_margins_m=(), see_by_gate=None)
        remark(f"{path} is of another track or vehicle file, or damaged: planned again with its options")
    require_output(path)  # before the time that planning takes
    plan, certificate = make_plan(track, vehicle, options, progress, fly=fly)
    if certificate.trial is not None and certificate.ok:
        remark(certificate.trial.sentence)
    if certificate.ok:
        write_plan(path, plan, vehicle, certificate.as_dict())
        if outdated and (picture := path.with_suffix(".png")).exists():
            from gate_racer.planner.plot import draw_plan

            draw_plan(picture, plan, track, vehicle, certificate.risk)
    elif not uncertified:
        raise PlanError(f"{track.name}: no certified plan ({certificate.verdict})")
    return plan


def options_of(path: Path, laps: int) -> PlanOptions:
    """Return the options of the plan at a path, from its certificate, else the defaults. Raises UserError if malformed."""
    try:
        about = read_json(path.with_suffix(".json"))
    except FileError:
        return PlanOptions(laps=laps)
    options = from_dict(about.get("options", {"laps": laps}), PlanOptions, f"{path.with_suffix('.json')}: options")
    return replace(options, laps=laps)


def _stored(path: Path, track: Track, vehicle: Vehicle, options: PlanOptions) -> Plan | None:
    """Return the plan at a path if it can be read and matches this track, vehicle and number of laps, else None."""
    try:
        plan = read_plan(path)
        plan.require(track, vehicle)
    except PlanError:
        return None
    return plan if plan.laps == options.laps else None
