"""`run-mpc`: fly a track, by default in the embedded simulator."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gate_racer.common.command import perform, remark, write_json
from gate_racer.common.errors import UserError, say
from gate_racer.common.settings import settings_of
from gate_racer.link.msp.preflight import PreflightFile, load_preflight, require_meant
from gate_racer.link.msp.profile import BetaflightProfile, load_wire, speaks_msp
from gate_racer.link.options import Link, link_of
from gate_racer.link.profile import Profile
from gate_racer.link.rflysim.client import Vision, parse_vision
from gate_racer.link.sockets import parse_address
from gate_racer.mpc.policy.policy import Policy, load_policy
from gate_racer.mpc.solvers.solver import AUTO
from gate_racer.pilot.guidance.exciter import parse_manoeuvres
from gate_racer.pilot.guidance.explorer import OPEN, parse_room
from gate_racer.pilot.guidance.rivals import Known, StartGrid
from gate_racer.planner.cli import progress_line
from gate_racer.planner.plan import Plan, read_plan, require_certified
from gate_racer.planner.planning import find_or_make_plan, options_of, plan_path
from gate_racer.planner.task import PlanOptions
from gate_racer.race.arguments import VIEW_PORT, parser, require_consistent, require_seen, require_wire
from gate_racer.race.settings import RunSettings
from gate_racer.race.trial import fly_trial
from gate_racer.sim.view.look import load_look
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.tracks.plausible import remarks
from gate_racer.tracks.track import Track, load_track, others, parse_place, place
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

if TYPE_CHECKING:
    from gate_racer.race.session import Session

MODES = {  # mode by (--live, --lockstep)
    (True, True): "live-lockstep",
    (True, False): "live",
    (False, True): "lockstep",
    (False, False): "embedded",
}
# Replaces track, vehicle and plan by improved ones, given the command line.
Improve = Callable[[Track, Vehicle, Plan, argparse.Namespace], tuple[Track, Vehicle, Plan]]


def track_and_plan(arguments: argparse.Namespace, vehicle: Vehicle, camera: Camera) -> tuple[Track, Plan]:
    """Return the track and its plan: the one given (possibly made for another camera), the one stored, or a new one.

    Raises:
        UserError: missing or malformed files, or a plan for another track, vehicle or number of laps.
    """
    if Path(arguments.what).suffix != ".csv":
        track = load_track(arguments.what)
        options = PlanOptions(laps=arguments.laps)
        seeing = replace(vehicle, camera=camera)
        fly = None if arguments.uncertified else fly_trial
        plan = find_or_make_plan(arguments.plans, track, seeing, options, progress_line, arguments.uncertified, fly)
        return track, plan
    plan = read_plan(arguments.what)
    if arguments.laps not in (1, plan.laps):
        raise UserError(f"--laps {arguments.laps}: {arguments.what} has {plan.laps}; name its track to plan again")
    track = load_track(plan.track_file)
    plan.require(track, vehicle)
    if not arguments.uncertified:
        require_certified(arguments.what, plan)
    return track, plan


def run(arguments: argparse.Namespace, improve: Improve | None = None) -> int:
    """Fly as the command line requests and return the exit code; `improve` may replace track, vehicle and plan."""
    arguments.lockstep |= not arguments.live and speaks_msp(arguments.profile)  # no other embedded simulator speaks MSP
    require_consistent(arguments)
    room = parse_room(arguments.room) if arguments.room else OPEN
    session, link = _session(arguments, improve)
    from gate_racer.pilot.live import exit_code_of
    from gate_racer.pilot.records.result import table
    from gate_racer.race.exploration import (  # after the cheap checks: loads solver and renderer
        explore,
        summary,
    )
    from gate_racer.race.session import excite, fly

    mode = MODES[arguments.live, arguments.lockstep]
    if arguments.live:
        remark(_awaited(session, link, arguments.peer))
    if session.manoeuvres is not None and not arguments.explore:
        log, why = excite(session, mode, link)
        say(f"{why or 'all manoeuvres were flown'}; log {log}; next: identify-vehicle {log}")
        write_json(arguments.json, {"flown": not why, "cause": why, "log": log})
        return (exit_code_of(why) or 1) if why else 0
    if arguments.explore:
        exploration = explore(session, arguments.opening, room, mode, link)
        say(summary(exploration))
        status, cause = exploration.status, exploration.cause
    else:
        result = fly(session, mode, link, lambda result: say(table(result)))
        status, cause = result.status, result.cause
    return 0 if status in ("finished", "explored") else exit_code_of(cause) or 1


@dataclass(frozen=True)
class _Wire:
    """Wire profile (derived from the MSP profile for a flight controller), and RflySim's cameras if any."""

    profile: Profile
    msp: BetaflightProfile | None
    vision: Vision | None
    preflight: tuple[Path, PreflightFile] | None  # of the aircraft, and where it stands


def _wire(arguments: argparse.Namespace, vehicle: Vehicle, command: str) -> _Wire:
    """Load the wire. Raises UserError for options that contradict it, and for a preflight file of another aircraft."""
    wire = load_wire(arguments.profile)
    msp = wire if isinstance(wire, BetaflightProfile) else None
    require_wire(arguments, msp, command)
    preflight = None
    if arguments.preflight is not None and msp is not None:
        preflight = arguments.preflight, load_preflight(arguments.preflight)
        require_meant(*preflight, msp, vehicle)
    profile = wire.wire if isinstance(wire, BetaflightProfile) else wire
    vision = parse_vision(arguments.vision) if arguments.vision else None
    if vision is not None and vision.warning:
        remark(f"warning: {vision.warning}")
    if vision is not None and profile.offboard is not None:
        profile = profile.of_copter(vision.sensor.copter)
    return _Wire(profile, msp, vision, preflight)


