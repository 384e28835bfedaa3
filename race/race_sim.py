"""`race-sim`: the simulator as a program, for one vehicle, several, or one behind a flight controller.

Command line of a race over MAVLink: one vehicle, or several with `--pilots N`.

Command line of the simulated Betaflight, `race-sim --profile betaflight`.
"""

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gate_racer.common.command import add_common, perform, remark
from gate_racer.common.errors import UserError
from gate_racer.common.files import require_output
from gate_racer.common.process import never_swallowed
from gate_racer.link.mavlink import read_key
from gate_racer.link.msp.profile import BetaflightProfile, load_wire
from gate_racer.link.profile import Profile
from gate_racer.link.rflysim.client import parse_server
from gate_racer.link.rflysim.copter import imu_port
from gate_racer.link.sockets import Address, bind_udp, parse_address, reachable
from gate_racer.sim.betaflight.server import TERMINAL, BetaflightServer, open_line
from gate_racer.sim.betaflight.sitl import SitlController, firmware
from gate_racer.sim.betaflight.station import BetaflightStation, SafetyPilot
from gate_racer.sim.heat import Commentator, Heat, HeatSetup, standings, write_standings
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.residual import ResidualAcceleration, Residuals
from gate_racer.sim.physics.swift_plant import SETTINGS, natural
from gate_racer.sim.referee import Referee
from gate_racer.sim.report import SimulatorRecord, report, write_report
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.view.feed import FeedProcess, Outlet, VideoOutlet
from gate_racer.sim.view.look import Look, load_look
from gate_racer.sim.view.renderer import shoot
from gate_racer.sim.wire.rflysim import CopterSimImu, RflySimOutlet, open_imu
from gate_racer.sim.wire.server import LockstepServer, RealTimeServer, Seat, stop_on_signals
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import NOMINAL, World
from gate_racer.tracks.plausible import remarks
from gate_racer.tracks.track import MOST, SPACING_M, load_track
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

VADR = "vadr"  # default of --vision-protocol
IMU_OPTION = "imu"  # option of the RflySim protocol
OpenImu = Callable[[], CopterSimImu | None]


def race_mavlink(
    arguments: argparse.Namespace, profile: Profile, world: World, look: Look, residual: UnmodelledAcceleration | None
) -> int:
    """Run the race, of one vehicle or several, until stopped, and return the exit code.

    Raises:
        UserError: options that exclude each other, an address or key that cannot be used, or a --vision-protocol.
    """
    if arguments.rotor_radius and world.vehicle.rotors is None:
        raise UserError(f"--rotor-radius: vehicle {world.vehicle.name}: has no `rotors` section, which states its mass")
    n = arguments.pilots
    own, client, video = addresses(arguments, profile)
    key = read_key(arguments.signing_key, time.time()) if arguments.signing_key else None
    with never_swallowed():  # Numba drops what strikes while it loads
        heat = Heat(world, profile, arguments.seed, _setup(arguments, residual))
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(bind_udp(*_next(own, k))) for k in range(n)]
        record = SimulatorRecord(arguments.record) if arguments.record else None
        if record is not None:
            stack.callback(record.close)
        seats, outlets, links = [], [], []
        for k, (simulator, here, bound) in enumerate(zip(heat.simulators, heat.worlds, sockets, strict=True)):
            to, images = _next(client, k), _next(video, k)
            open_outlet, open_service, described = _cameras(arguments, profile, here, look, images)
            if (imu := open_service()) is not None:
                stack.callback(imu.close)
            seats.append(Seat(Station(simulator, record, to, key), bound, to, imu))
            outlets.append(open_outlet)
            host, port = bound.getsockname()
            links.append(f"MAVLink {host}:{port} -> {to[0]}:{to[1]}, {described}" + _matching(k, n, to, images))
        server: LockstepServer | RealTimeServer
        feeds: list[FeedProcess] = []
        if arguments.lockstep:
            server = LockstepServer(
                heat, seats, [stack.enter_context(contextlib.closing(outlet())) for outlet in outlets]
            )
        else:
            feeds = [stack.enter_context(contextlib.closing(FeedProcess(outlet))) for outlet in outlets]
            server = RealTimeServer(heat, seats, feeds, arguments.realtime)
        _introduce(arguments, heat, links)
        stop_on_signals(server)
        alone = partial(Narrator(arguments.json), heat.simulators[0])
        server.run(arguments.once, alone if n == 1 else HeatNarrator(heat, arguments.json))
        if isinstance(server, RealTimeServer):
            remark(f"worst lag {server.worst_lag_s * 1e3:.1f} ms")
        for k, feed in enumerate(feeds, 1):
            if feed.trouble:
                remark(feed.trouble if n == 1 else f"pilot {k}: {feed.trouble}")
        for seat in seats:
            for host, count in seat.strangers.items():
                remark(f"{count} datagrams of {host} were not read: the client is {seat.client[0]} (--client)")
        if server.stopped:
            remark("stopped")
    return 0


