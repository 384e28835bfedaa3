"""The client's sockets: MAVLink with one simulator, and its video."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gate_racer.link.client import ClientCodec
from gate_racer.link.mavlink import Counters, SigningKey
from gate_racer.link.messages import (
    AttitudeTarget,
    Command,
    PositionTarget,
    SetPoint,
    Telemetry,
    TimesyncReply,
    VideoFrame,
)
from gate_racer.link.profile import Profile
from gate_racer.link.reassembly import StreamCounters
from gate_racer.link.sockets import LOOPBACK, Address, Peer, UdpEndpoint
from gate_racer.link.video import image_reassembler

VIDEO_BUFFER_BYTES = 4 << 20  # some dozens of images
MAVLINK_BUFFER_BYTES = 1 << 20  # one second of the profile with the highest data rate, while this process is suspended
TIMESYNC_S = 0.5  # s between TIMESYNC requests
LEAST_HEARTBEAT_HZ = 2.5  # VADR-TS-002 4.4 requires 2 Hz; the caller's loop may be 0.1 s late


@dataclass(slots=True)
class ClientCounters(Counters):
    """Counts of messages that a `MavlinkClient` has dropped or not sent."""

    foreign: int = 0  # datagrams and messages of senders other than the simulator
    socket_errors: int = 0
    rate_limited: int = 0  # set-points above the rate limit
    unsent: int = 0  # commands without a known simulator, or not finite


class RateGuard:
    """Rate limiter: admits fewer than `limit_hz` events in any window of 1 s."""

    def __init__(self, limit_hz: float):
        self.most_1s = 0  # largest number in any window so far
        self._limit = limit_hz
        self._recent: deque[float] = deque()
        self._count, self._first, self._last = 0, 0.0, 0.0

    @property
    def mean_hz(self) -> float:
        """Mean rate from the first to the last admitted event, Hz."""
        return (self._count - 1) / (self._last - self._first) if self._last > self._first else 0.0

    def admit(self, now: float) -> bool:
        """Return whether an event at `now` (s) is admitted; if so it is counted."""
        recent = self._recent
        while recent and recent[-1] > now:
            recent.pop()  # the clock was set back
        while recent and recent[0] < now - 1.0:
            recent.popleft()
        if len(recent) + 1 >= self._limit:
            return False
        recent.append(now)
        self.most_1s = max(self.most_1s, len(recent))
        self._first, self._last = (self._first if self._count else now), now
        self._count += 1
        return True


class MavlinkClient(UdpEndpoint):
    """The pilot's MAVLink socket. The simulator is the first autopilot received, see `link.sockets`; all others are ignored."""

    def __init__(
        self, host: str, port: int, profile: Profile, peer: Address | None = None, key: SigningKey | None = None
    ):
        """
        Args:
            peer: required address of the simulator, as from `parse_peer`; None: anywhere.
            key: signing key of all messages.

        Raises:
            LinkError: host:port cannot be bound.
        """
        super().__init__(host, port, MAVLINK_BUFFER_BYTES)
        self.counters = ClientCounters()
        self._wanted = peer or ("", 0)
        self._peer = Peer(*self._wanted, (profile.system, profile.component))
        self._codec = ClientCodec(profile, self.counters, key)
        knocked = self._wanted[0] or LOOPBACK, self._wanted[1] or profile.simulator_port
        self._door = knocked if profile.offboard is not None else None  # PX4 only sends to clients that it has received
        self.rates = RateGuard(profile.command_limit_hz)  # of the set-points sent
        self._heartbeat_s = 1 / max(profile.client_heartbeat_hz, LEAST_HEARTBEAT_HZ)
        self._heartbeat_due = self._timesync_due = -math.inf

    @property
    def peer(self) -> Address | None:
        """The simulator's address, once known."""
        return self._peer.address

    @property
    def where(self) -> str:
        """The local address, human-readable."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def refused(self) -> str:
        """Remark on messages that were refused by their signatures; empty if none were."""
        return f"; {self._codec.refused}" if self._codec.refused else ""

    @property
    def knocking(self) -> Address | None:
        """Address that is contacted first, for a simulator that does not send first; else None."""
        return self._door if self.peer is None else None

    @property
    def host(self) -> str:
        """The simulator's host as far as known, else empty."""
        return self.peer[0] if self.peer is not None else self._wanted[0]

    def reconsider(self, now: float, complete: bool) -> bool:
        """Return whether the simulator was released or replaced, see `Peer.reconsider`; `now` monotonic, s."""
        return self._peer.reconsider(now, complete)

    def receive(self, timeout_s: float) -> list[tuple[float, Telemetry | TimesyncReply]]:
        """Return all messages with their time of reception (monotonic, s); wait at most timeout_s for the first datagram."""
        arrivals: list[tuple[float, Telemetry | TimesyncReply]] = []
        received = 0.0
        for datagram, sender, received in self.drain(timeout_s):
            if not self._peer.may_speak(sender):
                self.counters.foreign += 1
                continue
            messages = self._codec.decode(datagram, partial(self._admits, sender, received))
            arrivals += [(received, message) for message in messages]
        for reply in self._codec.timesync_replies(received):
            if self.peer is not None:
                self._transmit(reply)
        self.counters.socket_errors = self.socket_errors
        return arrivals

    def _admits(self, sender: Address, received: float, packet: Any) -> bool:
        admitted = self._peer.admits(packet, sender, received)
        self.counters.foreign += not admitted
        return admitted

    def send(self, command: Command, now: float, t: float) -> bool:
        """Send a command at `now` (monotonic, s), stamped t (s, simulator's clock). False, and counted, if it is withheld.

        Withheld are set-points above the rate limit or not finite, and all commands before the simulator is known.
        """
        if self.peer is None or not finite(command):
            self.counters.unsent += 1
            return False
        if isinstance(command, SetPoint) and not self.rates.admit(now):
            self.counters.rate_limited += 1
            return False
        return self._transmit(self._codec.encode(command, t))

    def keep_alive(self, now: float) -> None:
        """Send a heartbeat when one is due, and request PX4's streams; call often."""
        if (self.peer or self._door) is not None and now >= self._heartbeat_due:
            self._heartbeat_due = now + self._heartbeat_s
            self._transmit(self._codec.heartbeat())
        if self.peer is not None:
            for request in self._codec.requests(now):
                self._transmit(request)

    def ask_time(self, now: float) -> None:
        """Send a TIMESYNC request when one is due; call often. A simulator need not reply."""
        if self.peer is not None and now >= self._timesync_due:
            self._timesync_due = now + TIMESYNC_S
            self._transmit(self._codec.timesync(now))

    def hold(self, t: float) -> None:
        """Let a simulator in lock-step continue without a command for the sample stamped t (s)."""
        if self.peer is not None:
            self._transmit(self._codec.hold(t))

    def _transmit(self, datagram: bytes) -> bool:
        target = self.peer or self._door
        assert target is not None
        sent = self.transmit(datagram, target)
        self.counters.socket_errors = self.socket_errors
        return sent


