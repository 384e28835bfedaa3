"""`plan-track`: plan a course or import a trajectory, certify it, fly it, and write CSV, certificate and plot."""

import argparse
import sys
from dataclasses import fields, replace
from itertools import cycle
from typing import Any

import numpy as np

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.config import from_dict
from gate_racer.common.errors import UserError
from gate_racer.common.settings import given_fields
from gate_racer.mpc.names import CONTOURING, TRACKING
from gate_racer.planner.certificate.certificate import Certificate, Trial, certify
from gate_racer.planner.certificate.replay import clearances
from gate_racer.planner.imported import AS_PUBLISHED, IMPORTED, read_peer_plan, read_problem
from gate_racer.planner.models import V
from gate_racer.planner.plan import Plan, read_plan, write_plan
from gate_racer.planner.planning import make_plan, plan_path
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.race.plan_track import PlanSettings
from gate_racer.tracks.track import Track, load_track, remarks
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle


def progress_line(iterations: int, total_time: float) -> None:
    """Rewrite one line of progress on a terminal; print nothing if stderr is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r  {iterations:3d} iterations  {total_time:8.3f} s", end="", file=sys.stderr, flush=True)


def _settings(arguments: argparse.Namespace, given: dict[str, Any]) -> PlanSettings:
    """Return the settings; for a peer's trajectory the defaults are the vehicle's full limits. Raises UserError."""
    if (arguments.track is None) is (given.get("problem") is None):
        raise UserError("expected a track, such as vq1, or --set problem=FILE")
    if "doubt" in given and given.get("risk") is None:
        raise UserError("doubt: needs a risk, such as risk=1e-3, of which it is the uncertainty model")
    if given.get("fast") and given.get("warm") is not None:
        raise UserError("fast: starts from a guess of its own; leave out warm")
    wide = "margin_m" in given
    if given.get("import_csv") is not None:
        given = {name: getattr(AS_PUBLISHED, name) for name in ("model", "reserve", "margin_m", "see")} | given
    settings = from_dict(given, PlanSettings, "settings")
    if settings.risk is not None and wide and settings.margin_m is not None and settings.problem is None:
        course = load_track(arguments.track).course(settings.laps)
        margins = tuple((settings.margin_m,) * (0 if gate.is_ball else len(gate.edges)) for gate in course)
        settings = replace(settings, edge_margins_m=margins)
    return settings


def run(arguments: argparse.Namespace) -> int:
    """Plan or import a trajectory, certify it, fly it if wanted, and write it; returns the exit code."""
    given = given_fields(arguments, PlanSettings)
    settings = _settings(arguments, given)
    if settings.out.suffix in (".csv", ".json", ".png"):
        raise UserError(f"--out {settings.out}: must be a folder; the files in it are named after track and vehicle")
    if settings.problem is not None:
        if "vehicle" in given:
            raise UserError(f"vehicle: is that of the problem, in the *quad*.yaml beside {settings.problem}")
        track, vehicle, options = read_problem(settings.problem)
        own = {one.name: getattr(settings, one.name) for one in fields(PlanOptions) if one.name in given}
        options = replace(options, **own)
    else:
        track, vehicle, options = load_track(arguments.track), load_vehicle(settings.vehicle), settings.options
        for line in remarks(track, vehicle):
            remark(line)
    inputs = (arguments.track, settings.problem, settings.vehicle, settings.import_csv, arguments.config)
    path, task = plan_path(settings.out, track, vehicle, options), Task(track, vehicle, options)
    outputs = path, path.with_suffix(".json"), path.with_suffix(".png"), arguments.json
    require_outputs(outputs, *inputs)  # a plan may replace its own warm start
    if settings.import_csv is not None:
        plan = read_peer_plan(settings.import_csv, task)
        if "model" not in given:
            task = Task(track, vehicle, replace(options, model=plan.model))
        certificate = certify(plan, task, IMPORTED)
    else:
        warm = None
        if (begun := settings.warm) is not None:
            ours = (begun.parent / f"{begun.stem}.json").exists()  # a plan of this project, or a peer's trajectory
            warm = read_plan(begun) if ours else read_peer_plan(begun, task)
        flown = fly_trial if settings.check else None
        plan, certificate = make_plan(track, vehicle, options, progress_line, warm, flown)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    write_json(arguments.json, certificate.as_dict())
    print(_summary(certificate, track, vehicle))
    if certificate.trial is not None and certificate.ok:
        print(certificate.trial.sentence)
    if not certificate.ok:
        raise UserError(f"{track.name}: no certified plan ({certificate.verdict}); nothing was written")
    write_plan(path, plan, vehicle, certificate.as_dict())
    from gate_racer.planner.plot import draw_plan  # importing matplotlib takes longer than solving a small plan

    draw_plan(path.with_suffix(".png"), plan, track, vehicle, certificate.risk)
    remark(f"{certificate.status}: {path}, {path.with_suffix('.json').name}, {path.with_suffix('.png').name}")
    return 0


def _summary(certificate: Certificate, track: Track, vehicle: Vehicle) -> str:
    bound = certificate.effort.point_mass_bound_s
    margins_m = [m for m, gate in zip(certificate.gate_margins_m, cycle(track.gates), strict=False) if not gate.is_ball]
    return (
        f"{track.name}, {vehicle.name}: {certificate.total_time_s:.3f} s"
        + (f" (point mass {bound:.3f} s)" if bound is not None else "")
        + f", {certificate.max_speed_m_s:.1f} m/s"
        + (f", margins from {min(margins_m):.2f} m" if margins_m else "")
        + (f", risk {certificate.risk.total:.1e}" if certificate.risk is not None else "")
        + f"; solved in {certificate.effort.solve_s:.1f} s"
    )


# Trial of a plan: flights by the nominal controller on the vehicle's grey-box plant, on the true state and by camera.

SEEDS = range(7001, 7007)  # of the flights by camera; those of campaigns and tests begin at 0 (chosen)
LATE = 1.5  # -, race time over the planned one of a flight that has repeated a gate (chosen)
SPACING_M = 0.02  # m, largest spacing of the points of a path whose distance to solids is taken
KEPT, KEPT_M = 1 / 3, 0.05  # -, m, share of the planned margin that has to be left, and enough of it (chosen)


def fly_trial(plan: Plan, task: Task) -> Trial | None:
    """Fly a plan on the vehicle's own plant until a flight fails: once on the true state, then by projected camera.

    None if that plant is the plan's model, or the plan does not begin on the pad. Slots are flown on the true state alone, by the
    controller that holds the plan's attitude.
    """
    vehicle, track, options = task.vehicle, task.track, task.options
    if not vehicle.grey_box or options.start is not None or options.flying_lap:
        return None
    # Slow to load: simulator and controller.
    from gate_racer.estimation.registry import DEFAULT
    from gate_racer.race.campaign.case import Case
    from gate_racer.race.campaign.choice import NO_ESTIMATOR, PreparedCourse
    from gate_racer.race.campaign.flight import NoLog, fly

    course = PreparedCourse(track, vehicle, plan, tuple(plan.passage_times_s(track)), None, None)
    slots = any(map(task.is_slot, task.gates))
    seen, controller = any(gate.visible for gate in task.gates) and not slots, TRACKING if slots else CONTOURING
    flights = [("3", NO_ESTIMATOR, 0)] + [("projected", DEFAULT, seed) for seed in SEEDS if seen]
    speed_m_s = float(np.linalg.norm(plan.x[:, V], axis=1).max())
    needed_m = task.vehicle.radius_m + min(KEPT * task.margin_m, KEPT_M)
    trial = Trial(0, len(task.gates), needed_m, options.reserve, speed_m_s)
    for number, (setting, estimator, seed) in enumerate(flights):
        if sys.stderr.isatty():
            print(f"\r  trial flight {number + 1} of {len(flights)}   ", end="", file=sys.stderr, flush=True)
        flown = fly(Case(track.name, vehicle.name, plan.laps, setting, controller, estimator, seed), course, NoLog())
        outcome = flown.outcome
        margins = [
            m for m, gate in zip(outcome.margin_m, task.gates, strict=False) if not (gate.is_ball or task.is_slot(gate))
        ]
        cause = "" if outcome.finished else outcome.cause or outcome.status
        if outcome.race_s and outcome.race_s > LATE * plan.total_time:
            cause = "a gate was missed and flown again"
        by = f" by camera, seed {seed}" if estimator != NO_ESTIMATOR else ""
        trial = trial.then(len(outcome.gate_s), margins, clearance_m(task, flown.path[:, 1:4]), cause, by)
        if not trial.ok:
            break
    return trial


def clearance_m(task: Task, p_w: Array) -> float | None:
    """Return the least distance, m, from a path (M, 3) m to an obstacle or a gate's stand; None where there is none."""
    if len(p_w) < 2:
        return None
    steps = np.linalg.norm(np.diff(p_w, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    fine = np.linspace(0.0, along[-1], int(along[-1] / SPACING_M) + 2)
    path = np.column_stack([np.interp(fine, along, axis) for axis in p_w.T])
    return min((near.distance_m for near in clearances(task.track, path) if not near.frame), default=None)