def _setup(arguments: argparse.Namespace, residual: UnmodelledAcceleration | None) -> HeatSetup:
    return HeatSetup(
        pilots=arguments.pilots,
        spacing_m=arguments.spacing,
        rotor_radius_m=arguments.rotor_radius,
        laps=arguments.laps,
        pose=arguments.pose,
        setting=SETTINGS.get(arguments.setting),
        residual=residual,
        strict=arguments.strict,
        told=arguments.tell_rivals,
    )


def _introduce(arguments: argparse.Namespace, heat: Heat, links: list[str]) -> None:
    """Print the race and the link of each vehicle."""
    n, world = len(links), heat.worlds[0]
    several = "" if n == 1 else f"{n} x "
    about = f"race-sim: {world.track.name}, {several}{world.vehicle.name}, {heat.profile.name}, world {world.name}"
    about += f", seed {arguments.seed}"
    if n == 1:
        print(f"{about}; {links[0]}", flush=True)
        return
    print(f"{about}, {arguments.spacing:g} m apart", flush=True)
    for k, link in enumerate(links, 1):
        print(f"pilot {k}: {link}", flush=True)


def _next(address: Address, k: int) -> Address:
    """Return the address of pilot k (from 0); port 0, chosen by the system, is kept."""
    host, port = address
    return host, port + PORT_STEP * k if port else 0


def _matching(k: int, n: int, client: Address, video: Address) -> str:
    """Return the `run-mpc` command of pilot k (from 0) in a race of several."""
    if n == 1:
        return ""
    return f" (run-mpc --live --listen {client[0]}:{client[1]} --video {video[0]}:{video[1]} --grid {k + 1}/{n})"


def addresses(arguments: argparse.Namespace, profile: Profile) -> tuple[Address, Address, Address]:
    """Return the addresses of simulator, client and video. Raises UserError for a malformed or unreachable one."""
    own = parse_address(arguments.bind or "127.0.0.1", profile.simulator_port)
    client = parse_address(arguments.client or "127.0.0.1", profile.mavlink_port)
    video = parse_address(arguments.video or client[0], profile.video_port)
    return own, reachable(client, own[0]), reachable(video, "0.0.0.0")


def _cameras(
    arguments: argparse.Namespace, profile: Profile, world: World, look: Look, video: Address
) -> tuple[Callable[[], Outlet], OpenImu, str]:
    """Return the functions that open the camera's outlet and CopterSim's IMU, and their description."""
    seen = world.seen(look)
    if arguments.vision_protocol == VADR:
        outlet = partial(VideoOutlet, world.track, world.vehicle, profile, seen, arguments.seed, video)
        return outlet, lambda: None, f"video -> {video[0]}:{video[1]}"
    desk, open_service = _desk(arguments, profile)
    whose = profile.system, profile.video_epoch_s
    asked = partial(RflySimOutlet, world.track, seen, arguments.seed, profile.video_hz, desk, *whose)
    return asked, open_service, f"sensors to be asked for on {desk[0]}:{desk[1]}"


def _desk(arguments: argparse.Namespace, profile: Profile) -> tuple[Address, OpenImu]:
    """Return the address of the sensor requests, and the function that opens CopterSim's IMU.

    Raises:
        UserError: unknown protocol or option, or --video, since each sensor's request has its own address.
    """
    if arguments.video:
        raise UserError("--video: in the RflySim protocol the client's requests say where frames go")
    desk, options = parse_server(arguments.vision_protocol)
    if options.keys() - {IMU_OPTION}:
        raise UserError(
            f"--vision-protocol {arguments.vision_protocol}: takes no option but {IMU_OPTION}, a port: the client brings"
            " its Config.json"
        )
    chosen = options.get(IMU_OPTION)
    port = imu_port(profile.system) if chosen is None else parse_address(f"{desk[0]}:{chosen}", 0)[1]
    return desk, partial(open_imu, (desk[0], port), profile, chosen is not None)


