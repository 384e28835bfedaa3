"""Command line of heats, `race-sim --pilots N`."""

import argparse
import contextlib
import time
from functools import partial
from pathlib import Path

from gate_racer.link.peer import Address
from gate_racer.link.profile import Profile
from gate_racer.link.signing import read_key
from gate_racer.link.sockets import bind_udp
from gate_racer.sim.heat.heat import Heat, HeatSetup
from gate_racer.sim.heat.server import LockstepHeatServer, RealTimeHeatServer
from gate_racer.sim.heat.standings import Commentator, standings, write_standings
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.setting import SETTINGS
from gate_racer.sim.view.feed import FeedProcess, VideoOutlet
from gate_racer.sim.view.look import Look
from gate_racer.sim.wire.command import VADR, addresses
from gate_racer.sim.wire.line import ClientEndpoint
from gate_racer.sim.wire.server import stop_on_signals
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.grid import MOST, SPACING_M
from gate_racer.vehicle.command import remark
from gate_racer.vehicle.errors import UserError

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
        self._commentator, self._file, self._reported = Commentator(heat), file, False

    def __call__(self, heat: Heat, lag: float) -> None:
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


def race_heat(
    arguments: argparse.Namespace, profile: Profile, world: World, look: Look, residual: UnmodelledAcceleration | None
) -> int:
    """Run the heat until stopped, and return the exit code. Raises UserError for options that exclude each other."""
    if arguments.rotor_radius and world.vehicle.rotors is None:
        raise UserError(f"--rotor-radius: vehicle {world.vehicle.name}: has no `rotors` section, which states its mass")
    n, setting = arguments.pilots, SETTINGS.get(arguments.setting)
    shared = arguments.laps, arguments.pose, setting, residual, arguments.strict, arguments.tell_rivals
    heat = Heat(world, profile, arguments.seed, HeatSetup(n, arguments.spacing, arguments.rotor_radius, *shared))
    key = read_key(arguments.signing_key, time.time()) if arguments.signing_key else None
    own, client, video = addresses(arguments, profile)
    seen = world.seen(look)
    print(
        f"race-sim: {world.track.name}, {n} x {world.vehicle.name}, {profile.name}, world {world.name},"
        f" seed {arguments.seed}, {arguments.spacing:g} m apart",
        flush=True,
    )
    with contextlib.ExitStack() as stack:
        lines, outlets = [], []
        for k, simulator in enumerate(heat.simulators):
            bound = stack.enter_context(bind_udp(*_next(own, k)))
            lines.append(ClientEndpoint(Station(simulator, None, _next(client, k), key), bound, _next(client, k)))
            drawn = heat.worlds[k].track, world.vehicle, profile, seen, arguments.seed, _next(video, k)
            outlets.append(partial(VideoOutlet, *drawn))
            print(_introduced(k, n, bound.getsockname(), _next(client, k), _next(video, k)), flush=True)
        server: LockstepHeatServer | RealTimeHeatServer
        if arguments.lockstep:
            cameras = [stack.enter_context(contextlib.closing(outlet())) for outlet in outlets]
            server = LockstepHeatServer(heat, lines, cameras)
        else:
            feeds = [stack.enter_context(contextlib.closing(FeedProcess(outlet))) for outlet in outlets]
            server = RealTimeHeatServer(heat, lines, feeds, arguments.realtime)
        stop_on_signals(server)
        server.run(arguments.once, HeatNarrator(heat, arguments.json))
        if isinstance(server, RealTimeHeatServer):
            remark(f"worst lag {server.worst_lag_s * 1e3:.1f} ms")
            for k, feed in enumerate(feeds):
                if feed.trouble:
                    remark(f"pilot {k + 1}: {feed.trouble}")
        if server.stopped:
            remark("stopped")
    return 0


def _next(address: Address, k: int) -> Address:
    """Return the address of pilot k (from 0); port 0, chosen by the system, is kept."""
    host, port = address
    return host, port + PORT_STEP * k if port else 0


def _introduced(k: int, n: int, own: Address, client: Address, video: Address) -> str:
    """Return a line with the addresses of pilot k (from 0) and the matching `run-mpc` command."""
    return (
        f"pilot {k + 1}: MAVLink {own[0]}:{own[1]} -> {client[0]}:{client[1]}, video -> {video[0]}:{video[1]}"
        f" (run-mpc --live --listen {client[0]}:{client[1]} --video {video[0]}:{video[1]} --grid {k + 1}/{n})"
    )
