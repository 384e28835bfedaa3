"""`run-mpc`: flies a track, in the embedded simulator unless told otherwise."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from estimation.registry import DEFAULT, ESTIMATORS
from link.msp.profile import BetaflightProfile, load_wire
from link.options import Link, add_link_arguments, add_msp_arguments, link_of
from link.profile import COMMANDS
from link.rflysim.vision import EXAMPLE, parse_vision
from link.sockets import parse_address
from mpc.solvers.solver import AUTO, SOLVERS
from perception.registry import CLASSICAL, DETECTORS
from pilot.guidance.manoeuvres import parse_manoeuvres
from pilot.records.flight_log import LIMIT_MB
from planner.cli import progress_line
from planner.options import PlanOptions
from planner.plan import Plan, read_plan, require_certified
from planner.planning import find_or_make_plan
from sim.worlds.distribution import resolve
from sim.worlds.world import NOMINAL
from tracks.track import VADR_FRAME, Track, load_track
from vehicle.camera import Camera
from vehicle.errors import UserError, exit_code, say
from vehicle.files import require_output
from vehicle.vehicle import Vehicle, load_vehicle

if TYPE_CHECKING:
    from pilot.session import Session

VIEW_PORT = 8765
MODES = {  # --live, --lockstep
    (True, True): "live-lockstep",
    (True, False): "live",
    (False, True): "lockstep",
    (False, False): "embedded",
}
# From track, vehicle and plan, with the command line, to what is flown instead.
Improve = Callable[[Track, Vehicle, Plan, argparse.Namespace], tuple[Track, Vehicle, Plan]]
VIEW = f"127.0.0.1:{VIEW_PORT}"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="run-mpc", description="Flies a track by camera and IMU. Without --live in the built-in simulator."
    )
    arguments.add_argument("what", nargs="?", default="vq1", help="track, by name or YAML file, or plan (default: vq1)")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file (default: dcl)")
    arguments.add_argument("--live", action="store_true", help="fly a simulator that runs elsewhere")
    add_link_arguments(arguments)
    add_msp_arguments(arguments, "with --live: fly a Betaflight (--profile betaflight)")
    arguments.add_argument(
        "--vision", default="", metavar="URL", help=f"with --live: images from RflySim, such as {EXAMPLE}"
    )
    arguments.add_argument(
        "--lockstep",
        action="store_true",
        help="simulator in this process, as fast as it goes; with --live a race-sim --lockstep",
    )
    arguments.add_argument("--look", default="race", help="how the built-in simulator draws its world (default: race)")
    arguments.add_argument(
        "--camera", default="rendered", help="with --lockstep: rendered, or projected corners without an image"
    )
    arguments.add_argument(
        "--detector", choices=DETECTORS, default=CLASSICAL, help=f"what finds gates in images (default: {CLASSICAL})"
    )
    arguments.add_argument(
        "--estimator", choices=ESTIMATORS, default=DEFAULT, help=f"what keeps the vehicle's state (default: {DEFAULT})"
    )
    arguments.add_argument(
        "--pose", action="store_true", help="use position and velocity where the simulator tells them (default: never)"
    )
    arguments.add_argument(
        "--controller",
        default=AUTO,
        help="mpcc or tracking, or a YAML file like theirs (default: auto, mpcc where acados solves, else tracking)",
    )
    arguments.add_argument(
        "--excite",
        nargs="?",
        const="all",
        metavar="WHAT",
        help="fly what identify-vehicle wants to see instead of a race (default: all; else as it suggests);"
        " with --explore before the first gate",
    )
    arguments.add_argument(
        "--explore",
        action="store_true",
        help="fly gate to gate by sight, slowly, and leave a log for map-track; the track is only the simulator's",
    )
    arguments.add_argument(
        "--opening",
        type=float,
        default=VADR_FRAME.opening_m,
        help=f"with --explore: side of the openings, m (default: {VADR_FRAME.opening_m:g})",
    )
    arguments.add_argument(
        "--solver", choices=SOLVERS, default=AUTO, help="acados, or casadi, which needs no compiler (default: auto)"
    )
    arguments.add_argument(
        "--command", choices=(AUTO, *COMMANDS), default=AUTO, help="what is sent (default: auto, as the profile says)"
    )
    arguments.add_argument(
        "--view",
        nargs="?",
        const=VIEW,
        metavar="HOST:PORT",
        help=f"show the flight live to Foxglove, by its WebSocket (default: {VIEW}; needs foxglove-sdk)",
    )
    arguments.add_argument(
        "--world",
        metavar="FILE[:SEED]",
        help="how the built-in simulator differs from track and vehicle, see docs/worlds.md (default: as_believed)",
    )
    arguments.add_argument("--seed", type=int, default=0, help="of the simulator's noise and scenery")
    arguments.add_argument("--laps", type=int, default=1, help="laps of a closed track")
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans")
    arguments.add_argument(
        "--uncertified", action="store_true", help="fly a plan that is not the one that was certified, or none that was"
    )
    arguments.add_argument("--profile", default="spec", help="wire profile (default: spec)")
    arguments.add_argument(
        "--no-check", action="store_true", help="start although the simulator contradicts profile or track"
    )
    arguments.add_argument(
        "--no-retry",
        action="store_true",
        help="do not fly a missed gate again, nor look for gates with a lost estimate",
    )
    arguments.add_argument("--timeout", type=float, default=60.0, help="s to wait for a simulator")
    arguments.add_argument("--log", type=Path, default=Path("logs"), help="folder for log and plot")
    arguments.add_argument(
        "--log-limit",
        type=float,
        default=LIMIT_MB,
        metavar="MB",
        help=f"of a flight's log; images end at 80 %% of it (default: {LIMIT_MB:g}, some seven minutes)",
    )
    arguments.add_argument("--json", type=Path, help="write the result here")
    return arguments


def track_and_plan(arguments: argparse.Namespace, vehicle: Vehicle, camera: Camera) -> tuple[Track, Plan]:
    """The track and its plan: the one given, which may have been made for another camera, the one stored, or a new one.

    Raises:
        UserError: missing or malformed files, or a plan of another track or vehicle.
    """
    if Path(arguments.what).suffix != ".csv":
        track = load_track(arguments.what)
        options = PlanOptions(laps=arguments.laps)
        seeing = replace(vehicle, camera=camera)
        return track, find_or_make_plan(arguments.plans, track, seeing, options, progress_line, arguments.uncertified)
    plan = read_plan(arguments.what)
    track = load_track(plan.track_file)
    plan.require(track, vehicle)
    if not arguments.uncertified:
        require_certified(arguments.what, plan)
    return track, plan


def run(arguments: argparse.Namespace, improve: Improve | None = None) -> int:
    """Flies as the command line says; `improve` may change what is flown, and by which plan."""
    _require_consistent(arguments)
    session, link = _session(arguments, improve)
    from pilot.drivers.ending import exit_code_of
    from pilot.guidance.exploration import explore, summary  # after the cheap checks: this loads solver and renderer
    from pilot.records.result import table
    from pilot.run import excite, fly

    mode = MODES[arguments.live, arguments.lockstep or (session.msp is not None and not arguments.live)]
    if arguments.live:
        say(_awaited(session, link, arguments.peer))
    if session.manoeuvres is not None and not arguments.explore:
        log, why = excite(session, mode, link)
        say(f"{why or 'all was flown'}; log {log}: identify-vehicle {log}")
        return (exit_code_of(why) or 1) if why else 0
    if arguments.explore:
        exploration = explore(session, arguments.opening, mode, link)
        say(summary(exploration))
        status, cause = exploration.status, exploration.cause
    else:
        result = fly(session, mode, link, lambda result: say(table(result)))
        status, cause = result.status, result.cause
    return 0 if status in ("finished", "explored") else exit_code_of(cause) or 1


def _require_consistent(arguments: argparse.Namespace) -> None:
    """Raises UserError where options contradict each other, before anything is read."""
    if arguments.camera != "rendered" and (arguments.live or not arguments.lockstep):
        raise UserError(f"--camera {arguments.camera}: only --lockstep in one process flies without images")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: must not be negative")
    if arguments.vision and (arguments.video or not arguments.live):
        raise UserError("--vision: needs --live, and takes the place of --video")
    if arguments.json is not None:
        beside = Path(arguments.what).with_suffix(".json") if Path(arguments.what).suffix == ".csv" else None
        require_output(
            arguments.json, arguments.what, beside, arguments.vehicle, arguments.profile, arguments.controller
        )
    if arguments.world is not None and arguments.live:
        raise UserError("--world: only of the built-in simulator; with --live it is race-sim that takes it")
    for name in ("log_limit", "opening"):
        if getattr(arguments, name) <= 0:
            raise UserError(f"--{name.replace('_', '-')} {getattr(arguments, name):g}: must be positive")


def _require_wire(arguments: argparse.Namespace, msp: BetaflightProfile | None) -> None:
    """Raises UserError where options do not fit the profile's kind."""
    name = arguments.profile
    if msp is None and (arguments.msp or arguments.i_have_read):
        raise UserError(f"--msp: the profile {name} speaks MAVLink; --profile betaflight speaks MSP")
    if msp is None:
        return
    if bool(arguments.msp) is not arguments.live:
        raise UserError(
            f"--profile {name}: --live and --msp WHERE fly a flight controller, neither of them a simulated one"
        )
    if arguments.live and arguments.lockstep:
        raise UserError(f"--lockstep: with --live has no meaning with the MSP profile {name}")
    for option in ("vision", "peer", "listen", "signing_key", "pose", "explore"):
        if getattr(arguments, option):
            raise UserError(f"--{option.replace('_', '-')}: has no meaning with the MSP profile {name}")
    if arguments.command == "attitude":
        raise UserError(f"--command attitude: the MSP profile {name} is flown by rates")