ALONE = {"record": None, "vision_protocol": VADR, "msp": "pty"}  # defaults of single-vehicle options
PORT_STEP = 1  # offset between the ports of consecutive pilots, as between PX4 instances


def add_heat_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the options of a heat."""
    arguments.add_argument(
        "--pilots",
        type=int,
        default=1,
        metavar="N",
        help="number of vehicles in the race; each has its own ports, counted up from the first vehicle's",
    )
    arguments.add_argument(
        "--spacing",
        type=float,
        default=SPACING_M,
        metavar="M",
        help=f"with --pilots: distance between neighbours at the start, in m (default: {SPACING_M:g})",
    )
    arguments.add_argument(
        "--rotor-radius",
        type=float,
        default=0.0,
        metavar="M",
        help="with --pilots: radius of each rotor in m, for its downwash on the others (default: 0, no downwash)",
    )

    arguments.add_argument(
        "--tell-rivals",
        action="store_true",
        help="with --pilots: send each pilot the states of the others (docs/racing.md)",
    )


def require_heat(arguments: argparse.Namespace) -> None:
    """Check the options of a heat. Raises UserError for values out of range and for options that do not apply."""
    if not 1 <= arguments.pilots <= MOST:
        raise UserError(f"--pilots {arguments.pilots}: must lie between 1 and {MOST}")
    for name, alone in {"spacing": SPACING_M, "rotor_radius": 0.0, "tell_rivals": False}.items():
        if arguments.pilots == 1 and getattr(arguments, name) != alone:
            raise UserError(f"--{name.replace('_', '-')}: needs --pilots 2 or more")
    if arguments.pilots > 1:
        for name, usual in ALONE.items():
            if getattr(arguments, name) != usual:
                raise UserError(f"--{name.replace('_', '-')}: cannot be used with --pilots {arguments.pilots}")
        if not 0 <= arguments.rotor_radius < 1:
            raise UserError(f"--rotor-radius {arguments.rotor_radius:g}: must lie between 0 and 1")


class HeatNarrator:
    """Terminal output of a heat: events as they happen, and the final standings."""

    def __init__(self, heat: Heat, file: Path | None):
        self._heat, self._file = heat, file
        self._commentator, self._reported = Commentator(heat), False

    def __call__(self, lag: float) -> None:
        heat = self._heat
        if self._reported and not heat.over:
            self._reported = False
            self._commentator.forget()
        for line in self._commentator.news():
            print(line, flush=True)
        if heat.over and not self._reported:
            self._reported = True
            for standing in standings(heat):
                print(standing, flush=True)
            if self._file is not None:
                write_standings(self._file, heat)


ELSEWHERE = {  # options of the other wire, and what they are when nothing was said
    "realtime": 1.0, "bind": "", "client": "", "vision_protocol": VADR, "signing_key": None, "pose": False,
    "lockstep": False, "strict": False, "record": None, "residual": None,
}  # fmt: skip


def race_betaflight(arguments: argparse.Namespace, profile: BetaflightProfile, world: World, look: Look) -> int:
    """Run until stopped, and return the exit code. Raises UserError for options that do not apply."""
    for name, usual in ELSEWHERE.items():
        if getattr(arguments, name) != usual:
            raise UserError(f"--{name.replace('_', '-')}: has no meaning with the MSP profile {profile.name}")
    setting = SETTINGS.get(arguments.setting)
    if not arguments.take_back > 0:
        raise UserError(f"--take-back {arguments.take_back:g}: must be positive")
    person = SafetyPilot(profile, patience_s=arguments.take_back)
    wire = profile.wire
    video = reachable(parse_address(arguments.video or "127.0.0.1", wire.video_port), "0.0.0.0")
    outlet = partial(VideoOutlet, world.track, world.vehicle, wire, world.seen(look), arguments.seed, video)
    with contextlib.ExitStack() as stack:
        sitl = stack.enter_context(firmware(arguments.sitl, profile, world.vehicle)) if arguments.sitl else None
        station = BetaflightStation(
            world, profile, arguments.seed, RunSetup(arguments.laps, setting=setting), person, sitl
        )
        line = stack.enter_context(contextlib.closing(open_line(arguments.msp)))
        camera = stack.enter_context(contextlib.closing(FeedProcess(outlet)))
        server = BetaflightServer(station, line, camera.expose)
        print(
            f"race-sim: {world.track.name}, {world.vehicle.name}, {profile.name}, world {world.name}, seed {arguments.seed};"
            f" MSP on {line.name} at {profile.baud} baud, video -> {video[0]}:{video[1]}",
            flush=True,
        )
        stop_on_signals(server)
        server.run(arguments.once, partial(Narrator(arguments.json), station.simulator))
        remark(f"worst lag {server.worst_lag_s * 1e3:.1f} ms")
        if camera.trouble:
            remark(camera.trouble)
        if server.stopped:
            remark("stopped")
        if sitl is not None and isinstance(station.controller, SitlController):
            if why := station.controller.arming.disarmed_by:
                remark(f"the firmware disarmed: {why.name}")
            remark(
                f"the firmware answered {sitl.answers} of {sitl.asked} packets{'' if sitl.alive else ', and has died'}"
            )
    return 0


STATUS_HZ = 5  # Hz, rate of the status line, simulator clock (chosen)
BY_MSP = {"take_back": math.inf, "sitl": None, "msp": TERMINAL}  # defaults of the options for MSP profiles


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser of `race-sim`."""
    arguments = argparse.ArgumentParser(
        prog="race-sim", description="Simulator with the interface VADR-TS-002 over UDP."
    )
    arguments.add_argument("track", nargs="?", default="vq1", help="name or YAML file (default: vq1)")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file (default: dcl)")
    arguments.add_argument("--profile", default="spec", help="wire profile (default: spec)")
    arguments.add_argument(
        "--look", default="race", help="appearance of the rendered world: name or YAML file (default: race)"
    )
    arguments.add_argument("--laps", type=int, default=1, help="number of laps of a closed track (default: 1)")
    arguments.add_argument(
        "--setting",
        type=int,
        choices=sorted(SETTINGS),
        help="plant: 1, 2 the controller's model, 3, 4 the grey-box model (default: the most detailed that the vehicle has)",
    )
    arguments.add_argument(
        "--world",
        default=NOMINAL,
        metavar="FILE[:SEED]",
        help="deviations of the simulated world from track and vehicle, see docs/worlds.md (default: as_believed)",
    )
    arguments.add_argument(
        "--residual",
        type=Path,
        metavar="FILE",
        help="add the residual acceleration learned by race-bench fit-residuals",
    )
    arguments.add_argument("--seed", type=int, default=0, help="random seed of sensor noise and scenery (default: 0)")
    arguments.add_argument("--realtime", type=float, default=1.0, help="ratio of simulated to wall time (default: 1.0)")
    _add_wire(arguments)
    add_heat_arguments(arguments)
    arguments.add_argument("--once", action="store_true", help="end after the first run")
    add_common(arguments, "verdict and true path of the last run", "--report")
    arguments.add_argument("--shot", type=Path, metavar="FILE.png", help="render one image and exit")
    arguments.add_argument(
        "--pose-at",
        default="",
        metavar="X,Y,Z,ROLL,PITCH,YAW",
        help="with --shot: pose of the body, m and degrees; write --pose-at=-3,0,... (default: the start)",
    )
    return arguments


