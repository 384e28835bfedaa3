"""Real-time server of the simulated aircraft, on a pseudo-terminal or on TCP as Betaflight's SITL (port 5761)."""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable

from gate_racer.common.process import real_time
from gate_racer.link.msp.ports import SITL_PORT, StreamPort
from gate_racer.link.options import TERMINAL
from gate_racer.link.sockets import LinkError, parse_address
from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.wire.server import LAG_LIMIT_S, EndTimer, ReportTick

TCP = "tcp:"
LANDING_S = 25.0  # for which a run that is over waits until its pilot has landed


class TerminalLine(StreamPort):
    """Simulator's end of a pseudo-terminal, which a client opens by its name like a serial port."""

    def __init__(self) -> None:
        """Raises LinkError where the system has none."""
        try:
            import tty

            master, self._slave = os.openpty()
        except (ImportError, OSError):
            raise LinkError(f"link.msp {TERMINAL}: this system has no pseudo-terminals; use {TCP}127.0.0.1") from None
        tty.setraw(self._slave)
        self.name = os.ttyname(self._slave)
        super().__init__(master, self.name)

    def write(self, data: bytes) -> None:
        with contextlib.suppress(BlockingIOError):  # nobody reads: a line does not wait
            self.put(data)

    def close(self) -> None:
        super().close()
        os.close(self._slave)


class TcpLine:
    """TCP server for one client at a time; the next is accepted once it has disconnected."""

    def __init__(self, address: str):
        """Raises LinkError when the address cannot be bound."""
        host, port = parse_address(address, SITL_PORT)
        try:
            self._server = socket.create_server((host, port), backlog=1)
        except OSError as error:
            raise LinkError(f"link.msp {TCP}{host}:{port} cannot be bound ({error.strerror})") from None
        self._client: StreamPort | None = None
        bound = self._server.getsockname()
        self.name = f"{TCP}{bound[0]}:{bound[1]}"

    def read(self, timeout_s: float) -> bytes:
        if self._client is None:
            if select.select([self._server], [], [], max(0.0, timeout_s))[0]:
                connected, _ = self._server.accept()
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._client = StreamPort(connected, self.name)
            return b""
        try:
            return self._client.read(timeout_s)
        except LinkError:
            self._hang_up()
            return b""

    def write(self, data: bytes) -> None:
        if self._client is not None:
            try:
                self._client.put(data)
            except BlockingIOError:
                pass
            except OSError:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        self._hang_up()
        self._server.close()


def open_line(where: str) -> TerminalLine | TcpLine:
    """Open the line `pty` or `tcp:HOST:PORT`. Raises LinkError for other names and for a line that cannot be opened."""
    if where == TERMINAL:
        return TerminalLine()
    if where.startswith(TCP):
        return TcpLine(where.removeprefix(TCP))
    raise LinkError(f"link.msp {where}: expected {TERMINAL} or {TCP}HOST:PORT such as {TCP}127.0.0.1:{SITL_PORT}")


class BetaflightServer:
    """Server that follows the wall clock; it wakes for every event on the line and every tick."""

    def __init__(self, station: BetaflightStation, line: TerminalLine | TcpLine, expose: Callable[[Exposure], object]):
        self._station, self._line, self._expose = station, line, expose
        self._aftermath = EndTimer(LANDING_S)
        self.worst_lag_s = 0.0
        self.stopped = False  # set it to end `run`

    def run(self, once: bool, report: ReportTick) -> None:
        """Run until stopped, or with `once` until the first run is over. `report` is called after each tick."""
        station = self._station
        with real_time():
            epoch = time.monotonic() - station.t
            while not self.stopped:
                received = self._line.read(epoch + station.next_t - time.monotonic())
                now = time.monotonic() - epoch
                lag = now - station.tick_t
                if lag > LAG_LIMIT_S:
                    epoch, now = epoch + lag, now - lag
                if received:
                    station.receive(received, now)
                said = b""
                while station.tick_t <= now and not self.stopped:
                    said += station.serve(station.tick_t)
                    lag = max(0.0, now - station.tick_t)
                    self.worst_lag_s = max(self.worst_lag_s, lag)
                    exposure = station.tick()
                    if exposure is not None:
                        self._expose(exposure)
                    report(lag)
                    if self._aftermath.passed(station.simulator):
                        if once:
                            return
                        station.reset()
                said += station.serve(now)
                if said:
                    self._line.write(said)
