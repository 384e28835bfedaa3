"""From a command line to the session that it requests: settings, files, plan and world, checked against each other."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate_racer.common.command import remark
from gate_racer.common.errors import UserError
from gate_racer.common.files import require_output
from gate_racer.common.parts import is_part
from gate_racer.common.settings import settings_of
from gate_racer.estimation.registry import VIO
from gate_racer.link.msp.preflight import PreflightFile, load_preflight, require_meant
from gate_racer.link.msp.profile import BetaflightProfile, load_wire, speaks_msp
from gate_racer.link.options import Link
from gate_racer.link.profile import Profile
from gate_racer.link.rflysim.client import Vision, parse_vision
from gate_racer.mpc.names import CONTOURING, TRACKING
from gate_racer.mpc.policy.policy import load_policy
from gate_racer.perception.registry import TAUGHT
from gate_racer.pilot.guidance.exciter import parse_manoeuvres
from gate_racer.pilot.guidance.rivals import StartGrid
from gate_racer.planner.plan import Plan, read_plan, require_certified
from gate_racer.planner.planning import find_or_make_plan, options_of, plan_path
from gate_racer.planner.task import PlanOptions
from gate_racer.race.planning import fly_trial, progress_line
from gate_racer.race.settings import FlownPlanSettings, RunSettings
from gate_racer.sim.view.style import load_style
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.tracks.gate import has_slot
from gate_racer.tracks.track import Track, load_track, parse_place, place, remarks
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

if TYPE_CHECKING:
    from gate_racer.race.session import Session


@dataclass(frozen=True)
class _Wire:
    """Of a `Session`: wire profile (derived from the MSP profile for a flight controller), sockets, and RflySim's cameras."""

    profile: Profile
    link: Link
    msp: BetaflightProfile | None
    vision: Vision | None
    preflight: tuple[Path, PreflightFile] | None  # of the aircraft, and where it stands


def race(arguments: argparse.Namespace) -> "Session":
    """Return the session of a race. Raises UserError for settings and files that are wrong or contradict each other."""
    settings = _settings(arguments)
    flies_plan = settings.controller.flies_plan
    if not flies_plan and Path(arguments.what).suffix == ".csv":
        raise UserError(f"--controller {settings.controller.name}: needs a track, but {arguments.what} is a plan")
    vehicle, wire = _vehicle_and_wire(settings)
    plan = None
    if not flies_plan:
        track = load_track(arguments.what)
    else:
        track, plan = track_and_plan(arguments.what, settings.laps, settings.plan, vehicle, wire.vision)
    track, grid = _placed(settings, _plausible(track, vehicle, settings))
    if settings.controller.name == CONTOURING and has_slot(track.gates, vehicle.radius_m):
        why = "is passed tilted; mpcc does not hold a plan's attitude, tracking does"
        remark(f"warning: {track.name}: has a slot, which {why}")
    elif settings.controller.name == TRACKING and vehicle.grey_box and not settings.link.live:
        remark(
            f"warning: {vehicle.name}: its own plant is more than the plan's model, for which mpcc allows, and tracking not"
        )
    if not flies_plan:
        _require_fit(settings.controller.name, track, vehicle, wire.profile.command_hz, settings.laps)
    session = _session(arguments, settings, wire, track, vehicle, plan=plan, grid=grid)
    if plan is not None and settings.plan.improve:
        from gate_racer.field.improve import improve, summary  # slow to load

        better = improve(session.track, session.vehicle, settings.record.log, settings.plan.folder, plan.laps)
        print(summary(better))
        session = replace(session, track=better.track, vehicle=better.vehicle, plan=better.plan)
    if session.plan is not None and settings.plan.replan:
        session = replace(session, replan=_replanned_by(arguments.what, session, session.plan))
    return session


