"""The raw link: every message as it stands on the wire, with its time of arrival. No convention is applied."""

import contextlib
import math
import select
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from link.framing import Counters, Framing
from link.mavlink import CLIENT
from link.messages import ARM_COMMAND, RaceStatus, TrackMap, VideoFrame
from link.peer import Address, Peer
from link.race import RaceReader
from link.signing import SigningKey
from link.sockets import LARGEST_DATAGRAM, LinkError, bind_udp
from link.video import HEADER, Reassembler

HEARTBEAT_S = 0.25  # between our own
TIMESYNC_S = 0.5
ARM_S = 0.5
POLL_S = 0.05
AFTER_GO_S = 0.4  # of listening: does it disarm?
SILENT_S = 10.0  # of a simulator in lock-step, after which it is gone
GROUND_STATION, NO_AUTOPILOT = dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID
HANDSHAKE, RACE = "DATA_TRANSMISSION_HANDSHAKE", "ENCAPSULATED_DATA"


@dataclass
class Heard:
    """What came in a while. Times of arrival in s of the local clock."""

    seconds: float
    messages: dict[str, list[tuple[float, Any]]] = field(default_factory=dict)  # by type: arrival, pymavlink message
    images: list[tuple[float, int, int]] = field(default_factory=list)  # arrival of a last chunk, frame_id, sim_time_ns
    frames: list[tuple[float, VideoFrame]] = field(default_factory=list)  # the newest complete ones
    race: list[tuple[float, RaceStatus]] = field(default_factory=list)
    map: tuple[float, TrackMap] | None = None
    armed_early: bool | None = None  # whether arming before a start was published worked; None: not tried
    chunk_bytes: int = 0
    malformed: int = 0
    components: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __getitem__(self, kind: str) -> list[tuple[float, Any]]:
        return self.messages.get(kind, [])

    @property
    def go(self) -> bool:
        """Whether a start that was seen ahead is over; True as well where nothing tells of races."""
        seen = [status for _, status in self.race]
        return not seen or (seen[-1].go and any(not status.go for status in seen))


