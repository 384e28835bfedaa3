"""Addresses, bound UDP sockets, and selection of the autopilot that a client listens to.

Datagrams are stamped with their time of reception: the kernel's where available (Linux), since a loaded machine may read a
datagram much later. The wall clock is read in this module only. The peer is selected by address and ids (MAVLink,
"Heartbeat/Connection Protocol"). Only an autopilot's HEARTBEAT binds: other components (gimbals, cameras, ground stations) send
MAV_AUTOPILOT_INVALID. All else is foreign: another address, another system, or another component of the same system.
"""

import errno
import select
import socket
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from pymavlink.dialects.v20 import common as dialect
from typing_extensions import Self

from gate_racer.common.errors import UserError

Address = tuple[str, int]
Sender = tuple[int, int]  # system, component
SILENCE_S = 3.0  # s of silence, after which a peer is released: a few heartbeats of the slowest autopilots (PX4: 1 Hz)


def is_autopilot(packet: Any) -> bool:
    return (
        isinstance(packet, dialect.MAVLink_heartbeat_message)
        and packet.autopilot != dialect.MAV_AUTOPILOT_INVALID
        and packet.type != dialect.MAV_TYPE_GCS
    )


class Peer:
    """The autopilot, once received; times in s of any monotonic clock.

    Until the link is complete it may be replaced: at once by one with the ids in the profile, by any other after a while.
    """

    def __init__(self, host: str = "", port: int = 0, expected: Sender | None = None):
        """Create it for a numeric address (empty or 0: any); `expected` are system and component of the simulator's profile."""
        self.address: Address | None = None
        self._wanted, self._expected = (host, port), expected
        self._source: Sender = 0, 0
        self._rival: tuple[Address, Sender] | None = None  # another autopilot, received since this one was bound
        self._met = self._received = 0.0
        self._complete = self._changed = False

    def may_speak(self, sender: Address) -> bool:
        host, port = self._wanted
        as_wanted = host in ("", sender[0]) and port in (0, sender[1])
        return as_wanted and (self.address in (None, sender) or not self._complete)

    def admits(self, packet: Any, sender: Address, now: float) -> bool:
        """Return whether a pymavlink message is the autopilot's; its first HEARTBEAT binds."""
        source = packet.get_srcSystem(), packet.get_srcComponent()
        if (self.address, self._source) != (sender, source):
            if self._complete or not is_autopilot(packet):
                return False
            if self.address is not None and (source != self._expected or self._source == self._expected):
                self._rival = sender, source
                return False
            self._bind(sender, source, now)
        self._received = now
        return True

    def _bind(self, address: Address | None, source: Sender, now: float) -> None:
        self._changed = self._changed or self.address is not None
        self.address, self._source, self._rival, self._met, self._received = address, source, None, now, now
        self._complete = False

    def reconsider(self, now: float, complete: bool) -> bool:
        """Release an autopilot that is silent, or whose link has not all that a flight needs while another is received.

        Call it until GO. Return whether one was released or replaced since the last call: its messages are void.
        """
        self._complete = complete
        if self.address is not None and now - self._received >= SILENCE_S:
            self._bind(None, (0, 0), now)
        elif not complete and self._rival is not None and now - self._met >= SILENCE_S:
            self._bind(*self._rival, now)
        changed, self._changed = self._changed, False
        return changed


ANYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"
LARGEST_DATAGRAM = 65535  # bytes, largest UDP datagram
MOST_AT_ONCE = 1024  # datagrams per call, so that a flood cannot block the caller
TIMESTAMPNS = 35 if sys.platform == "linux" else None  # SO_TIMESTAMPNS, asm-generic/socket.h; not defined in Python
TIMESPEC = struct.Struct("@ll")  # s and ns of CLOCK_REALTIME
LONGEST_WAIT_S = 10.0  # longest time in the socket's buffer; beyond, the wall clock was set


class LinkError(UserError):
    """A link that cannot be set up."""


def parse_address(text: str, default_port: int) -> Address:
    """Return (host, port) of "HOST:PORT" or "HOST". Raises LinkError for any other text."""
    host, colon, digits = text.partition(":")
    port = int(digits) if digits.isascii() and digits.isdigit() else -1
    if not colon:
        port = default_port
    if not host or host.isdigit() or not 0 <= port <= 0xFFFF:
        raise LinkError(f"address {text!r}: expected HOST:PORT such as 127.0.0.1:{default_port}, port 0 to 65535")
    return host, port


