"""The relay takes telemetry out and brings commands back to the simulator's own port."""

import errno
import socket

from tools.relay import Relay


class Unreachable:
    def sendto(self, datagram, target):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")


def test_both_ways_and_a_network_that_is_gone_for_a_moment():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as simulator,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pilot,
    ):
        for end in (simulator, pilot):
            end.bind(("127.0.0.1", 0))
            end.settimeout(2.0)
        relay = Relay("127.0.0.1", pilot.getsockname()[1], local_port=0)
        try:
            network, relay.far = relay.far, Unreachable()
            simulator.sendto(b"lost", relay.near.getsockname())
            relay.pass_on(relay.near)
            relay.far = network
            simulator.sendto(b"telemetry", relay.near.getsockname())
            relay.pass_on(relay.near)
            datagram, sender = pilot.recvfrom(100)
            assert datagram == b"telemetry"
            pilot.sendto(b"command", sender)
            relay.pass_on(relay.far)
            assert simulator.recvfrom(100)[0] == b"command"
        finally:
            relay.close()
