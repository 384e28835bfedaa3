"""`race-sim`: the simulator as a program, for one vehicle, several, or one behind a flight controller."""

import argparse
import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.process import never_swallowed
from gate_racer.common.settings import require_usual, settings_of
from gate_racer.link.mavlink import read_key
from gate_racer.link.msp.profile import BetaflightProfile, load_wire
from gate_racer.link.profile import PORTS_PER_COPTER, Profile
from gate_racer.link.rflysim.client import parse_server
from gate_racer.link.rflysim.desk import DOCUMENTED, MASKS, GimbalMasks, imu_port
from gate_racer.link.sockets import Address, bind_udp, parse_address, reachable, returns
from gate_racer.race.race_sim import VADR, ServedLinkSettings, SimulatorSettings
from gate_racer.sim.betaflight.server import BetaflightServer, open_line
from gate_racer.sim.betaflight.sitl import SitlController, firmware
from gate_racer.sim.betaflight.station import BetaflightStation, SafetyPilot
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup, standings
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.registry import natural, plant_setting
from gate_racer.sim.physics.residual import ResidualAcceleration, Residuals
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.sim.report import SimulatorRecord, report, write_report
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.view.feed import FeedProcess, Outlet, VideoOutlet
from gate_racer.sim.view.renderer import shoot
from gate_racer.sim.view.style import load_style
from gate_racer.sim.wire.rflysim import CopterSimImu, RflySimOutlet, open_imu
from gate_racer.sim.wire.server import Endpoint, LockstepServer, RealTimeServer
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track, load_track, remarks
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

IMU_OPTION, MASKS_OPTION, COPTER_OPTION = "imu", "masks", "copter"
DESK_OPTIONS = IMU_OPTION, MASKS_OPTION, COPTER_OPTION  # of the RflySim protocol


# Keys of the link that have a meaning by MAVLink only, and by MSP only.
ELSEWHERE = "bind", "client", "vision_protocol", "signing_key", "pose", "lockstep", "realtime"
BY_MSP = "take_back_s", "sitl", "msp"


def race_mavlink(
    settings: SimulatorSettings,
    profile: Profile,
    world: World,
    residual: UnmodelledAcceleration | None,
    json: Path | None,
) -> int:
    """Run the race, of one vehicle or several, until stopped, and return the exit code. Raises UserError."""
    n, lockstep, signing_key = settings.rivals.pilots, settings.link.lockstep, settings.link.signing_key
    profile = _of_copter(settings.link, profile)
    own, client, video = addresses(settings.link, profile)
    signing = read_key(signing_key, time.time()) if signing_key is not None else None
    with never_swallowed():  # Numba drops what strikes while it loads
        race = MultiVehicleRace(world, profile, settings.world.seed, _setup(settings, residual, world.track))
    with contextlib.ExitStack() as stack:
        step = 1 if abs(own[1] - client[1]) >= n else PORTS_PER_COPTER  # PX4's two ports are neighbours
        sockets = [stack.enter_context(bind_udp(*_next(own, k * step))) for k in range(n)]
        record = SimulatorRecord(settings.record) if settings.record else None
        if record is not None:
            stack.callback(record.close)
        endpoints, outlets, links = [], [], []
        for k, (simulator, here, bound) in enumerate(zip(race.simulators, race.worlds, sockets, strict=True)):
            to, images = _next(client, k * step), _next(video, k)
            open_outlet, imu, described = _cameras(settings, profile, here, images)
            if imu is not None:
                stack.callback(imu.close)
            endpoints.append(Endpoint(Station(simulator, record, to, signing, lockstep), bound, to, imu))
            outlets.append(open_outlet)
            host, port = bound.getsockname()
            links.append(f"MAVLink {host}:{port} -> {to[0]}:{to[1]}, {described}")
            if n > 1:  # what flies it
                own_keys = f"link.listen={to[0]}:{to[1]} link.video={images[0]}:{images[1]} race.grid={k + 1}/{n}"
                links[-1] += f" (run-mpc --live --set {own_keys})"
        server: LockstepServer | RealTimeServer
        feeds: list[FeedProcess] = []
        if lockstep:
            server = LockstepServer(
                race, endpoints, [stack.enter_context(contextlib.closing(outlet())) for outlet in outlets]
            )
        else:
            feeds = [stack.enter_context(contextlib.closing(FeedProcess(outlet))) for outlet in outlets]
            server = RealTimeServer(race, endpoints, feeds, settings.link.realtime)
        _introduce(settings, race, links)
        alone = partial(Narrator(json), race.simulators[0])
        tell = alone if n == 1 else MultiVehicleNarrator(race, json)
        _serve(server, feeds, settings.once, tell, [simulator.referee for simulator in race.simulators])
        for endpoint in endpoints:
            for host, count in endpoint.foreign_datagrams.items():
                remark(f"{count} datagrams of {host} were not read: the client is {endpoint.client[0]} (link.client)")
    return 0