def survey(arguments: argparse.Namespace, manoeuvres: Callable[[RunSettings], str | None]) -> "Session":
    """Return the session of a flight without a plan that may fly manoeuvres. Raises UserError as `race`."""
    settings = _settings(arguments)
    vehicle, wire = _vehicle_and_wire(settings)
    if wire.msp is not None:
        raise UserError(f"--profile {settings.link.profile}: explore and excite need MAVLink, not MSP")
    wanted = manoeuvres(settings)
    flown = parse_manoeuvres(wanted) if wanted is not None else None
    track = _plausible(load_track(arguments.what), vehicle, settings)
    return _session(arguments, settings, wire, track, vehicle, manoeuvres=flown)


def track_and_plan(
    what: str, laps: int, settings: FlownPlanSettings, vehicle: Vehicle, vision: Vision | None = None
) -> tuple[Track, Plan]:
    """Return the track and its plan: given, even for another camera, stored, or new. Raises UserError."""
    if Path(what).suffix != ".csv":
        track = load_track(what)
        seeing = replace(vehicle, camera=vision.camera) if vision else vehicle
        fly = None if settings.uncertified else fly_trial
        options, unproven = PlanOptions(laps=laps), settings.uncertified
        return track, find_or_make_plan(settings.folder, track, seeing, options, progress_line, unproven, fly)
    plan = read_plan(what)
    if laps not in (1, plan.laps):
        raise UserError(f"--laps {laps}: {what} has {plan.laps}; name its track to plan again")
    track = load_track(plan.track_file)
    plan.require(track, vehicle)
    if not settings.uncertified:
        require_certified(what, plan)
    return track, plan


def _settings(arguments: argparse.Namespace) -> RunSettings:
    """Return the consistent settings of a command line. Raises UserError where they are not."""
    settings = settings_of(arguments, RunSettings)
    link = settings.link
    if not link.live and speaks_msp(link.profile):  # no other built-in simulator speaks MSP
        settings = replace(settings, link=replace(link, lockstep=True))
    settings.require_consistent()
    if arguments.json is not None:
        # Certificate of a plan, card of a network, plot of a log.
        beside = {".csv": ".json", TAUGHT: ".yaml", ".mcap": ".png"}
        named = [Path(name) for name in (arguments.what, settings.perception.detector, settings.record.log)]
        require_output(
            arguments.json, *(file.with_suffix(beside[file.suffix]) for file in named if file.suffix in beside)
        )
    return settings


def _vehicle_and_wire(settings: RunSettings) -> tuple[Vehicle, _Wire]:
    """Load vehicle and wire. Raises UserError for settings that contradict them, and for what a flight would lack."""
    vehicle, link = load_vehicle(settings.vehicle), settings.link
    wire = load_wire(link.profile)
    msp = wire if isinstance(wire, BetaflightProfile) else None
    require_wire(settings, msp)
    preflight = None
    if link.preflight is not None and msp is not None:
        preflight = link.preflight, load_preflight(link.preflight)
        require_meant(*preflight, msp, vehicle)
    profile = wire.wire if isinstance(wire, BetaflightProfile) else wire
    vision = parse_vision(link.vision) if link.vision else None
    if vision is not None and vision.warning:
        remark(f"warning: {vision.warning}")
    if vision is not None and profile.offboard is not None:
        profile = profile.of_copter(vision.sensor.copter)
    if not link.live:
        load_style(settings.world.style)
    if link.sitl is not None:
        from gate_racer.sim.betaflight.sitl import require_program

        require_program(link.sitl)
    received = replace(link, video="") if link.camera else link
    return vehicle, _Wire(profile, received.opened(profile.mavlink_port, profile.video_port), msp, vision, preflight)


def require_wire(settings: RunSettings, msp: BetaflightProfile | None) -> None:
    """Check the settings against the kind of the profile, MAVLink or MSP. Raises UserError where they do not fit."""
    settings.link.require_kind(msp)
    told = {"perception.pose": settings.perception.pose, "world.vio": settings.world.vio != ""}
    told[f"perception.estimator={VIO}"] = settings.perception.estimator == VIO
    for name, asked in told.items():
        if msp is not None and asked:
            raise UserError(f"{name}: not available with the MSP profile {settings.link.profile}")
    if settings.perception.estimator == VIO and not (settings.link.live or settings.world.vio):
        raise UserError(f"perception.estimator={VIO}: needs a VIO: give its errors, as in world.vio=openvins")
    if msp is not None and settings.controller.command == "attitude":
        raise UserError(f"controller.command=attitude: the MSP profile {settings.link.profile} accepts body rates only")


