"""A client and a simulator that it may meet, over loopback."""

import pytest

from gate_racer.link.udp import MavlinkClient
from tests.link.fake_simulator import LOCAL, SPEC, FakeSimulator


@pytest.fixture
def client():
    with MavlinkClient(LOCAL, 0, SPEC) as client:
        yield client


@pytest.fixture
def simulator(client):
    fake = FakeSimulator(client.address)
    with fake.socket:
        yield fake
