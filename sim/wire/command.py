"""Command line of a race over MAVLink, `race-sim` with one vehicle."""

import argparse
import contextlib
import time
from collections.abc import Callable
from functools import partial

from gate_racer.link.peer import Address
from gate_racer.link.profile import Profile
from gate_racer.link.rflysim.copter import imu_port
from gate_racer.link.rflysim.vision import parse_server
from gate_racer.link.signing import read_key
from gate_racer.link.sockets import bind_udp, parse_address, reachable
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.setting import SETTINGS
from gate_racer.sim.record import SimulatorRecord
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.view.feed import FeedProcess, Outlet, VideoOutlet
from gate_racer.sim.view.look import Look
from gate_racer.sim.wire.copter_sim import CopterSimImu, open_imu
from gate_racer.sim.wire.rflysim import RflySimOutlet
from gate_racer.sim.wire.server import LockstepServer, RealTimeServer, ReportTick, stop_on_signals
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import World
from gate_racer.vehicle.command import remark
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.process import never_swallowed

VADR = "vadr"  # default of --vision-protocol
IMU_OPTION = "imu"  # option of the RflySim protocol
OpenImu = Callable[[], CopterSimImu | None]


def race_mavlink(
    arguments: argparse.Namespace,
    profile: Profile,
    world: World,
    look: Look,
    residual: UnmodelledAcceleration | None,
    report: ReportTick,
) -> int:
    """Run the race until stopped, and return the exit code.

    Raises:
        UserError: an address, key or --vision-protocol that cannot be used.
    """
    own, client, video = addresses(arguments, profile)
    open_outlet, open_service, images = _cameras(arguments, profile, world, look, video)
    key = read_key(arguments.signing_key, time.time()) if arguments.signing_key else None
    flown = arguments.laps, arguments.pose, SETTINGS.get(arguments.setting), residual, arguments.strict
    with never_swallowed():  # Numba drops what strikes while it loads
        simulator = Simulator(world, profile, arguments.seed, *flown)
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(bind_udp(*own))
        record = (
            stack.enter_context(contextlib.closing(SimulatorRecord(arguments.record))) if arguments.record else None
        )
        station = Station(simulator, record, client, key)
        imu = open_service()
        if imu is not None:
            stack.enter_context(contextlib.closing(imu))
        server: LockstepServer | RealTimeServer
        if arguments.lockstep:
            outlet = stack.enter_context(contextlib.closing(open_outlet()))
            server = LockstepServer(station, bound, client, outlet, imu)
        else:
            remote = stack.enter_context(contextlib.closing(FeedProcess(open_outlet)))
            server = RealTimeServer(station, bound, client, remote, arguments.realtime, imu)
        print(
            f"race-sim: {world.track.name}, {world.vehicle.name}, {profile.name}, world {world.name}, seed {arguments.seed};"
            f" MAVLink {bound.getsockname()[0]}:{bound.getsockname()[1]} -> {client[0]}:{client[1]},"
            f" {images}",
            flush=True,
        )
        stop_on_signals(server)
        server.run(arguments.once, report)
        if isinstance(server, RealTimeServer):
            remark(f"worst lag {server.worst_lag_s * 1e3:.1f} ms")
            if remote.trouble:
                remark(remote.trouble)
        for host, count in server.strangers.items():
            remark(f"{count} datagrams of {host} were not read: the client is {client[0]} (--client)")
        if server.stopped:
            remark("stopped")
    return 0


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
