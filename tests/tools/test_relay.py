"""The relay takes telemetry out and brings commands back to the simulator's own port."""

import socket

from tools.relay import Relay


def test_both_ways():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as simulator,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pilot,
    ):
        for end in (simulator, pilot):
            end.bind(("127.0.0.1", 0))
            end.settimeout(2.0)
        relay = Relay("127.0.0.1", pilot.getsockname()[1], local_port=0)
        try:
            simulator.sendto(b"telemetry", relay.near.getsockname())
            relay.pass_on(relay.near)
            datagram, sender = pilot.recvfrom(100)
            assert datagram == b"telemetry"
            pilot.sendto(b"command", sender)
            relay.pass_on(relay.far)
            assert simulator.recvfrom(100)[0] == b"command"
        finally:
            relay.close()
