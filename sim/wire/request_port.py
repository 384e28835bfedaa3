"""UDP port of a simulated RflySim service: requests in; those that are malformed or refused are counted and reported."""

from abc import ABC, abstractmethod

from gate_racer.link.peer import Address
from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.link.rflysim.stream import RateLimitedReporter
from gate_racer.link.rflysim.udp import to_stderr
from gate_racer.link.sockets import bind_udp, drain


class RequestPort(ABC):
    """Bound socket of a service that clients send requests to."""

    def __init__(self, own: Address, prefix: str = ""):
        """Bind `own`, and report with a prefix. Raises LinkError when the port is in use."""
        self._socket = bind_udp(*own)
        self._socket.setblocking(False)
        self.malformed = self.refused = self.socket_errors = 0
        self._say = RateLimitedReporter(to_stderr, f"{prefix}port {self.address[1]}")

    @property
    def address(self) -> Address:
        """Address on which requests are received."""
        return self._socket.getsockname()

    @abstractmethod
    def _receive(self, datagram: bytes, sender: Address) -> None:
        """Process one request. Raises MalformedError for a datagram that is none."""

    def _process_requests(self) -> None:
        """Process the pending requests. Never raises."""
        for datagram, sender, _ in drain(self._socket, 0.0, self._failed):
            try:
                self._receive(datagram, sender)
            except MalformedError as error:
                self.malformed += 1
                self._say("malformed", f"dropped a request from {sender[0]}: {error}; further ones are only counted")

    def _refuse(self, sender: Address, topic: str, why: str) -> None:
        """Count and report a request that cannot be served; each topic is reported separately."""
        self.refused += 1
        self._say(f"refused {topic}", f"refused a request from {sender[0]}:{sender[1]}: {why}")

    def _failed(self) -> None:
        self.socket_errors += 1

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
