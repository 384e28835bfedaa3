"""`plan-track`: plans a course and writes CSV, certificate and picture."""

import argparse
import json
import sys
from pathlib import Path

from planner.options import MODELS, PlanOptions
from planner.peers import read_problem
from planner.plan import write_plan
from planner.planning import make_plan, plan_path
from tracks.track import load_track
from vehicle.errors import UserError, exit_code
from vehicle.vehicle import load_vehicle


def progress_line(iteration: int, total_time: float) -> None:
    """Rewrites one line on a terminal; silent when nobody watches."""
    if sys.stderr.isatty():
        print(f"\r  iteration {iteration:3d}  {total_time:8.3f} s", end="", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    defaults = PlanOptions()
    arguments = argparse.ArgumentParser(
        prog="plan-track", description="Time-optimal trajectory through the gates of a track."
    )
    what = arguments.add_mutually_exclusive_group(required=True)
    what.add_argument("track", nargs="?", help="track file, e.g. tracks/vq1.yaml")
    what.add_argument("--problem", help="published planning problem; its quad_*.yaml lies beside it")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file (default: dcl)")
    arguments.add_argument("--model", default=defaults.model, choices=MODELS, help="flight model (default: rates)")
    arguments.add_argument("--laps", type=int, default=defaults.laps, help="laps of a closed track")
    arguments.add_argument(
        "--reserve", type=float, default=defaults.reserve, help="share of thrust and body rates to plan with"
    )
    arguments.add_argument(
        "--margin", type=float, default=defaults.margin_m, help="m kept beside the body at each gate"
    )
    arguments.add_argument(
        "--see", type=float, default=defaults.see, help="share of each leg with the next gate in view"
    )
    arguments.add_argument("--see-corners", action="store_true", help="all four corners of it, not only its centre")
    arguments.add_argument("--out", type=Path, default=Path("plans"), help="folder for CSV, JSON and PNG")
    arguments.add_argument("--json", type=Path, help="write the certificate here as well")
    return arguments


def _options(arguments: argparse.Namespace) -> PlanOptions:
    return PlanOptions(
        model=arguments.model,
        laps=arguments.laps,
        reserve=arguments.reserve,
        margin_m=arguments.margin,
        see=arguments.see,
        see_corners=arguments.see_corners,
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.problem:
        track, vehicle = read_problem(arguments.problem)
        options = PlanOptions(model="rotors", reserve=1.0, see=0.0, bounds_clear=False)
    else:
        track, vehicle = load_track(arguments.track), load_vehicle(arguments.vehicle)
        options = _options(arguments)
    plan, certificate = make_plan(track, vehicle, options, progress_line)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(certificate.as_dict(), indent=2) + "\n", encoding="utf-8")
    print(
        f"{track.name}, {vehicle.name}: {certificate.total_time_s:.3f} s (point mass {certificate.point_mass_bound_s:.3f} s),"
        f" {certificate.max_speed_m_s:.1f} m/s, margins from {min(certificate.gate_margins_m):.2f} m;"
        f" {certificate.iterations} iterations, {certificate.build_s:.1f} s build, {certificate.solve_s:.1f} s solve"
    )
    if not certificate.ok:
        raise UserError(f"{track.name}: no certified plan ({certificate.status}); nothing was written")
    path = plan_path(arguments.out, track, vehicle, options.laps)
    write_plan(path, plan, vehicle, certificate.as_dict())
    from planner.plot import draw_plan  # matplotlib takes longer to import than a small plan to solve

    draw_plan(path.with_suffix(".png"), plan, track, vehicle)
    print(f"{certificate.status}: {path}, {path.with_suffix('.json').name}, {path.with_suffix('.png').name}")
    return 0


def main() -> None:
    sys.exit(exit_code(lambda: run(parser().parse_args())))


if __name__ == "__main__":
    main()