def _add_wire(arguments: argparse.ArgumentParser) -> None:
    """Add the options of the link: addresses, protocols, and what they carry."""
    arguments.add_argument(
        "--bind",
        default="",
        metavar="HOST:PORT",
        help="address of the simulator's MAVLink port (default: 127.0.0.1:14560)",
    )
    arguments.add_argument(
        "--client", default="", metavar="HOST:PORT", help="destination of telemetry (default: 127.0.0.1:14550)"
    )
    arguments.add_argument(
        "--video", default="", metavar="HOST:PORT", help="destination of images (default: port 5600 of the client)"
    )
    arguments.add_argument(
        "--vision-protocol",
        default=VADR,
        metavar="NAME",
        help="vadr: images to --video; rflysim or rflysim://HOST:PORT[?imu=PORT]: sensors requested there (default: vadr)",
    )
    arguments.add_argument(
        "--msp",
        default=TERMINAL,
        metavar="WHERE",
        help="with --profile betaflight: serial line, pty (a pseudo-terminal) or tcp:HOST:PORT (default: pty)",
    )
    arguments.add_argument(
        "--sitl",
        type=Path,
        metavar="PROGRAM",
        help="with --profile betaflight: use Betaflight's SITL program as the flight controller, see docs/betaflight.md",
    )
    arguments.add_argument(
        "--take-back",
        type=float,
        default=math.inf,
        metavar="S",
        help="with --profile betaflight: the safety pilot takes back if no flight begins within S s (default: never)",
    )
    arguments.add_argument(
        "--signing-key",
        type=Path,
        metavar="FILE",
        help="sign MAVLink with the passphrase in a file, and require signed messages",
    )
    arguments.add_argument("--pose", action="store_true", help="send the true pose as LOCAL_POSITION_NED and ODOMETRY")
    arguments.add_argument(
        "--lockstep",
        action="store_true",
        help="advance only with the client: it answers each IMU sample by a set-point or SYSTEM_TIME",
    )
    arguments.add_argument(
        "--strict",
        action="store_true",
        help="disqualify for a violation of the interface (docs/vadr.md) instead of reporting it only",
    )
    arguments.add_argument("--record", type=Path, help="log of truth, commands and every message (MCAP)")


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
        """Print one line for each rule of the interface at its first violation in a run."""
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
        for violation in simulator.referee.violations.values():
            print(f"  {violation.count} x {violation}, first at {violation.t:.2f} s", flush=True)
        if self._file is not None:
            write_report(self._file, report(simulator))


