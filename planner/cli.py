"""`plan-track`: plan a course and write CSV, certificate and plot."""

import argparse
import sys
from dataclasses import replace
from itertools import cycle
from math import isfinite, nan
from pathlib import Path

from gate_racer.common.command import add_common, remark, write_json
from gate_racer.common.config import load
from gate_racer.common.errors import UserError
from gate_racer.common.files import require_output
from gate_racer.planner.certificate.certificate import Certificate, certify
from gate_racer.planner.imported import AS_PUBLISHED, IMPORTED, read_peer_plan, read_problem
from gate_racer.planner.models import MODELS
from gate_racer.planner.plan import Plan, read_plan, write_plan
from gate_racer.planner.planning import make_plan, plan_path
from gate_racer.planner.task import LIMIT_PER_GATE_S, LIMIT_S, Initial, PlanOptions, Task
from gate_racer.planner.trial import Fly
from gate_racer.tracks.plausible import remarks
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle


def progress_line(iteration: int, total_time: float) -> None:
    """Rewrite one line of progress on a terminal; print nothing if stderr is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r  iteration {iteration:3d}  {total_time:8.3f} s", end="", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser of `plan-track`."""
    defaults = PlanOptions()
    arguments = argparse.ArgumentParser(
        prog="plan-track", description="Compute a time-optimal, certified trajectory through the gates of a track."
    )
    subject = arguments.add_mutually_exclusive_group(required=True)
    subject.add_argument("track", nargs="?", help="name or YAML file of the track, such as vq1")
    subject.add_argument(
        "--problem", help="YAML file of a published planning problem, with its quad_*.yaml in the same folder"
    )
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file of the vehicle (default: dcl)")
    _add_problem(arguments, defaults)
    _add_search(arguments)
    add_common(arguments, "the certificate")
    return arguments


def _add_problem(arguments: argparse.ArgumentParser, defaults: PlanOptions) -> None:
    """Add the options of the planning problem."""
    arguments.add_argument("--model", choices=MODELS, help=f"flight model (default: {defaults.model})")
    arguments.add_argument("--laps", type=int, help=f"number of laps (default: {defaults.laps})")
    arguments.add_argument(
        "--reserve",
        type=float,
        help=f"share of the thrust and body rates that the plan may use (default: {defaults.reserve})",
    )
    arguments.add_argument(
        "--speed", dest="speed_m_s", type=float, metavar="V", help="speed limit, m/s (default: the vehicle's)"
    )
    arguments.add_argument(
        "--margin",
        dest="margin_m",
        type=float,
        help=f"least distance between body and gate frames, m (default: {defaults.margin_m})",
    )
    arguments.add_argument(
        "--risk",
        type=float,
        metavar="P",
        help="highest probability of any contact; sets the margin at each gate unless --margin is given",
    )
    arguments.add_argument(
        "--doubt",
        type=Path,
        metavar="FILE",
        help="uncertainty model for --risk (YAML; default: after one day of measurements)",
    )
    arguments.add_argument(
        "--see", type=float, help=f"share of each leg over which the next gate is in view (default: {defaults.see})"
    )
    arguments.add_argument(
        "--sight",
        dest="sight_s",
        type=float,
        metavar="S",
        help="time for which each gate is in view before it is passed, at least, s (default: 0)",
    )
    arguments.add_argument(
        "--see-corners", action="store_true", help="keep all four corners of the gate in view, not only its centre"
    )
    arguments.add_argument("--flying-lap", action="store_true", help="plan the fastest periodic lap")
    arguments.add_argument("--start", type=Path, metavar="FILE", help="initial state (YAML) instead of the pad")
    arguments.add_argument("--stop", type=_point, metavar="X,Y,Z", help="final position at rest, m, world NED")


def _add_search(arguments: argparse.ArgumentParser) -> None:
    """Add the options of the search, and of what is read and written."""
    arguments.add_argument(
        "--guesses", type=int, help="number of initial guesses, solved in parallel (default: 2, or 1 on a long course)"
    )
    arguments.add_argument(
        "--limit",
        dest="limit_s",
        type=float,
        metavar="S",
        help=f"limit of the CPU time of the search, s (default: {LIMIT_S:g}, or {LIMIT_PER_GATE_S:g} per gate)",
    )
    arguments.add_argument("--warm", type=Path, metavar="PLAN", help="warm-start from the plan of a similar course")
    arguments.add_argument(
        "--import",
        dest="peer",
        type=Path,
        metavar="CSV",
        help="certify a trajectory of CPC, TOGT or Agilicious instead of planning",
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("plans"), help="folder for CSV, JSON and PNG (default: plans)"
    )


