"""The relay takes telemetry out and brings commands back to the simulator's own port."""

import errno
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


class Unreachable:
    """A socket whose network is gone, until it is back."""

    def __init__(self, real):
        self.gone, self.sent, self.close = True, [], real.close

    def sendto(self, datagram, target):
        if self.gone:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        self.sent.append((datagram, target))


def test_a_network_that_is_gone_for_a_moment_is_told_of_once_and_survived(capsys):
    relay = Relay("192.0.2.1", 14550, local_port=0)
    relay.far.close()
    relay.far = network = Unreachable(relay.far)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as simulator:
        try:
            for n in range(20):
                simulator.sendto(bytes([n]), relay.near.getsockname())
                network.gone = n < 15
                relay.pass_on(relay.near)
        finally:
            relay.close()
    assert relay.lost == 15 and [datagram for datagram, _ in network.sent] == [bytes([n]) for n in range(15, 20)]
    gone, back = capsys.readouterr().out.splitlines()
    assert "192.0.2.1:14550: Network is unreachable" in gone and "15 datagrams were lost" in back