def _setup(settings: SimulatorSettings, residual: UnmodelledAcceleration | None, track: Track) -> MultiVehicleSetup:
    setting, pose, vio = plant_setting(settings.plant), settings.link.pose, settings.world.vio_errors(track)
    return MultiVehicleSetup(settings.laps, pose, setting, residual, settings.strict, vio, **vars(settings.rivals))


def _introduce(settings: SimulatorSettings, race: MultiVehicleRace, links: list[str]) -> None:
    n, world = len(links), race.worlds[0]
    about = f"{race.profile.name}, world {world.name}, seed {settings.world.seed}"
    if n == 1:
        print(f"race-sim: {world.track.name}, {world.vehicle.name}, {about}; {links[0]}", flush=True)
    else:
        apart = f"{settings.rivals.spacing_m:g} m apart"
        print(f"race-sim: {world.track.name}, {n} x {world.vehicle.name}, {about}, {apart}")
        print(*(f"pilot {k}: {link}" for k, link in enumerate(links, 1)), sep="\n", flush=True)


def _serve(
    server: LockstepServer | RealTimeServer | BetaflightServer,
    feeds: Sequence[FeedProcess],
    once: bool,
    tell: Callable[[float], None],
    referees: Sequence[Referee],
) -> None:
    """Run a server until it ends, or SIGINT or SIGTERM stops it, by its flag: CasADi swallows a KeyboardInterrupt.

    Runs that this cuts short are reported as aborted.
    """

    def stop(*_: object) -> None:
        server.stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(once, tell)
    running = [referee for referee in referees if referee.race.status is RunStatus.RUNNING]
    for referee in running:
        referee.abort("race-sim was stopped")
    if running:
        tell(0.0)
    if not isinstance(server, LockstepServer):
        remark(f"worst lag {server.worst_lag_s * 1e3:.1f} ms")
    for k, feed in enumerate(feeds, 1):
        if feed.trouble:
            remark(feed.trouble if len(feeds) == 1 else f"pilot {k}: {feed.trouble}")
    if server.stopped:
        remark("stopped")


LAST_PORT = 0xFFFF


def _next(address: Address, k: int) -> Address:
    """Return the address k ports above; port 0, chosen by the system, is kept. Raises UserError beyond the last port."""
    host, port = address
    if port + k > LAST_PORT:
        raise UserError(f"address {host}:{port}: no port is left above it for every pilot: choose a lower one")
    return host, port + k if port else 0


def addresses(link: ServedLinkSettings, profile: Profile) -> tuple[Address, Address, Address]:
    """Return the addresses of simulator, client and video. Raises UserError for a malformed or unreachable one."""
    own = parse_address(link.bind or "127.0.0.1", profile.simulator_port)
    client = reachable(parse_address(link.client or "127.0.0.1", profile.mavlink_port), own[0])
    video = reachable(parse_address(link.video or client[0], profile.video_port), "0.0.0.0")
    for name, to in ("client", client), ("video", video):
        if returns(to, own):
            raise UserError(f"link.bind and link.{name} are one address, {to[0]}:{to[1]}: choose another")
    return own, client, video


def _cameras(
    settings: SimulatorSettings, profile: Profile, world: World, video: Address
) -> tuple[Callable[[], Outlet], CopterSimImu | None, str]:
    """Return the function that opens the camera's outlet, CopterSim's IMU if any, and their description."""
    seen, seed = world.seen(load_style(settings.world.style)), settings.world.seed
    if settings.link.vision_protocol == VADR:
        outlet = partial(VideoOutlet, world.track, world.vehicle, profile, seen, seed, video)
        return outlet, None, f"video -> {video[0]}:{video[1]}"
    desk, masks, imu = _desk(settings.link, profile)
    whose = profile.system, profile.video_epoch_s
    asked = partial(RflySimOutlet, world.track, seen, seed, profile.video_hz, desk, *whose, masks=masks)
    return asked, imu, f"sensors to be asked for on {desk[0]}:{desk[1]}"


def _of_copter(link: ServedLinkSettings, profile: Profile) -> Profile:
    """Return the profile of the copter that the URL of the vision protocol names, if it does. Raises UserError."""
    if link.vision_protocol == VADR:
        return profile
    _, options = parse_server(link.vision_protocol, *DESK_OPTIONS)
    number = options.get(COPTER_OPTION, "1")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise UserError(f"{link.vision_protocol}: {COPTER_OPTION}: must be the number of a copter, found {number!r}")
    return profile.of_copter(int(number)) if COPTER_OPTION in options else profile


