"""Command line of heats, `race-sim --pilots N`."""

import argparse
import contextlib
import time
from functools import partial
from pathlib import Path

from link.profile import Profile
from link.signing import read_key
from link.sockets import bind_udp
from sim.heat.heat import Heat, HeatSetup
from sim.heat.server import LockstepHeatServer, RealTimeHeatServer
from sim.heat.standings import Commentator, standings, write_standings
from sim.physics.plant import Residual
from sim.physics.setting import SETTINGS
from sim.view.feed import FeedProcess, VideoOutlet
from sim.view.look import Look
from sim.wire.command import VADR, addresses
from sim.wire.line import Line
from sim.wire.server import stop_on_signals
from sim.wire.station import Address, Station
from sim.worlds.world import World
from tracks.grid import MOST, SPACING_M
from vehicle.command import remark
from vehicle.errors import UserError

ALONE = {"record": None, "vision_protocol": VADR, "msp": "pty"}  # defaults of single-vehicle options
PORT_STEP = 1  # offset between the ports of consecutive pilots, as between PX4 instances


def add_heat_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the options of a heat."""
    arguments.add_argument(
        "--pilots",
        type=int,
        default=1,
        metavar="N",
        help="vehicles that race each other, each with ports of its own, the next ones up from the first's",
    )
    arguments.add_argument(
        "--spacing",
        type=float,
        default=SPACING_M,
        metavar="M",
        help=f"with --pilots: from one to the next on the start (default: {SPACING_M:g})",
    )
    arguments.add_argument(
        "--rotor-radius",
        type=float,
        default=0.0,
        metavar="M",
        help="with --pilots: of each rotor, whose downwash the others feel (default: 0, none)",
    )

    arguments.add_argument(
        "--tell-rivals",
        action="store_true",
        help="with --pilots: tell each pilot where the others are (docs/racing.md)",
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
                raise UserError(f"--{name.replace('_', '-')}: has no meaning with --pilots {arguments.pilots}")
        if not 0 <= arguments.rotor_radius < 1:
            raise UserError(f"--rotor-radius {arguments.rotor_radius:g}: must lie between 0 and 1")


class HeatNarrator:
    """Terminal output of a heat: events as they happen, and the final standings."""

    def __init__(self, heat: Heat, file: Path | None):
        self._commentator, self._file, self._told = Commentator(heat), file, False

    def __call__(self, heat: Heat, lag: float) -> None:
        if self._told and not heat.over:
            self._told = False
            self._commentator.forget()
        for line in self._commentator.news():
            print(line, flush=True)
        if heat.over and not self._told:
            self._told = True
            for standing in standings(heat):
                print(standing, flush=True)
            if self._file is not None:
                write_standings(self._file, heat)


def race_heat(
    arguments: argparse.Namespace, profile: Profile, world: World, look: Look, residual: Residual | None
) -> int:
    """Run the heat until stopped, and return the exit code. Raises UserError for options that exclude each other."""
    if arguments.rotor_radius and world.vehicle.rotors is None:
        raise UserError(
            f"--rotor-radius: vehicle {world.vehicle.name}: has no `rotors` section, so its mass is not known"
        )
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
            lines.append(Line(Station(simulator, None, _next(client, k), key), bound, _next(client, k)))
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
