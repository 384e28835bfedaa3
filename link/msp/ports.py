"""Ports for MSP: a serial port, a pseudo-terminal, or TCP (Betaflight's simulator listens on 5761).

A port that may be an aircraft is opened with the caller's consent only: a pseudo-terminal or this machine's own TCP ports
need none, a serial port or another machine does. See docs/safety.md.
"""

import contextlib
import os
import select
import socket
import time
from pathlib import Path
from typing import Protocol

from gate_racer.link.options import SAFETY_PAGE
from gate_racer.link.sockets import LinkError, parse_address

SITL_PORT = 5761
CONSENT_KEY = "link.i_have_read"
AT_ONCE = 4096  # bytes per read
CONNECT_S = 3.0  # s to connect
STUCK_S = 0.3  # s, longest write


class Port(Protocol):
    def read(self, timeout_s: float) -> bytes:
        """Return the bytes received; wait at most timeout_s for the first. Raises LinkError once the line has failed."""
        ...

    def write(self, data: bytes) -> None:
        """Send all bytes. Raises LinkError once the line has failed."""
        ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class StreamPort:
    def __init__(self, line: int | socket.socket, name: str):
        self._line, self._name = line, name
        if isinstance(line, int):
            os.set_blocking(line, False)
        else:
            line.setblocking(False)

    def read(self, timeout_s: float) -> bytes:
        line = self._line
        if not select.select([line], [], [], max(0.0, timeout_s))[0]:
            return b""
        try:
            data = os.read(line, AT_ONCE) if isinstance(line, int) else line.recv(AT_ONCE)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise LinkError(f"{self._name}: the line is gone ({error.strerror})") from None
        if not data:
            raise LinkError(f"{self._name}: the other end has closed the line")
        return data

    def write(self, data: bytes) -> None:
        until = time.monotonic() + STUCK_S
        while data:
            try:
                data = data[self.put(data) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LinkError(f"{self._name}: the other end does not read") from None
                select.select([], [self._line], [], STUCK_S)
            except OSError as error:
                raise LinkError(f"{self._name}: the line is gone ({error.strerror})") from None

    def put(self, data: bytes) -> int:
        """Return how many bytes are written without waiting. Raises OSError."""
        return os.write(self._line, data) if isinstance(self._line, int) else self._line.send(data)

    def fileno(self) -> int:
        return self._line if isinstance(self._line, int) else self._line.fileno()

    def close(self) -> None:
        if isinstance(self._line, int):
            with contextlib.suppress(OSError):
                os.close(self._line)
        else:
            self._line.close()


def open_port(where: str, baud: int, consent: str = "") -> Port:
    """Open the port of a device (`/dev/pts/3`, `/dev/ttyTHS1`; baud in bit/s) or of `tcp:HOST:PORT`.

    Raises LinkError if it cannot be opened, or may be an aircraft and `consent` is not the page that has to be read.
    """
    require_consent(where, consent)
    if not where.startswith("tcp:"):
        return _open_terminal(where) if _is_pseudo_terminal(where) else open_serial(where, baud)
    host, port = parse_address(where.removeprefix("tcp:"), SITL_PORT)
    try:
        connected = socket.create_connection((host, port), CONNECT_S)
    except OSError as error:
        reason = error.strerror or error
        raise LinkError(f"tcp:{host}:{port}: no answer ({reason}); start the flight controller first") from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return StreamPort(connected, f"tcp:{host}:{port}")


def may_be_aircraft(where: str) -> bool:
    """Return whether a port is not one of this machine's pseudo-terminals and TCP ports. Raises LinkError for a malformed one."""
    if where.startswith("tcp:"):
        host, _ = parse_address(where.removeprefix("tcp:"), SITL_PORT)
        return host != "localhost" and not host.startswith("127.")
    return not _is_pseudo_terminal(where)


def require_consent(where: str, consent: str) -> None:
    """Check the consent for a possible aircraft. Raises LinkError unless its page on safety has been read."""
    if may_be_aircraft(where) and consent != SAFETY_PAGE:
        consenting = f"read {SAFETY_PAGE}, then add --set {CONSENT_KEY}={SAFETY_PAGE}"
        raise LinkError(f"{where} may be a real aircraft: {consenting}")


def _is_pseudo_terminal(where: str) -> bool:
    return Path(where).resolve().parent == Path("/dev/pts")


def _open_terminal(where: str) -> Port:
    try:
        import tty
    except ImportError:
        raise LinkError(f"{where}: this system has no pseudo-terminals") from None
    try:
        descriptor = os.open(where, os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        raise LinkError(f"{where} cannot be opened ({error.strerror})") from None
    tty.setraw(descriptor)
    return StreamPort(descriptor, where)


def open_serial(device: str, baud: int) -> Port:
    """Open a serial port for this process alone. Raises LinkError without pyserial, or without such a port."""
    if os.name == "nt":
        raise LinkError(f"{device}: serial ports need a system where `select` takes them, such as Linux")
    try:
        import serial
    except ImportError:
        raise LinkError("pyserial is missing: pip install pyserial") from None
    try:
        with serial.Serial(device, baud, exclusive=True) as opened:
            return StreamPort(os.dup(opened.fileno()), device)  # pyserial's own writes may block for ever
    except (OSError, ValueError) as error:  # SerialException is an OSError
        raise LinkError(f"{device} cannot be opened: {error}") from None