def finite(command: Command) -> bool:
    """Return whether all numbers of a command are finite; a flight controller's response to others is undefined."""
    values: tuple[float | None, ...] = ()
    if isinstance(command, AttitudeTarget):
        values = (*command.q_wb, *command.omega, command.throttle)
    elif isinstance(command, PositionTarget):
        values = (*command.p, *command.v, *command.a, command.yaw, command.yaw_rate)
    return all(value is None or math.isfinite(value) for value in values)


class VideoReceiver(UdpEndpoint):
    """The pilot's video socket."""

    def __init__(self, host: str, port: int):
        """Bind the socket. Raises LinkError when host:port cannot be bound."""
        super().__init__(host, port, VIDEO_BUFFER_BYTES)
        self._host = ""
        self._images = image_reassembler()

    @property
    def successor(self) -> Callable[[], "VideoReceiver"]:
        """Function that opens a receiver in this one's place, once it is closed: at its port, chosen by the system or not."""
        return partial(VideoReceiver, *self.address)

    def accept_only(self, host: str) -> None:
        """Accept only datagrams of a numeric host from now on; empty for any."""
        self._host = host

    @property
    def counters(self) -> StreamCounters:
        """Counters of the video stream."""
        return self._images.counters

    def receive(self, timeout_s: float) -> list[tuple[VideoFrame, float]]:
        """Return the frames completed, with the reception (monotonic, s) of the last datagram; wait at most timeout_s."""
        frames = []
        for datagram, sender, received in self.drain(timeout_s):
            if self._host not in ("", sender[0]):
                self.counters.foreign += 1
                continue
            frame = self._images.feed(datagram)
            if frame is not None:
                frames.append((frame, received))
        return frames
