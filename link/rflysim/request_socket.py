"""A client's socket: requests to a server of RflySim, and its replies."""

import socket

from gate_racer.link.peer import Address
from gate_racer.link.sockets import ANYWHERE, bind_udp, reachable


class RequestSocket:
    """A bound socket, its server, and counters."""

    def __init__(self, server: Address, port: int, host: str = ANYWHERE):
        """Bind host:port. Raises LinkError when the port is in use or the server's name is unknown."""
        self.server = reachable(server, host)
        self.socket: socket.socket = bind_udp(host, port)
        self.socket.setblocking(False)
        self.malformed = self.socket_errors = 0

    @property
    def port(self) -> int:
        """The local port."""
        return self.socket.getsockname()[1]

    def _send(self, datagram: bytes) -> None:
        try:
            self.socket.sendto(datagram, self.server)
        except OSError:
            self._failed()

    def _failed(self) -> None:
        self.socket_errors += 1

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
