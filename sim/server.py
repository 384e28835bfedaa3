"""The simulator on the wire: MAVLink and video over UDP, in real time.

Telemetry goes to the client's known port; commands are taken from one client at a time, the first that speaks.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable

from link.mavlink import ServerCodec
from link.messages import Ack, Arm, AttitudeTarget, TimesyncRequest, UnknownCommand
from sim.simulator import Simulator
from sim.view.feed import Address, FeedProcess

LAG_LIMIT_S = 0.25  # behind schedule by more than this, the clock gives up the lost time
CLIENT_SILENCE_S = 3.0  # after which another client may take over
AFTERMATH_S = 1.0  # a finished or crashed run stays on the wire this long


class Server:
    """Runs a `Simulator` against the wall clock."""

    def __init__(self, simulator: Simulator, feed: FeedProcess, bound: socket.socket, client: Address, speed: float):
        """`bound` is the MAVLink socket; `speed` is simulated over wall time."""
        self._simulator, self._feed, self._socket, self._client, self._speed = simulator, feed, bound, client, speed
        self._socket.setblocking(False)
        self._codec = ServerCodec(simulator.profile)
        self._speaker: tuple[Address, float] | None = None
        self.late_ticks = 0
        self.stopped = False  # set it to end `run`
        self.foreign = 0  # datagrams of a second client

    def run(self, once: bool, report: Callable[[Simulator, float], None]) -> None:
        """Ticks until stopped, or with `once` until the first run is over. `report` is called after each tick."""
        simulator = self._simulator
        period = 1 / (simulator.profile.physics_hz * self._speed)
        due, over_since = time.monotonic(), None
        while not self.stopped:
            due += period
            self._listen(due)
            lag = time.monotonic() - due
            if lag > LAG_LIMIT_S:
                self.late_ticks += 1
                due += lag
            tick = simulator.tick()
            for message in tick.telemetry:
                self._send(self._codec.encode(message))
            if tick.exposure is not None:
                self._feed.expose(tick.exposure)
            report(simulator, lag)
            if not simulator.referee.race.over:
                over_since = None
            elif over_since is None:
                over_since = tick.t
            elif tick.t - over_since > AFTERMATH_S:
                if once:
                    return
                simulator.reset()

    def _listen(self, until: float) -> None:
        """Takes commands until the tick is due."""
        while True:
            wait = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([self._socket], [], [], wait)
            if not ready:
                return
            try:
                datagram, sender = self._socket.recvfrom(65535)
            except ConnectionError:
                continue  # an earlier datagram found nobody
            self._take(datagram, sender)
            if wait == 0.0:
                return

    def _take(self, datagram: bytes, sender: Address) -> None:
        now = time.monotonic()
        if self._speaker and self._speaker[0] != sender and now - self._speaker[1] < CLIENT_SILENCE_S:
            self.foreign += 1
            return
        messages = self._codec.decode(datagram)
        if messages:
            self._speaker = (sender, now)
        for message in messages:
            if isinstance(message, Arm | AttitudeTarget):
                self._simulator.command(message)
            elif isinstance(message, TimesyncRequest):
                self._send(self._codec.timesync_reply(message, self._simulator.t))
            elif isinstance(message, UnknownCommand):
                self._send(self._codec.encode(Ack(self._simulator.t, False, message.command)))

    def _send(self, datagram: bytes) -> None:
        # Nobody may listen there (yet), or the system's buffer is full: UDP loses datagrams.
        with contextlib.suppress(ConnectionError, BlockingIOError):
            self._socket.sendto(datagram, self._client)
