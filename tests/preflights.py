"""A simulated aircraft on a line, and the file of a preflight of it as its profile has it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gate_racer.link.msp.client import LinkFigures
from gate_racer.link.msp.messages import Code
from gate_racer.link.msp.preflight import (
    AircraftConstants,
    AtRest,
    PreflightFile,
    profile_named,
    vehicle_named,
)
from gate_racer.link.msp.profile import BetaflightProfile, load_betaflight
from gate_racer.sim.betaflight.flight_controller import settings
from gate_racer.sim.betaflight.server import BetaflightServer, TerminalLine
from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

LEVEL = AtRest((0.0, 0.0, -9.81), (0.0, 0.0, 0.0), 0.5, 0.02, 0.0, 0.0)


def made(profile: str = "betaflight") -> PreflightFile:
    named = load_betaflight(profile)
    told = settings(named)
    constants = AircraftConstants(
        firmware="BTFL 4.4.3",
        api="1.45",
        board="STM32H743",
        pid_profile=0,
        rate_profile=0,
        channel_map=told[Code.RX_MAP].letters,
        tuning=told[Code.RC_TUNING],
        receiver=told[Code.RX_CONFIG],
        modes=told[Code.MODE_RANGES].ranges,
    )
    names = profile_named(named), vehicle_named(load_vehicle("archer"))
    return PreflightFile(constants, *names, LEVEL, LinkFigures(60, 0, 0.0165, 0.02))


@contextmanager
def running(profile: BetaflightProfile) -> Iterator[str]:
    """The name of the pseudo-terminal of an aircraft that is set up by the profile, in a thread of its own."""
    line = TerminalLine()
    station = BetaflightStation(as_believed(load_track("pq"), load_vehicle("archer")), profile, 0)
    server = BetaflightServer(station, line, lambda exposure: None)
    thread = threading.Thread(target=server.run, args=(False, lambda lag: None))
    thread.start()
    try:
        yield line.name
    finally:
        server.stopped = True
        thread.join(30)
        line.close()
