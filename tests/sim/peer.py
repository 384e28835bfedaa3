"""A station and a client that knows its profile, joined by bytes in one process."""

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.profile import RateDivider, load_profile
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import as_believed

SPEC, DCL = load_profile("spec"), load_profile("dcl")
ME, OTHER = ("127.0.0.1", 1), ("127.0.0.1", 2)
HOVER = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.3)


class Peer:
    """Both ends of the link; `sent` is all that the simulator has said. With `beats` heartbeats go out by themselves."""

    def __init__(self, track, vehicle, profile, seed=0, pose=False, strict=False, beats=False):
        self.simulator = Simulator(as_believed(track, vehicle), profile, seed, RunSetup(pose=pose, strict=strict))
        self.station, self.codec = Station(self.simulator), ClientCodec(profile)
        self._due = RateDivider(profile.client_heartbeat_hz if beats else 0.0, profile.physics_hz)
        self.sent = b""

    @property
    def race(self):
        return self.simulator.referee.race

    @property
    def violations(self):
        return {rule: violation.count for rule, violation in self.simulator.referee.violations.items()}

    def bytes(self, datagram):
        return self.station.receive(datagram, ME, self.simulator.t)

    def say(self, command):
        for reply in self.station.receive(self.codec.encode(command, self.simulator.t), ME, self.simulator.t):
            self.sent += reply

    def beat(self):
        self.station.receive(self.codec.heartbeat(), ME, self.simulator.t)

    def ticks(self, seconds):
        received = []
        for _ in range(round(seconds * self.simulator.profile.physics_hz)):
            if self._due(self.simulator.count + 1):
                self.beat()
            packets, _ = self.station.tick()
            self.sent += b"".join(packets)
            received += [message for packet in packets for message in self.codec.decode(packet)]
        return received

    def until_go(self):
        self.beat()
        return self.ticks(DCL.race.lobby_s + DCL.race.countdown_s + 0.01)


def of(kind, received):
    return [message for message in received if isinstance(message, kind)]