def parse_peer(text: str) -> Address:
    """Return (numeric host, port) of "HOST" or "HOST:PORT"; port 0 stands for any. Raises LinkError as `reachable`."""
    return reachable(parse_address(text, 0), ANYWHERE)


def listening_host(peer: Address | None) -> str:
    """Return the host to listen on for a simulator at `peer`, (numeric host, port): loopback unless it is another machine."""
    return LOOPBACK if peer is None or peer[0].startswith("127.") else ANYWHERE


def reachable(address: Address, bound_host: str) -> Address:
    """Return the address with a numeric host. Raises LinkError if it is unknown, or not reachable from the bound host."""
    try:
        host = socket.gethostbyname(address[0])
    except (OSError, UnicodeError):  # UnicodeError for an impossible name, such as a..b
        raise LinkError(f"unknown host {address[0]!r}: expected a name or number such as 127.0.0.1") from None
    if bound_host.startswith("127.") and not host.startswith("127."):
        raise LinkError(f"{address[0]} is another machine, not reachable from {bound_host}: bind 0.0.0.0 instead")
    return host, address[1]


def returns(address: Address, bound: Address) -> bool:
    """Return whether datagrams to a numeric address arrive at the socket that sends them, bound there."""
    host, port = reachable(bound, ANYWHERE)
    to = LOOPBACK if address[0] == ANYWHERE else address[0]  # which sends to this machine
    return address[1] == port > 0 and (to == host or (host == ANYWHERE and to.startswith("127.")))


def bind_udp(host: str, port: int) -> socket.socket:
    """Return a UDP socket bound exclusively to host:port; port 0 takes any free one. Raises LinkError if it cannot be bound."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows shares ports by default
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            cure = "end the other program there or choose another port"
            raise LinkError(f"UDP {host}:{port} is in use: {cure}") from None
        reason = getattr(error, "strerror", None) or error
        raise LinkError(f"UDP {host}:{port} cannot be bound ({reason}): choose an address of this machine") from None
    if TIMESTAMPNS is not None:
        bound.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
    return bound


class Closing(ABC):
    """Base of what is closed at the end of `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class UdpEndpoint(Closing):
    """A bound, non-blocking UDP socket, which its owner closes. Errors of the network are counted: UDP may lose datagrams."""

    def __init__(self, host: str, port: int, buffer_bytes: int = 0):
        self.socket = bind_udp(host, port)
        self.socket.setblocking(False)
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.address: Address = self.socket.getsockname()
        self.socket_errors = self.foreign = 0
        self.only_host = ""  # numeric, of the only sender that is heard; empty: any

    def drain(self, timeout_s: float = 0.0) -> Iterator[tuple[bytes, Address, float]]:
        """Wait for a first datagram, then yield all available with sender and time of reception (monotonic, s)."""
        if not select.select([self.socket], [], [], max(0.0, timeout_s))[0]:
            return
        for _ in range(MOST_AT_ONCE):
            try:
                datagram, waited_s, sender = _receive(self.socket)
            except BlockingIOError:
                return
            except OSError:  # error report of an earlier datagram without receiver
                self.socket_errors += 1
                continue
            if self.only_host not in ("", sender[0]):
                self.foreign += 1
                continue
            yield datagram, sender, time.monotonic() - waited_s

    def transmit(self, datagram: bytes, target: Address) -> bool:
        try:
            self.socket.sendto(datagram, target)
        except OSError:
            self.socket_errors += 1
            return False
        return True

    def close(self) -> None:
        self.socket.close()


def _receive(bound: socket.socket) -> tuple[bytes, float, Address]:
    """Return the next datagram, the time (s) since the kernel received it, 0 where unavailable, and its sender."""
    if TIMESTAMPNS is None:
        datagram, sender = bound.recvfrom(LARGEST_DATAGRAM)
        return datagram, 0.0, sender
    datagram, ancillary, _, sender = bound.recvmsg(LARGEST_DATAGRAM, socket.CMSG_SPACE(TIMESPEC.size))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == TIMESTAMPNS and len(data) >= TIMESPEC.size:
            seconds, nanoseconds = TIMESPEC.unpack(data[: TIMESPEC.size])
            waited = (time.time_ns() - (seconds * 1_000_000_000 + nanoseconds)) / 1e9
            return datagram, waited if 0.0 <= waited <= LONGEST_WAIT_S else 0.0, sender
    return datagram, 0.0, sender
