"""Rows of VADR-TS-002 and the means of checking them: pymavlink's bytes, both codecs, a session."""

from collections.abc import Callable
from typing import NamedTuple

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import Arm, AttitudeTarget, VideoFrame
from gate_racer.link.profile import load_profile
from gate_racer.link.server import ServerCodec
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.mavlink import packed
from tests.sim.peer import Peer

SPEC, DCL, VQ1 = load_profile("spec"), load_vehicle("dcl"), load_track("tracks/vq1.yaml")
CAMERA = DCL.camera
LEVEL, STILL = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
P, V, A = (1.0, -2.0, -3.0), (0.5, 0.25, -0.125), (2.0, -4.0, 1.0)


class Row(NamedTuple):
    section: str
    says: str
    holds: Callable[[], bool]


def simulator_bytes(message) -> bytes:
    return packed(message, 1, SPEC.component)


def told(message) -> bytes:
    return b"".join(ServerCodec(SPEC).encode(message))


def read(datagram: bytes):
    return ServerCodec(SPEC).decode(datagram)


def received(datagram: bytes):
    return ClientCodec(SPEC).decode(datagram)


def flown(command=None, seconds=1.0, hz=60, arm=True, beats=True, strict=False) -> Peer:
    """A session with a simulator: set-points at a rate."""
    pilot = Peer(VQ1, DCL, SPEC, beats=beats, strict=strict)
    pilot.beat()
    if arm:
        pilot.say(Arm(True))
    for n in range(round(seconds * 120)):
        for _ in range(n * hz // 120, (n + 1) * hz // 120):
            pilot.say(command or AttitudeTarget(LEVEL, STILL, 0.1))
        pilot.ticks(1 / 120)
    return pilot


def said(kind, seconds=2.0) -> int:
    simulator = Simulator(as_believed(VQ1, DCL), SPEC, 0)
    ticks = [simulator.tick() for _ in range(round(seconds * 120))]
    if kind is VideoFrame:
        return sum(tick.exposure is not None for tick in ticks)
    return sum(isinstance(message, kind) for tick in ticks for message in tick.telemetry)
