"""The command line of `run-mpc` and the checks of its options against each other."""

import argparse
from pathlib import Path

from gate_racer.common.command import add_common
from gate_racer.common.errors import UserError
from gate_racer.common.files import require_output
from gate_racer.common.settings import add_settings
from gate_racer.estimation.registry import DEFAULT, ESTIMATORS
from gate_racer.link.msp.ports import may_be_aircraft, require_consent
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.options import add_link_arguments, add_msp_arguments
from gate_racer.link.rflysim.client import EXAMPLE
from gate_racer.mpc.solvers.solver import AUTO
from gate_racer.perception.registry import CLASSICAL, DETECTORS
from gate_racer.race.settings import MOVED
from gate_racer.tracks.track import VADR_FRAME, Track

VIEW_PORT = 8765  # TCP port, Foxglove's default
VIEW = f"127.0.0.1:{VIEW_PORT}"


def parser() -> argparse.ArgumentParser:
    """Return the command line of `run-mpc`."""
    arguments = argparse.ArgumentParser(
        prog="run-mpc", description="Fly a track by camera and IMU, in the built-in simulator unless --live is given."
    )
    arguments.add_argument("what", nargs="?", default="vq1", help="track (name or YAML file) or plan (default: vq1)")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file (default: dcl)")
    arguments.add_argument("--live", action="store_true", help="connect to a simulator in another process")
    _add_connection(arguments)
    _add_pilot(arguments)
    _add_run(arguments)
    add_settings(arguments, MOVED)
    add_common(arguments, "the result")
    return arguments


def _add_connection(arguments: argparse.ArgumentParser) -> None:
    """Add the options of the link, or of the built-in simulator."""
    add_link_arguments(arguments)
    add_msp_arguments(arguments, "with --live: fly a Betaflight (--profile betaflight)")
    arguments.add_argument(
        "--preflight",
        type=Path,
        metavar="FILE",
        help="with --msp: start only if the aircraft matches this file of preflight; required for a real port",
    )
    arguments.add_argument(
        "--shadow", action="store_true", help="with --msp: run everything except stick output while a person flies"
    )
    arguments.add_argument(
        "--sitl",
        type=Path,
        metavar="PROGRAM",
        help="with --profile betaflight, without --live: use Betaflight's SITL program as the flight controller",
    )
    arguments.add_argument(
        "--vision", default="", metavar="URL", help=f"with --live: images from RflySim, such as {EXAMPLE}"
    )
    arguments.add_argument(
        "--lockstep",
        action="store_true",
        help="run the simulator in this process, as fast as possible; with --live: connect to race-sim --lockstep",
    )
    arguments.add_argument(
        "--grid",
        default="",
        metavar="K/N[:M]",
        help="with --live: start position K of N, M m apart (default: 1), see race-sim --pilots",
    )
    arguments.add_argument(
        "--rivals",
        choices=("unknown", "told"),
        default="unknown",
        help="with --grid: told uses the rivals' states sent by race-sim --tell-rivals (default: unknown)",
    )
    arguments.add_argument("--look", default="race", help="rendering of the built-in simulator (default: race)")
    arguments.add_argument(
        "--camera", default="rendered", help="with --lockstep: rendered, or projected (corners without an image)"
    )


def _add_pilot(arguments: argparse.ArgumentParser) -> None:
    """Add the options of perception, estimation, control and guidance."""
    arguments.add_argument(
        "--detector", choices=DETECTORS, default=CLASSICAL, help=f"gate detector (default: {CLASSICAL})"
    )
    arguments.add_argument(
        "--estimator", choices=ESTIMATORS, default=DEFAULT, help=f"state estimator (default: {DEFAULT})"
    )
    arguments.add_argument("--pose", action="store_true", help="use position and velocity if the simulator sends them")
    arguments.add_argument(
        "--controller",
        default=AUTO,
        help="mpcc, tracking, or a YAML file of settings (default: mpcc)",
    )
    arguments.add_argument(
        "--policy",
        default="",
        metavar="FILE",
        help="fly a learned policy (name or .npz file) without a plan, see docs/learning.md",
    )
    arguments.add_argument(
        "--excite",
        nargs="?",
        const="all",
        metavar="WHAT",
        help="fly identification manoeuvres instead of a race (default: all; or those that identify-vehicle suggests);"
        " with --explore before the first gate",
    )
    arguments.add_argument(
        "--explore",
        action="store_true",
        help="explore an unknown course by sight and write a log for map-track; the track is used by the simulator only",
    )
    arguments.add_argument(
        "--opening",
        type=float,
        default=VADR_FRAME.opening_m,
        help=f"with --explore: side length of the openings, m (default: {VADR_FRAME.opening_m:g})",
    )
    arguments.add_argument(
        "--room",
        default="",
        metavar="NORTH,EAST,SOUTH,WEST,UP,DOWN",
        help="with --explore: distances from the pad to walls, ceiling and floor, m, inf where there is none; the nose is"
        " north if no ATTITUDE is sent",
    )