def _place(arguments: argparse.Namespace, track: Track) -> tuple[Track, StartGrid | None]:
    """Return the track with the start at its place on the grid, and the grid; None without --grid."""
    if not arguments.grid:
        return track, None
    number, of, spacing_m = parse_place(arguments.grid)
    grid = StartGrid(number, Known(arguments.rivals), others(track, number, of, spacing_m))
    return place(track, number, of, spacing_m), grid


def _session(arguments: argparse.Namespace, improve: Improve | None) -> tuple["Session", Link]:
    """Return the session requested by the command line, and its sockets."""
    settings = settings_of(arguments, RunSettings)
    vehicle, command = load_vehicle(arguments.vehicle), settings.controller.command
    wire = _wire(arguments, vehicle, command)
    profile, vision = wire.profile, wire.vision
    link = link_of(arguments, profile.mavlink_port, profile.video_port)
    if not arguments.live:  # before a plan is made
        load_look(arguments.look)
    if arguments.sitl is not None:
        from gate_racer.sim.betaflight.sitl import require_program

        require_program(arguments.sitl)
    manoeuvres = parse_manoeuvres(arguments.excite) if arguments.excite is not None else None
    policy = load_policy(arguments.policy) if arguments.policy else None
    plan = None
    if arguments.explore or manoeuvres is not None or policy is not None:
        track = load_track(arguments.what)
    else:
        track, plan = track_and_plan(arguments, vehicle, vision.camera if vision else vehicle.camera)
    for line in remarks(track, vehicle):
        remark(line)
    require_seen(arguments, track)
    track, grid = _place(arguments, track)
    if vision is not None:
        vehicle = replace(vehicle, camera=vision.camera)
    if policy is not None:
        _require_fit(policy, track, vehicle, profile.command_hz, arguments.laps)
    world = None if arguments.live else resolve(arguments.world or NOMINAL, track, vehicle)
    if improve is not None and plan is not None:
        track, vehicle, plan = improve(track, vehicle, plan, arguments)
    from gate_racer.race.session import Session

    session = Session(
        track=track,
        vehicle_name=arguments.vehicle,
        vehicle=vehicle,
        profile=profile,
        plan=plan,
        laps=plan.laps if plan else arguments.laps,
        seed=arguments.seed,
        log=arguments.log,
        timeout_s=settings.link.wait_s(arguments.live),
        look=arguments.look,
        camera=arguments.camera,
        detector=arguments.detector,
        estimator=arguments.estimator,
        pose=arguments.pose,
        controller=arguments.controller,
        msp=wire.msp,
        preflight=wire.preflight,
        shadow=arguments.shadow,
        sitl=arguments.sitl,
        vision=vision,
        check=settings.link.check,
        manoeuvres=manoeuvres,
        view=parse_address(arguments.view, VIEW_PORT) if arguments.view else None,
        world=world,
        solver=settings.controller.solver,
        command=profile.command if command == AUTO else command,
        log_limit_mb=settings.record.limit_mb,
        json=arguments.json,
        retry=settings.guidance.retry,
        replan=_replanned_by(arguments, track, vehicle, plan) if arguments.replan and plan is not None else None,
        grid=grid,
        policy=policy,
    )
    return session, link


def _replanned_by(arguments: argparse.Namespace, track: Track, vehicle: Vehicle, plan: Plan) -> PlanOptions:
    """Return the options to replan with in flight: the plan's own. Raises UserError for a plan of a model other than `rates`."""
    if plan.model != "rates":
        raise UserError(f"--replan: needs a plan of the rates model, not of the {plan.model} model")
    usual = PlanOptions(laps=plan.laps)
    given = Path(arguments.what).suffix == ".csv"
    path = Path(arguments.what) if given else plan_path(arguments.plans, track, vehicle, usual)
    return options_of(path, plan.laps)


def _require_fit(policy: Policy, track: Track, vehicle: Vehicle, command_hz: float, laps: int) -> None:
    """Warn of a course other than the one the policy was trained for. Raises UserError where the policy cannot fly."""
    policy.require(vehicle, command_hz)
    track.course(laps)
    if policy.warning(track):
        remark(f"warning: {policy.warning(track)}")


def _awaited(session: "Session", link: Link, peer: str) -> str:
    """Return the line that says what a live flight waits for, and where."""
    images, vision = f"video on {link.video[0]}:{link.video[1]}", session.vision
    if session.msp is not None:
        what = "flown by a person (no sticks are sent)" if session.shadow else "handed over"
        return f"waiting for {session.msp.name} on {link.msp} to be armed and {what}, {images}"
    attitude = " and ATTITUDE" if session.profile.attitude_hz else ""
    if vision is not None:
        images = f"sensor {vision.sensor.seq_id} of {vision.server[0]}:{vision.server[1]} on {vision.sensor.port}"
    whom = f" of {peer}" if peer else ""
    return f"waiting for HEARTBEAT, HIGHRES_IMU{attitude} on {link.mavlink[0]}:{link.mavlink[1]}, {images}{whom}"


def main() -> None:
    """Run `run-mpc` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