class RawLink(ABC):
    """One end of a raw link. Knows the simulator by its first HEARTBEAT, see `link.peer`, and sends nothing before."""

    FRAMES_KEPT = 3

    def __init__(self, peer: Address | None = None, key: SigningKey | None = None) -> None:
        """`peer` is where the simulator must be, as of `link.sockets.parse_peer`; with a key all must be signed."""
        self._counters = Counters()
        self._framing = Framing(*CLIENT, self._counters, key)
        self._race, self._images = RaceReader(), Reassembler()
        self._peer = Peer(*(peer or ("", 0)))
        self.target = (1, 0)
        self._said = self._synced = self._armed = -math.inf

    @property
    def peer(self) -> Address | None:
        """The simulator's address, once it is known."""
        return self._peer.address

    @abstractmethod
    def now(self) -> float:
        """s, of the local clock that stamps arrivals."""

    @abstractmethod
    def poll(
        self, heard: Heard, timeout_s: float = POLL_S
    ) -> tuple[list[tuple[float, Any]], list[tuple[float, VideoFrame]]]:
        """Adds what has come to `heard`, and returns it: messages and complete images with their times of arrival."""

    @abstractmethod
    def _transmit(self, datagram: bytes, peer: Address) -> None: ...

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it listens for MAVLink."""

    def keep_alive(self, now: float) -> None:
        """Heartbeats, and questions for the time."""
        if now - self._said > HEARTBEAT_S:
            self._said = now
            self.send(dialect.MAVLink_heartbeat_message(GROUND_STATION, NO_AUTOPILOT, 0, 0, 0, 3))
        if now - self._synced > TIMESYNC_S:
            self._synced = now
            self.send(dialect.MAVLink_timesync_message(0, round(now * 1e9)))

    def send(self, message: Any) -> None:
        """A pymavlink message to the simulator, if it is known."""
        if self.peer is not None:
            self._transmit(self._framing.pack(message), self.peer)

    def arm(self, now: float, arm: bool = True) -> None:
        """Arms at once, or again after a while; disarms at once."""
        if not arm or now - self._armed > ARM_S:
            self._armed = now
            parameters = (float(arm), *[0.0] * 6)
            self.send(dialect.MAVLink_command_long_message(*self.target, ARM_COMMAND, 0, *parameters))

    def _arrival(self, messages: list[Any]) -> float:
        """When they came, by the local clock."""
        return self.now()

    def _messages(self, heard: Heard, data: bytes, sender: Address) -> list[tuple[float, Any]]:
        """Those of a MAVLink datagram that are the simulator's."""
        if not self._peer.may_speak(sender):
            return []
        unpacked = [packet for packet in self._framing.unpack(data) if self._peer.admits(packet, sender, self.now())]
        now = self._arrival(unpacked)
        messages = [(now, message) for message in unpacked]
        heard.malformed = self._counters.malformed
        for _, message in messages:
            self.target = message.get_srcSystem(), message.get_srcComponent()
            heard.messages.setdefault(message.get_type(), []).append((now, message))
            heard.components[self.target] += 1
            if message.get_type() == HANDSHAKE:
                self._race.handshake(message)
            elif message.get_type() == RACE and isinstance(news := self._race.read(message, now), RaceStatus):
                heard.race.append((now, news))
            elif message.get_type() == RACE and isinstance(news, TrackMap):
                heard.map = (now, news)
        return messages

    def _image(self, heard: Heard, now: float, data: bytes) -> list[tuple[float, VideoFrame]]:
        """The image that a datagram of the video stream completes."""
        if len(data) >= HEADER.size:
            frame_id, chunk_id, total, _, payload, stamp_ns = HEADER.unpack_from(data)
            heard.chunk_bytes = max(heard.chunk_bytes, payload)
            if chunk_id == total - 1:
                heard.images.append((now, frame_id, stamp_ns))
        frame = self._images.feed(data)
        if frame is None:
            return []
        heard.frames = [*heard.frames[1 - self.FRAMES_KEPT :], (now, frame)]
        return [(now, frame)]


class UdpRawLink(RawLink):
    """Both sockets."""

    def __init__(self, mavlink: Address, video: Address, peer: Address | None = None, key: SigningKey | None = None):
        """Where to listen; `peer` and `key` as of `RawLink`. Raises LinkError when a port is taken."""
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
        return time.monotonic()

    @property
    def address(self) -> str:
        host, port = self._link.getsockname()[:2]
        return f"{host}:{port}"

    def poll(
        self, heard: Heard, timeout_s: float = POLL_S
    ) -> tuple[list[tuple[float, Any]], list[tuple[float, VideoFrame]]]:
        select.select([self._link, self._video], [], [], timeout_s)
        messages = [one for data, sender in _all(self._link) for one in self._messages(heard, data, sender)]
        frames = [one for data in self._video_datagrams() for one in self._image(heard, self.now(), data)]
        return messages, frames

    def _video_datagrams(self) -> Iterator[bytes]:
        """Those of the simulator's host."""
        for data, sender in _all(self._video):
            if self.peer is None or sender[0] == self.peer[0]:
                yield data

    def _transmit(self, datagram: bytes, peer: Address) -> None:
        with contextlib.suppress(OSError):  # UDP may lose it
            self._link.sendto(datagram, peer)


