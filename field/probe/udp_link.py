"""Raw links over UDP: in real time, and with a simulator in lock-step."""

import contextlib
import math
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.field.probe.raw_link import POLL_S, RawLink, ReceivedMessages
from gate_racer.link.messages import VideoFrame
from gate_racer.link.peer import Address
from gate_racer.link.signing import SigningKey
from gate_racer.link.sockets import LARGEST_DATAGRAM, LinkError, bind_udp

SILENT_S = 10.0  # s of silence, after which a simulator in lock-step counts as lost


class UdpRawLink(RawLink):
    """Raw link in real time."""

    def __init__(self, mavlink: Address, video: Address, peer: Address | None = None, key: SigningKey | None = None):
        """Bind both sockets; `peer` and `key` as for `RawLink`. Raises LinkError when a port is in use."""
        super().__init__(peer, key)
        self._link = bind_udp(*mavlink)
        try:
            self._video = bind_udp(*video)
        except LinkError:
            self._link.close()
            raise
        for bound in (self._link, self._video):
            bound.setblocking(False)

    def __enter__(self) -> "UdpRawLink":
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self._video.close()

    def now(self) -> float:
        """Return the local monotonic time, s."""
        return time.monotonic()

    @property
    def address(self) -> str:
        """Bound address of the MAVLink socket, HOST:PORT."""
        host, port = self._link.getsockname()[:2]
        return f"{host}:{port}"

    def poll(
        self, received: ReceivedMessages, timeout_s: float = POLL_S
    ) -> tuple[list[tuple[float, Any]], list[tuple[float, VideoFrame]]]:
        """Wait up to timeout_s (s); record and return the messages and images received, with times of arrival, s."""
        select.select([self._link, self._video], [], [], timeout_s)
        messages = [one for data, sender in _all(self._link) for one in self._messages(received, data, sender)]
        frames = [one for data in self._video_datagrams() for one in self._image(received, self.now(), data)]
        return messages, frames

    def _video_datagrams(self) -> Iterator[bytes]:
        """Yield the datagrams from the simulator's host."""
        for data, sender in _all(self._video):
            if self.peer is None or sender[0] == self.peer[0]:
                yield data

    def _transmit(self, datagram: bytes, peer: Address) -> None:
        with contextlib.suppress(OSError):  # UDP may lose it
            self._link.sendto(datagram, peer)


class LockstepRawLink(UdpRawLink):
    """Raw link to a simulator whose time stands until every IMU sample is answered (`race-sim --lockstep`), on its clock.

    Images arrive with the tick of their exposure, and are delivered after their nominal latency.
    """

    times_images = False

    def __init__(
        self,
        mavlink: Address,
        video: Address,
        physics_hz: float,
        latency_s: float,
        peer: Address | None = None,
        key: SigningKey | None = None,
    ):
        """Bind both sockets, as `UdpRawLink`. Raises LinkError when a port is in use."""
        super().__init__(mavlink, video, peer, key)
        self._physics_hz, self._latency_s = physics_hz, latency_s
        self._t, self._stamp_ms = 0.0, -1  # newest sample: its tick, and its stamp
        self._coming: deque[tuple[float, bytes]] = deque()  # image datagrams and their times of delivery

    def now(self) -> float:
        """Return the simulator's time, s."""
        return self._t

    def poll(
        self, received: ReceivedMessages, timeout_s: float = POLL_S
    ) -> tuple[list[tuple[float, Any]], list[tuple[float, VideoFrame]]]:
        """Return all messages up to the next IMU sample. Raises LinkError when none arrives."""
        if self._stamp_ms >= 0:  # answers the last sample, after all commands were sent
            self.send(dialect.MAVLink_system_time_message(0, self._stamp_ms))
        begin = time.monotonic()
        messages: list[tuple[float, Any]] = []
        while not any(message.get_type() == "HIGHRES_IMU" for _, message in messages):
            if time.monotonic() - begin > SILENT_S:
                raise LinkError(f"no simulator in lock-step within {SILENT_S:g} s on {self.address}")
            select.select([self._link], [], [], timeout_s)
            messages += [one for data, sender in _all(self._link) for one in self._messages(received, data, sender)]
        self._coming += [(self._t + self._latency_s, data) for data in self._video_datagrams()]
        frames: list[tuple[float, VideoFrame]] = []
        while self._coming and self._coming[0][0] <= self._t:
            frames += self._image(received, *self._coming.popleft())
        return messages, frames

    def _arrival(self, messages: list[Any]) -> float:
        """Return the tick that sent the newest IMU sample."""
        for message in messages:
            if message.get_type() == "HIGHRES_IMU":
                self._stamp_ms = round(message.time_usec * 1e-3)
                self._t = math.ceil(message.time_usec * 1e-6 * self._physics_hz - 1e-3) / self._physics_hz
        return self._t


def _all(bound: socket.socket) -> Iterator[tuple[bytes, Address]]:
    """Yield the available datagrams and their senders."""
    while True:
        try:
            yield bound.recvfrom(LARGEST_DATAGRAM)
        except OSError:  # all is read, or an error report of an earlier datagram without receiver
            return
