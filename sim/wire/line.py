"""A `Station` on its UDP socket: the simulator's end of one vehicle's link."""

import contextlib
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence

from gate_racer.link.peer import Address
from gate_racer.sim.wire.station import Station

MOST_STRANGERS = 100  # hosts that are counted (chosen)


class ClientEndpoint:
    """Datagram endpoint that accepts the client's host only. Network errors are suppressed."""

    def __init__(self, station: Station, bound: socket.socket, client: Address):
        """Serve `station` on the MAVLink socket `bound`."""
        self.station, self.socket, self.client = station, bound, client
        self.socket.setblocking(False)
        self.strangers: Counter[str] = Counter()  # datagrams by other hosts, which are discarded

    def receive(self) -> None:
        """Receive one datagram, if there is one, and send the replies."""
        with contextlib.suppress(OSError):  # an earlier datagram had no receiver
            datagram, sender = self.socket.recvfrom(65535)
            if sender[0] == self.client[0]:
                self.send(self.station.receive(datagram, sender, time.monotonic()))
            elif len(self.strangers) < MOST_STRANGERS:
                self.strangers[sender[0]] += 1

    def send(self, packets: list[bytes], target: Address | None = None) -> None:
        """Send datagrams to `target`, by default the client."""
        for packet in packets:
            # No listener (yet), or the system's buffer is full: a loss, as UDP allows.
            with contextlib.suppress(OSError):
                self.socket.sendto(packet, target or self.client)


def listen(lines: Sequence[ClientEndpoint], until: float) -> bool:
    """Receive one datagram on each readable line; False when none has arrived by `until` (monotonic, s)."""
    ready, _, _ = select.select([line.socket for line in lines], [], [], max(0.0, until - time.monotonic()))
    for line in lines:
        if line.socket in ready:
            line.receive()
    return bool(ready)