def require_seen(settings: RunSettings, track: Track) -> None:
    """Check that a camera sees a gate of the course, or that the state is told. Raises UserError."""
    if not (settings.perception.pose or any(gate.visible for gate in track.gates)):
        raise UserError(f"{track.name}: has no gate that a camera sees: add --set perception.pose=true")


def _plausible(track: Track, vehicle: Vehicle, settings: RunSettings) -> Track:
    """Return the track, with remarks on likely mistakes. Raises UserError where no gate can be seen nor a state is told."""
    for line in remarks(track, vehicle):
        remark(line)
    require_seen(settings, track)
    return track


def _placed(settings: RunSettings, track: Track) -> tuple[Track, StartGrid | None]:
    """Return the track with the start at its place on the grid, and the grid; None if the rivals stay unknown."""
    if not settings.race.grid:
        return track, None
    number, of, spacing_m = parse_place(settings.race.grid)
    others = {k: place(track, k, of, spacing_m).start.position_m for k in range(1, of + 1) if k != number}
    grid = StartGrid(number, others) if settings.race.rivals == "told" else None
    return place(track, number, of, spacing_m), grid


def _session(
    arguments: argparse.Namespace, settings: RunSettings, wire: _Wire, track: Track, vehicle: Vehicle, **flown: Any
) -> "Session":
    if wire.vision is not None:
        vehicle = replace(vehicle, camera=wire.vision.camera)
    world = None if settings.link.live else resolve(settings.world.file, track, vehicle)
    from gate_racer.race.session import Session

    session = Session(settings, track, vehicle, **vars(wire), world=world, json=arguments.json, **flown)
    if settings.link.live:
        remark(_awaited(session))
    return session


def _replanned_by(what: str, session: "Session", plan: Plan) -> PlanOptions:
    """Return the options to replan with in flight: the plan's own. Raises UserError for a plan of a model other than `rates`."""
    if plan.model != "rates":
        raise UserError(f"plan.replan: needs a plan of the rates model, not of the {plan.model} model")
    folder, usual = session.settings.plan.folder, PlanOptions(laps=plan.laps)
    given = Path(what).suffix == ".csv"
    return options_of(Path(what) if given else plan_path(folder, session.track, session.vehicle, usual), plan.laps)


def _require_fit(controller: str, track: Track, vehicle: Vehicle, command_hz: float, laps: int) -> None:
    """Warn of a course other than the one a policy was trained for. Raises UserError where the controller cannot fly."""
    track.course(laps)
    if is_part(controller):
        return
    policy = load_policy(controller)
    policy.require(vehicle, command_hz)
    if policy.warning(track):
        remark(f"warning: {policy.warning(track)}")


def _awaited(session: "Session") -> str:
    link, peer, vision = session.link, session.settings.link.peer, session.vision
    camera = session.settings.link.camera
    images = f"images of {camera}" if camera else f"video on {link.video[0]}:{link.video[1]}"
    if session.msp is not None:
        shadow = session.settings.link.shadow
        what = "flown by a person (no sticks are sent)" if shadow else "handed over"
        return f"waiting for {session.msp.name} on {session.settings.link.msp} to be armed and {what}, {images}"
    attitude = " and ATTITUDE" if session.profile.attitude_hz else ""
    if vision is not None:
        images = f"sensor {vision.sensor.seq_id} of {vision.server[0]}:{vision.server[1]} on {vision.sensor.port}"
    whom = f" of {peer}" if peer else ""
    return f"waiting for HEARTBEAT, HIGHRES_IMU{attitude} on {link.mavlink[0]}:{link.mavlink[1]}, {images}{whom}"