def _desk(link: ServedLinkSettings, profile: Profile) -> tuple[Address, GimbalMasks, CopterSimImu | None]:
    """Return the requests' address, the numbering of gimbals' commands, and the IMU. Raises UserError."""
    if link.video:
        raise UserError("link.video: in the RflySim protocol the client's requests say where frames go")
    desk, options = parse_server(link.vision_protocol, *DESK_OPTIONS)
    if (masks := options.get(MASKS_OPTION, DOCUMENTED)) not in MASKS:
        raise UserError(f"{link.vision_protocol}: {MASKS_OPTION}: must be one of {', '.join(MASKS)}")
    imu = f"{desk[0]}:{options.get(IMU_OPTION, imu_port(profile.system))}"
    return desk, MASKS[masks], open_imu(parse_address(imu, 0), profile, IMU_OPTION in options)


def violations(referee: Referee) -> list[str]:
    """Return a line for each rule of the interface that was violated in the run."""
    return [f"{one.count} x {one}, first at {one.t:.2f} s" for one in referee.violations.values()]


class MultiVehicleNarrator:
    """Terminal output of a race: passages, contacts and ends of runs as they happen, and the final standings."""

    def __init__(self, race: MultiVehicleRace, file: Path | None):
        """`file`: where standings and contacts are written, with pilots counted from 1."""
        self._race, self._file = race, file
        self._forget()

    def _forget(self) -> None:
        n = len(self._race.simulators)
        self._passed, self._over, self._touched, self._reported = [0] * n, [False] * n, 0, False

    def __call__(self, lag: float) -> None:
        race = self._race
        if self._reported and not race.over:
            self._forget()
        for line in self.news():
            print(line, flush=True)
        if race.over and not self._reported:
            self._reported, order = True, standings(race)
            for standing in order:
                print(standing, flush=True)
            touched = [{**asdict(one), "pilots": [k + 1 for k in one.pilots]} for one in race.encounters]
            write_json(self._file, {"standings": order, "contacts": touched})

    def news(self) -> list[str]:
        """Return the lines for events since the last call."""
        said = []
        for encounter in self._race.encounters[self._touched :]:
            i, k = (pilot + 1 for pilot in encounter.pilots)
            said.append(f"{encounter.t:8.2f} s  pilots {i} and {k} touch at {encounter.approach_m_s:.1f} m/s")
        self._touched = len(self._race.encounters)
        for k, simulator in enumerate(self._race.simulators):
            run, total = simulator.referee.race, len(simulator.referee.course)
            for gate, time_s in enumerate(run.gate_times_s[self._passed[k] :], self._passed[k] + 1):
                t = time_s + (run.go_t or 0.0)
                said.append(f"{t:8.2f} s  pilot {k + 1} gate {gate}/{total} at {time_s:.3f} s")
            self._passed[k] = len(run.gate_times_s)
            if run.over and not self._over[k]:
                cause = f": {run.cause}" if run.cause else ""
                said.append(f"{simulator.t:8.2f} s  pilot {k + 1} {run.status.value}{cause}")
                said += [f"  pilot {k + 1}: {line}" for line in violations(simulator.referee)]
            self._over[k] = run.over
        return said


def race_betaflight(settings: SimulatorSettings, profile: BetaflightProfile, world: World, json: Path | None) -> int:
    """Run until stopped, and return the exit code. Raises UserError for settings that do not apply."""
    link, seed, unfit = settings.link, settings.world.seed, f"has no meaning with the MSP profile {profile.name}"
    require_usual(link, ELSEWHERE, unfit, "link.")
    require_usual(settings, ("strict", "record", "residual"), unfit)
    require_usual(settings.world, ("vio",), unfit, "world.")
    person = SafetyPilot(profile, patience_s=math.inf if link.take_back_s is None else link.take_back_s)
    wire, seen = profile.wire, world.seen(load_style(settings.world.style))
    video = reachable(parse_address(link.video or "127.0.0.1", wire.video_port), "0.0.0.0")
    outlet = partial(VideoOutlet, world.track, world.vehicle, wire, seen, seed, video)
    setup = RunSetup(settings.laps, setting=plant_setting(settings.plant))
    with contextlib.ExitStack() as stack:
        sitl = stack.enter_context(firmware(link.sitl, profile, world.vehicle)) if link.sitl else None
        station = BetaflightStation(world, profile, seed, setup, person, sitl)
        line = stack.enter_context(contextlib.closing(open_line(link.msp)))
        camera = stack.enter_context(contextlib.closing(FeedProcess(outlet)))
        server = BetaflightServer(station, line, camera.expose)
        print(
            f"race-sim: {world.track.name}, {world.vehicle.name}, {profile.name}, world {world.name}, seed {seed};"
            f" MSP on {line.name} at {profile.baud} baud, video -> {video[0]}:{video[1]}",
            flush=True,
        )
        tell = partial(Narrator(json), station.simulator)
        _serve(server, [camera], settings.once, tell, [station.simulator.referee])
        if sitl is not None and isinstance(station.controller, SitlController):
            if why := station.controller.arming.disarmed_by:
                remark(f"the firmware disarmed: {', '.join(str(one.name) for one in type(why) if one in why)}")
            if not sitl.alive:
                remark("the firmware has died")
    return 0