class LockstepRawLink(UdpRawLink):
    """Of a simulator whose time stands until every IMU sample is answered (`race-sim --lockstep`). Its time is the clock.

    Images come with the tick that exposes them, and are heard as much later as they nominally travel.
    """

    def __init__(
        self,
        mavlink: Address,
        video: Address,
        physics_hz: float,
        latency_s: float,
        peer: Address | None = None,
        key: SigningKey | None = None,
    ):
        """As `UdpRawLink`. Raises LinkError when a port is taken."""
        super().__init__(mavlink, video, peer, key)
        self._physics_hz, self._latency_s = physics_hz, latency_s
        self._t, self._stamp_ms = 0.0, -1  # of the newest sample: its tick, and what it is stamped
        self._coming: deque[tuple[float, bytes]] = deque()  # datagrams of images, and when they are heard

    def now(self) -> float:
        return self._t

    def poll(
        self, heard: Heard, timeout_s: float = POLL_S
    ) -> tuple[list[tuple[float, Any]], list[tuple[float, VideoFrame]]]:
        """All up to the next IMU sample. Raises LinkError when none comes."""
        if self._stamp_ms >= 0:  # after whatever was sent: the last sample is answered
            self.send(dialect.MAVLink_system_time_message(0, self._stamp_ms))
        begin = time.monotonic()
        messages: list[tuple[float, Any]] = []
        while not any(message.get_type() == "HIGHRES_IMU" for _, message in messages):
            if time.monotonic() - begin > SILENT_S:
                raise LinkError(f"no simulator in lock-step within {SILENT_S:g} s on {self.address}")
            select.select([self._link], [], [], timeout_s)
            messages += [one for data, sender in _all(self._link) for one in self._messages(heard, data, sender)]
        self._coming += [(self._t + self._latency_s, data) for data in self._video_datagrams()]
        frames: list[tuple[float, VideoFrame]] = []
        while self._coming and self._coming[0][0] <= self._t:
            frames += self._image(heard, *self._coming.popleft())
        return messages, frames

    def _arrival(self, messages: list[Any]) -> float:
        """The tick that sent the newest IMU sample."""
        for message in messages:
            if message.get_type() == "HIGHRES_IMU":
                self._stamp_ms = round(message.time_usec * 1e-3)
                self._t = math.ceil(message.time_usec * 1e-6 * self._physics_hz - 1e-3) / self._physics_hz
        return self._t


def _all(bound: socket.socket) -> Iterator[tuple[bytes, Address]]:
    """The datagrams that are there, and their senders."""
    while True:
        try:
            yield bound.recvfrom(LARGEST_DATAGRAM)
        except OSError:  # all is read, or an earlier datagram of ours found nobody
            return


def listen(link: RawLink, seconds: float, wait_s: float, to_fly: bool = False) -> Heard:
    """Waits for a first message, then notes everything for so many seconds. Says no more than heartbeats and TIMESYNC.

    Args:
        to_fly: whether to stay until the start of a race that is announced, at most wait_s longer, and to arm while
            there is a race without a start yet: does its start disarm?

    Raises:
        LinkError: nothing came in time.
    """
    heard, begin = Heard(seconds), link.now()
    while link.peer is None:
        if link.now() - begin > wait_s:
            raise LinkError(f"no MAVLink within {wait_s:g} s on {link.address}: is the simulator in a race?")
        link.poll(heard)
    heard.images.clear()
    begin = link.now()
    go_t = math.inf
    while (now := link.now()) < begin + seconds or (
        to_fly and now < go_t + AFTER_GO_S and now < begin + seconds + wait_s
    ):
        link.poll(heard)
        go_t = min(go_t, now) if heard.go else math.inf
        link.keep_alive(now)
        if to_fly and heard.race and heard.race[-1][1].start is None:
            heard.armed_early = bool(heard.armed_early)
            link.arm(now)
        if heard.armed_early is False and heard["HEARTBEAT"] and is_armed(heard["HEARTBEAT"][-1][1]):
            heard.armed_early = True
    heard.seconds = now - begin
    return heard


def is_armed(heartbeat: Any) -> bool:
    """Whether a HEARTBEAT says that the motors may turn."""
    return bool(heartbeat.base_mode & dialect.MAV_MODE_FLAG_SAFETY_ARMED)
