"""A client, and a simulator's end of the sockets that it may meet, over loopback."""

import pytest

from gate_racer.link.client import MavlinkClient
from gate_racer.link.messages import Heartbeat
from gate_racer.link.profile import load_profile
from gate_racer.link.server import ServerCodec
from gate_racer.link.sockets import bind_udp
from tests.processes import waiting

SPEC = load_profile("spec")
LOCAL = "127.0.0.1"
PATIENCE_S = 1.0


class FakeSimulator:
    def __init__(self, client):
        self.socket, self.codec, self.client = bind_udp(LOCAL, 0), ServerCodec(SPEC), client
        self.socket.settimeout(PATIENCE_S)

    def say(self, message):
        for datagram in self.codec.encode(message):
            self.socket.sendto(datagram, self.client)

    def receive(self):
        return self.codec.decode(self.socket.recv(65535))

    def pending(self):
        return len(waiting(self.socket))


def meet(client, simulator):
    simulator.say(Heartbeat(0.0, False))
    return client.receive(PATIENCE_S)


@pytest.fixture
def client():
    with MavlinkClient(LOCAL, 0, SPEC) as client:
        yield client


@pytest.fixture
def simulator(client):
    fake = FakeSimulator(client.address)
    with fake.socket:
        yield fake
