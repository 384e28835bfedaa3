"""Command line of the simulated Betaflight, `race-sim --profile betaflight`."""

import argparse
import contextlib
from functools import partial

from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.sockets import parse_address, reachable
from gate_racer.sim.betaflight.pilot import SafetyPilot
from gate_racer.sim.betaflight.server import BetaflightServer, open_line
from gate_racer.sim.betaflight.sitl import firmware
from gate_racer.sim.betaflight.sitl_controller import SitlController
from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.physics.setting import SETTINGS
from gate_racer.sim.view.feed import FeedProcess, VideoOutlet
from gate_racer.sim.view.look import Look
from gate_racer.sim.wire.command import VADR
from gate_racer.sim.wire.server import ReportTick, stop_on_signals
from gate_racer.sim.worlds.world import World
from gate_racer.vehicle.command import remark
from gate_racer.vehicle.errors import UserError

ELSEWHERE = {  # options of the other wire, and what they are when nothing was said
    "realtime": 1.0, "bind": "", "client": "", "vision_protocol": VADR, "signing_key": None, "pose": False,
    "lockstep": False, "strict": False, "record": None, "residual": None,
}  # fmt: skip


def race_betaflight(
    arguments: argparse.Namespace, profile: BetaflightProfile, world: World, look: Look, report: ReportTick
) -> int:
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
        station = BetaflightStation(world, profile, arguments.seed, arguments.laps, setting, person, sitl=sitl)
        line = stack.enter_context(contextlib.closing(open_line(arguments.msp)))
        camera = stack.enter_context(contextlib.closing(FeedProcess(outlet)))
        server = BetaflightServer(station, line, camera.expose)
        print(
            f"race-sim: {world.track.name}, {world.vehicle.name}, {profile.name}, world {world.name}, seed {arguments.seed};"
            f" MSP on {line.name} at {profile.baud} baud, video -> {video[0]}:{video[1]}",
            flush=True,
        )
        stop_on_signals(server)
        server.run(arguments.once, report)
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
