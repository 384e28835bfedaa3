"""A `Station` on its UDP socket: one vehicle's end of the wire."""

import contextlib
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence

from sim.wire.station import Address, Station

MOST_STRANGERS = 100  # that are told of


class Line:
    """Takes datagrams of the client's host alone, and never raises for what the network does."""

    def __init__(self, station: Station, bound: socket.socket, client: Address):
        """`bound` is the MAVLink socket."""
        self.station, self.socket, self.client = station, bound, client
        self.socket.setblocking(False)
        self.strangers: Counter[str] = Counter()  # datagrams of other hosts than the client's, which are not read

    def hear(self) -> None:
        """Takes the datagram that has come, if there is one, and answers it."""
        with contextlib.suppress(OSError):  # an earlier datagram found nobody
            datagram, sender = self.socket.recvfrom(65535)
            if sender[0] == self.client[0]:
                self.send(self.station.hear(datagram, sender, time.monotonic()))
            elif len(self.strangers) < MOST_STRANGERS:
                self.strangers[sender[0]] += 1

    def send(self, packets: list[bytes], target: Address | None = None) -> None:
        """To the client, or elsewhere."""
        for packet in packets:
            # Nobody may listen there (yet), or the system's buffer is full: UDP loses datagrams.
            with contextlib.suppress(OSError):
                self.socket.sendto(packet, target or self.client)


def listen(lines: Sequence[Line], until: float) -> bool:
    """Takes one datagram of each line that has one; False when none has come by then (monotonic, s)."""
    ready, _, _ = select.select([line.socket for line in lines], [], [], max(0.0, until - time.monotonic()))
    for line in lines:
        if line.socket in ready:
            line.hear()
    return bool(ready)