def _point(text: str) -> tuple[float, float, float]:
    """Parse X,Y,Z in metres.

    Raises:
        UserError: not three finite numbers.
    """
    try:
        x, y, z = map(float, text.split(","))
    except ValueError:
        x = y = z = nan
    if not (isfinite(x) and isfinite(y) and isfinite(z)):
        raise UserError(f"--stop {text}: must be three finite numbers X,Y,Z in metres")
    return (x, y, z)


def _options(arguments: argparse.Namespace, track: Track) -> PlanOptions:
    """Return the options of the command line; for a peer's trajectory the defaults are the vehicle's full limits."""
    if arguments.doubt and arguments.risk is None:
        raise UserError(
            f"--doubt {arguments.doubt} needs --risk, such as --risk 1e-3: it is the uncertainty model of the risk"
        )
    base = AS_PUBLISHED if arguments.peer else PlanOptions()
    given = {
        name: getattr(arguments, name)
        for name in (
            "model",
            "laps",
            "reserve",
            "speed_m_s",
            "margin_m",
            "see",
            "sight_s",
            "guesses",
            "limit_s",
            "risk",
        )
    }
    if arguments.risk is not None and arguments.margin_m is not None:
        course = track.course(arguments.laps or base.laps)
        given["edge_margins_m"] = tuple(
            (arguments.margin_m,) * (0 if gate.is_ball else len(gate.edges)) for gate in course
        )
    if arguments.doubt:
        given["doubt"] = load(arguments.doubt, Doubt)
    return replace(
        base,
        **{name: value for name, value in given.items() if value is not None},
        see_corners=arguments.see_corners,
        flying_lap=arguments.flying_lap,
        start=load(arguments.start, Initial) if arguments.start else None,
        stop_m=arguments.stop,
    )


def run(arguments: argparse.Namespace, fly: Fly | None = None) -> int:
    """Plan or import a trajectory, certify it, fly it by `fly` if given, and write it; returns the exit code."""
    if arguments.out.suffix in (".csv", ".json", ".png"):
        raise UserError(f"--out {arguments.out}: must be a folder; the files in it are named after track and vehicle")
    if arguments.problem:
        track, vehicle, options = read_problem(arguments.problem)
    else:
        track, vehicle = load_track(arguments.track), load_vehicle(arguments.vehicle)
        options = _options(arguments, track)
        for line in remarks(track, vehicle):
            remark(line)
    inputs = (arguments.track, arguments.problem, arguments.vehicle, arguments.start, arguments.peer, arguments.doubt)
    path = plan_path(arguments.out, track, vehicle, options)
    for output in (path, path.with_suffix(".json"), path.with_suffix(".png"), arguments.json):
        if output is not None:
            require_output(output, *inputs)
    if arguments.json:
        require_output(arguments.json, arguments.warm)  # a plan may replace its own warm start
    if arguments.peer:
        task = Task(track, vehicle, options)
        plan = read_peer_plan(arguments.peer, task)
        certificate = certify(plan, task, IMPORTED)
    else:
        warm = _warm(arguments.warm, Task(track, vehicle, options)) if arguments.warm else None
        plan, certificate = make_plan(track, vehicle, options, progress_line, warm, fly)
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


def _warm(path: Path, task: Task) -> Plan:
    """Read the warm start: a plan of this project, or a peer's trajectory."""
    own = (path.parent / f"{path.stem}.json").exists()
    return read_plan(path) if own else read_peer_plan(path, task)


def _summary(certificate: Certificate, track: Track, vehicle: Vehicle) -> str:
    bound, times = certificate.point_mass_bound_s, [T for T in certificate.guesses_s.values() if T is not None]
    margins_m = [m for m, gate in zip(certificate.gate_margins_m, cycle(track.gates), strict=False) if not gate.is_ball]
    return (
        f"{track.name}, {vehicle.name}: {certificate.total_time_s:.3f} s"
        + (f" (point mass {bound:.3f} s)" if bound is not None else "")
        + f", {certificate.max_speed_m_s:.1f} m/s"
        + (f", margins from {min(margins_m):.2f} m" if margins_m else "")
        + (f", risk {certificate.risk.total:.1e}" if certificate.risk is not None else "")
        + (
            f"; {len(times)} of {len(certificate.guesses_s)} guesses converged"
            if len(certificate.guesses_s) > 1
            else ""
        )
        + (f" within {max(times) / min(times) - 1:.2%}" if len(times) > 1 else "")
        + f"; {certificate.iterations} iterations, {certificate.build_s:.1f} s build, {certificate.solve_s:.1f} s solve"
    )
