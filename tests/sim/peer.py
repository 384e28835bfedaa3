"""A station and a client that knows its profile, joined by bytes in one process."""

from link.client import ClientCodec
from link.messages import AttitudeTarget
from link.profile import load_profile
from sim.simulator import Simulator
from sim.wire.station import Station
from sim.worlds.world import as_believed

SPEC, DCL = load_profile("spec"), load_profile("dcl")
ME, OTHER = ("127.0.0.1", 1), ("127.0.0.1", 2)
HOVER = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.3)


class Peer:
    """Both ends of the link; `sent` is all that the simulator has said."""

    def __init__(self, track, vehicle, profile, seed=0, pose=False):
        self.simulator = Simulator(as_believed(track, vehicle), profile, seed, pose=pose)
        self.station, self.codec = Station(self.simulator), ClientCodec(profile)
        self.sent = b""

    def say(self, command):
        for reply in self.station.hear(self.codec.encode(command, self.simulator.t), ME, self.simulator.t):
            self.sent += reply

    def beat(self):
        self.station.hear(self.codec.heartbeat(), ME, self.simulator.t)

    def ticks(self, seconds):
        """What is heard in so many seconds."""
        heard = []
        for _ in range(round(seconds * self.simulator.profile.physics_hz)):
            packets, _ = self.station.tick()
            self.sent += b"".join(packets)
            heard += [message for packet in packets for message in self.codec.decode(packet)]
        return heard

    def until_go(self):
        self.beat()
        return self.ticks(DCL.race.lobby_s + DCL.race.countdown_s + 0.01)


def of(kind, heard):
    return [message for message in heard if isinstance(message, kind)]