def _add_run(arguments: argparse.ArgumentParser) -> None:
    """Add the options of the run: world, plan, checks and files."""
    arguments.add_argument(
        "--view",
        nargs="?",
        const=VIEW,
        metavar="HOST:PORT",
        help=f"stream the flight to Foxglove by WebSocket (default: {VIEW}; needs foxglove-sdk)",
    )
    arguments.add_argument(
        "--world",
        metavar="FILE[:SEED]",
        help="deviations of the simulated world from track and vehicle, see docs/worlds.md (default: as_believed)",
    )
    arguments.add_argument(
        "--seed", type=int, default=0, help="random seed of the simulator's noise and scenery (default: 0)"
    )
    arguments.add_argument("--laps", type=int, default=1, help="number of laps (default: 1)")
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="folder of plans (default: plans)")
    arguments.add_argument("--uncertified", action="store_true", help="fly a plan without a valid certificate")
    arguments.add_argument("--profile", default="spec", help="wire profile (default: spec)")
    arguments.add_argument(
        "--replan",
        action="store_true",
        help="re-plan in flight if the vehicle performs better than its file, see docs/planning.md",
    )
    arguments.add_argument(
        "--log",
        type=Path,
        default=Path("logs"),
        help="log to write (.mcap), with the plot beside it, or a folder for a new one (default: logs)",
    )


def require_consistent(arguments: argparse.Namespace) -> None:
    """Check that the options do not contradict each other, before any file is read. Raises UserError where they do."""
    if arguments.camera != "rendered" and (arguments.live or not arguments.lockstep):
        raise UserError(f"--camera {arguments.camera}: needs --lockstep without --live")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: must not be negative")
    if arguments.grid and not arguments.live:
        raise UserError("--grid: needs --live and a simulator started with race-sim --pilots N")
    if arguments.rivals == "told" and not arguments.grid:
        raise UserError("--rivals told: needs --grid K/N, which decides who gives way")
    for option in ("explore", "excite", "shadow", "grid"):
        if arguments.policy and getattr(arguments, option):
            raise UserError(f"--policy: cannot be combined with --{option}")
    if arguments.policy and Path(arguments.what).suffix == ".csv":
        raise UserError(f"--policy: needs a track, but {arguments.what} is a plan")
    for option in ("policy", "explore", "excite", "shadow", "grid"):
        if arguments.replan and getattr(arguments, option):
            raise UserError(f"--replan: cannot be combined with --{option}")
    if arguments.room and not arguments.explore:
        raise UserError("--room: needs --explore; a race keeps within the bounds of its track")
    if arguments.vision and (arguments.video or not arguments.live):
        raise UserError("--vision: needs --live, and cannot be combined with --video")
    if arguments.json is not None:
        beside = Path(arguments.what).with_suffix(".json") if Path(arguments.what).suffix == ".csv" else None
        require_output(
            arguments.json,
            arguments.what,
            beside,
            arguments.vehicle,
            arguments.profile,
            arguments.controller,
            arguments.policy or None,
            arguments.preflight,
            arguments.config,
        )
    if arguments.world is not None and arguments.live:
        raise UserError("--world: applies to the built-in simulator only; with --live, give it to race-sim")
    if not arguments.opening > 0:
        raise UserError(f"--opening {arguments.opening:g}: must be positive")


def require_wire(arguments: argparse.Namespace, msp: BetaflightProfile | None, command: str) -> None:
    """Check that the options fit the kind of the profile, MAVLink or MSP. Raises UserError where they do not."""
    name = arguments.profile
    if arguments.preflight is not None and not arguments.msp:
        raise UserError("--preflight: needs --live and --msp WHERE, a flight controller to compare with the file")
    if arguments.shadow and not arguments.msp:
        raise UserError("--shadow: needs --live and --msp WHERE, a flight controller that reports the person's sticks")
    if msp is None and (arguments.msp or arguments.i_have_read):
        raise UserError(f"--msp: profile {name} is for MAVLink; MSP needs an MSP profile, such as --profile betaflight")
    if arguments.sitl is not None and (msp is None or arguments.live):
        raise UserError("--sitl: needs --profile betaflight without --live; with --live, give it to race-sim")
    if msp is None:
        for option in ("peer", "listen", "video", "signing_key"):
            if getattr(arguments, option) and not arguments.live:
                raise UserError(f"--{option.replace('_', '-')}: needs --live, a simulator in another process")
        return
    if bool(arguments.msp) is not arguments.live:
        raise UserError(
            f"--profile {name}: needs both --live and --msp WHERE for a flight controller, or neither for a simulated one"
        )
    if arguments.live and arguments.lockstep:
        raise UserError(f"--lockstep: cannot be combined with --live and the MSP profile {name}")
    if arguments.live:
        _require_preflight(arguments)
    for option in ("vision", "peer", "listen", "signing_key", "pose", "explore", "excite"):
        if getattr(arguments, option):
            raise UserError(f"--{option.replace('_', '-')}: not available with the MSP profile {name}")
    if command == "attitude":
        raise UserError(f"controller.command=attitude: the MSP profile {name} accepts body rates only")


def require_seen(arguments: argparse.Namespace, track: Track) -> None:
    """Check that a camera sees a gate of the course, or that the state is told. Raises UserError."""
    if not (arguments.pose or any(gate.visible for gate in track.gates)):
        raise UserError(
            f"{track.name}: has no gate that a camera sees, so it is flown with a told state only: add --pose"
        )


def _require_preflight(arguments: argparse.Namespace) -> None:
    """Check a flight of a possible real aircraft. Raises UserError without consent or without a preflight file."""
    require_consent(arguments.msp, arguments.i_have_read)
    if may_be_aircraft(arguments.msp) and arguments.preflight is None and not arguments.shadow:
        raise UserError(f"{arguments.msp} may be a real aircraft: run preflight --out FILE, then add --preflight FILE")