STATUS_HZ = 5  # Hz, rate of the status line, simulator clock (chosen)


class Narrator:
    """Terminal output: a status line during a run, and one line per finished run."""

    def __init__(self, file: Path | None):
        self._file, self._ticks, self._reported = file, 0, False
        self._objected: set[str] = set()  # rules reported in this run

    def __call__(self, simulator: Simulator, lag: float) -> None:
        self._ticks += 1
        race = simulator.referee.race
        self._object(simulator.referee)
        if not race.over:
            self._reported = False
        elif not self._reported:
            self._reported = True
            self._finish(simulator)
        if sys.stderr.isatty() and self._ticks % round(simulator.profile.physics_hz / STATUS_HZ) == 0:
            passed, total = len(race.gate_times_s), len(simulator.referee.course)
            speed = float(sum(v * v for v in simulator.truth.x[7:10])) ** 0.5
            line = f"{simulator.t:8.1f} s  {race.status.value:9s} gate {passed}/{total}  {speed:5.1f} m/s"
            line += f"  lag {lag * 1e3:4.1f} ms"
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    def _object(self, referee: Referee) -> None:
        self._objected &= referee.violations.keys()
        for rule in referee.violations.keys() - self._objected:
            violation = referee.violations[rule]
            self._objected.add(rule)
            source = "" if violation.lawful else "VADR-TS-002 "
            remark(f"{source}at {violation.t:.2f} s: {violation}")

    def _finish(self, simulator: Simulator) -> None:
        race = simulator.referee.race
        end = "\n" if sys.stderr.isatty() else ""
        elapsed_s = simulator.referee.elapsed_s
        last = f"{elapsed_s:.3f} s" if elapsed_s is not None else "-"
        margin = f"{min(race.gate_margins_m):.3f} m" if race.gate_margins_m else "-"
        passed = f"{len(race.gate_times_s)}/{len(simulator.referee.course)} gates"
        cause = f" ({race.cause})" if race.cause else ""
        print(f"{end}{race.status.value}{cause}: {passed}, last at {last}, least margin {margin}", flush=True)
        if simulator.plant.trouble:
            remark(f"plant: {simulator.plant.trouble}")
        for line in violations(simulator.referee):
            print(f"  {line}", flush=True)
        if self._file is not None:
            write_report(self._file, report(simulator))


def residual_of(settings: SimulatorSettings, vehicle: Vehicle) -> ResidualAcceleration | None:
    """Return the residual wanted. Raises UserError for a file of another vehicle or plant, or without acceleration."""
    if settings.residual is None:
        return None
    residuals = Residuals.load(settings.residual)
    setting = plant_setting(settings.plant) or natural(vehicle)
    residuals.require(vehicle, setting, str(settings.residual))
    if residuals.acceleration is None:
        raise UserError(f"residual {settings.residual}: contains odometry errors only; race-bench flies with these")
    return residuals.acceleration


def run(arguments: argparse.Namespace) -> int:
    settings, json = settings_of(arguments, SimulatorSettings), arguments.json
    settings.require_consistent()
    track, vehicle = load_track(arguments.track), load_vehicle(settings.vehicle)
    for line in remarks(track, vehicle):
        remark(line)
    profile, style = load_wire(settings.link.profile), load_style(settings.world.style)
    inputs = arguments.track, settings.vehicle, settings.link.profile, settings.world.style, settings.residual
    require_outputs((settings.record, json, settings.shot.file), *inputs, arguments.config)
    world = resolve(settings.world.file, track, vehicle)
    if settings.shot.file is not None:
        shoot(
            settings.shot.file, world.track, world.vehicle, world.seen(style), settings.world.seed, settings.shot.pose
        )
        return 0
    if isinstance(profile, BetaflightProfile):
        if settings.rivals.pilots > 1:
            raise UserError(f"--pilots {settings.rivals.pilots}: has no meaning with the MSP profile {profile.name}")
        return race_betaflight(settings, profile, world, json)
    unfit = f"profile {profile.name} is for MAVLink; --profile betaflight is for MSP"
    require_usual(settings.link, BY_MSP, unfit, "link.")
    return race_mavlink(settings, profile, world, residual_of(settings, vehicle), json)