def residual_of(arguments: argparse.Namespace, vehicle: Vehicle) -> ResidualAcceleration | None:
    """Return the residual of --residual. Raises UserError for a file of another vehicle or plant, or without acceleration."""
    if arguments.residual is None:
        return None
    residuals = Residuals.load(arguments.residual)
    setting = SETTINGS.get(arguments.setting) or natural(vehicle)
    residuals.require(vehicle, setting, str(arguments.residual))
    if residuals.acceleration is None:
        raise UserError(f"--residual {arguments.residual}: contains odometry errors only; race-bench flies with these")
    return residuals.acceleration


def run(arguments: argparse.Namespace) -> int:
    """Run the simulator as the command line requests, and return the exit code."""
    track, vehicle = load_track(arguments.track), load_vehicle(arguments.vehicle)
    for line in remarks(track, vehicle):
        remark(line)
    profile, look = load_wire(arguments.profile), load_look(arguments.look)
    for output in (arguments.record, arguments.json, arguments.shot):
        if output is not None:
            inputs = (arguments.track, arguments.vehicle, arguments.profile, arguments.look, arguments.residual)
            require_output(output, *inputs)
    if arguments.bind and arguments.bind == arguments.client:
        raise UserError(f"--bind {arguments.bind} and --client are one address: the simulator would talk to itself")
    if not 0.01 <= arguments.realtime <= 100:
        raise UserError(f"--realtime {arguments.realtime:g}: must lie between 0.01 and 100")
    if arguments.lockstep and arguments.realtime != 1.0:
        raise UserError("--lockstep and --realtime exclude each other: in lock-step the client sets the pace")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: must not be negative")
    require_heat(arguments)
    world = resolve(arguments.world, track, vehicle)
    if arguments.shot is not None:
        shoot(arguments.shot, world.track, world.vehicle, world.seen(look), arguments.seed, arguments.pose_at)
        return 0
    if isinstance(profile, BetaflightProfile):
        if arguments.pilots > 1:
            raise UserError(f"--pilots {arguments.pilots}: has no meaning with the MSP profile {profile.name}")
        return race_betaflight(arguments, profile, world, look)
    for name, usual in BY_MSP.items():
        if getattr(arguments, name) != usual:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option}: profile {profile.name} is for MAVLink; --profile betaflight is for MSP")
    return race_mavlink(arguments, profile, world, look, residual_of(arguments, vehicle))


def main() -> None:
    """Run `race-sim` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