def _session(arguments: argparse.Namespace, improve: Improve | None) -> tuple["Session", Link]:
    """What is to be flown, and over which sockets."""
    vehicle, wire = load_vehicle(arguments.vehicle), load_wire(arguments.profile)
    msp = wire if isinstance(wire, BetaflightProfile) else None
    _require_wire(arguments, msp)
    profile = wire.wire if isinstance(wire, BetaflightProfile) else wire
    vision = parse_vision(arguments.vision) if arguments.vision else None
    if vision is not None and vision.warning:
        print(f"warning: {vision.warning}", file=sys.stderr)
    if vision is not None and profile.offboard is not None:
        profile = profile.of_copter(vision.sensor.copter)
    link = link_of(arguments, profile.mavlink_port, profile.video_port)
    manoeuvres = parse_manoeuvres(arguments.excite) if arguments.excite is not None else None
    plan = None
    if arguments.explore or manoeuvres is not None:
        track = load_track(arguments.what)
    else:
        track, plan = track_and_plan(arguments, vehicle, vision.camera if vision else vehicle.camera)
    if vision is not None:
        vehicle = replace(vehicle, camera=vision.camera)
    world = None if arguments.live else resolve(arguments.world or NOMINAL, track, vehicle)
    if improve is not None and plan is not None:
        track, vehicle, plan = improve(track, vehicle, plan, arguments)
    from pilot.session import Session

    session = Session(
        track=track,
        vehicle_name=arguments.vehicle,
        vehicle=vehicle,
        profile=profile,
        plan=plan,
        laps=plan.laps if plan else arguments.laps,
        seed=arguments.seed,
        log_folder=arguments.log,
        timeout_s=arguments.timeout,
        look=arguments.look,
        camera=arguments.camera,
        detector=arguments.detector,
        estimator=arguments.estimator,
        pose=arguments.pose,
        controller=arguments.controller,
        msp=msp,
        vision=vision,
        check=not arguments.no_check,
        manoeuvres=manoeuvres,
        view=parse_address(arguments.view, VIEW_PORT) if arguments.view else None,
        world=world,
        solver=arguments.solver,
        command=profile.command if arguments.command == AUTO else arguments.command,
        log_limit_mb=arguments.log_limit,
        json=arguments.json,
        retry=not arguments.no_retry,
    )
    return session, link


def _awaited(session: "Session", link: Link, peer: str) -> str:
    """What a live flight waits for, and where."""
    images, vision = f"video on {link.video[0]}:{link.video[1]}", session.vision
    if session.msp is not None:
        return f"waiting for {session.msp.name} on {link.msp} to be armed and handed over, {images}"
    attitude = " and ATTITUDE" if session.profile.attitude_hz else ""
    if vision is not None:
        images = f"sensor {vision.sensor.seq_id} of {vision.server[0]}:{vision.server[1]} on {vision.sensor.port}"
    whom = f" of {peer}" if peer else ""
    return f"waiting for HEARTBEAT, HIGHRES_IMU{attitude} on {link.mavlink[0]}:{link.mavlink[1]}, {images}{whom}"


def main() -> None:
    sys.exit(exit_code(lambda: run(parser().parse_args())))


if __name__ == "__main__":
    main()
