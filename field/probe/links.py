"""Raw links over UDP: messages as on the wire, with their time of arrival; no convention is applied."""

import math
import select
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.mavlink import CLIENT, Counters, Framing, timesync_request
from gate_racer.link.messages import ARM_COMMAND, RaceStatus, VideoFrame
from gate_racer.link.options import Link
from gate_racer.link.profile import Profile
from gate_racer.link.race import RaceReader
from gate_racer.link.sockets import Address, Closing, LinkError, Peer, UdpEndpoint
from gate_racer.link.video import HEADER, image_reassembler

HEARTBEAT_S = 0.25  # s between heartbeats
TIMESYNC_S = 0.5  # s between requests
ARM_S = 0.5  # s between arm commands
POLL_S = 0.05  # s
AFTER_GO_S = 0.4  # s of listening after GO, to see whether it disarms
GROUND_STATION, NO_AUTOPILOT = dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID
Arrival = tuple[float, Any]  # s of the local clock, and a message of pymavlink
ArrivedFrame = tuple[float, VideoFrame]
HANDSHAKE, RACE = "DATA_TRANSMISSION_HANDSHAKE", "ENCAPSULATED_DATA"


@dataclass
class ReceivedMessages:
    """Messages received in an interval. Times of arrival in s of the local clock."""

    seconds: float
    messages: dict[str, list[Arrival]] = field(default_factory=dict)  # by type: arrival, pymavlink message
    images: list[tuple[float, int, int]] = field(default_factory=list)  # arrival of a last chunk, frame_id, sim_time_ns
    race: list[tuple[float, RaceStatus]] = field(default_factory=list)
    armed_early: bool | None = None  # arming succeeded before a start was published; None: not tried
    chunk_bytes: int = 0
    components: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __getitem__(self, kind: str) -> list[Arrival]:
        return self.messages.get(kind, [])

    @property
    def go(self) -> bool:
        """Whether a start that was announced has passed; True as well if no race is reported."""
        statuses = [status for _, status in self.race]
        return not statuses or (statuses[-1].go and any(not status.go for status in statuses))


class RawLink(Closing):
    """One end of a raw link in real time, to the sender of the first HEARTBEAT; before it only to a peer whose port is named."""

    def __init__(self, link: Link):
        self.framing = Framing(*CLIENT, Counters(), link.key)
        self._race, self._images = RaceReader(), image_reassembler()
        self._peer = Peer(*(link.peer or ("", 0)))
        self._door = link.peer if link.peer is not None and link.peer[1] else None
        self.target = (1, 0)
        self._heartbeat_t = self._timesync_t = self._arm_t = -math.inf  # s, last of each sent
        self._in_tc1 = False  # whether the last TIMESYNC request was of this form, which makes its stamp odd
        self._link = UdpEndpoint(*link.mavlink)
        try:
            self._video = UdpEndpoint(*link.video)
        except LinkError:
            self._link.close()
            raise

    def close(self) -> None:
        self._link.close()
        self._video.close()

    @property
    def peer(self) -> Address | None:
        return self._peer.address

    @property
    def address(self) -> str:
        return f"{self._link.address[0]}:{self._link.address[1]}"

    def on_its_ports(self, profile: Profile) -> Profile:
        """Return the profile with the UDP ports of this link."""
        own, video = self._link.address[1], self._video.address[1]
        theirs = self.peer[1] if self.peer is not None else profile.simulator_port
        return replace(profile, mavlink_port=own, simulator_port=theirs, video_port=video)

    def now(self) -> float:
        return time.monotonic()

    def poll(self, received: ReceivedMessages, timeout_s: float = POLL_S) -> tuple[list[Arrival], list[ArrivedFrame]]:
        """Receive into `received`; return the new messages and complete images with their times of arrival, s."""
        select.select([self._link.socket, self._video.socket], [], [], timeout_s)
        messages = [one for data, sender, _ in self._link.drain() for one in self._messages(received, data, sender)]
        frames = [one for data, _, _ in self._video.drain() for one in self._image(received, self.now(), data)]
        return messages, frames

    def keep_alive(self, now: float) -> None:
        if now - self._heartbeat_t > HEARTBEAT_S:
            self._heartbeat_t = now
            self.send(dialect.MAVLink_heartbeat_message(GROUND_STATION, NO_AUTOPILOT, 0, 0, 0, 3))
        if now - self._timesync_t > TIMESYNC_S:
            self._timesync_t = now
            self._in_tc1 = not self._in_tc1
            self.send(timesync_request(round(now * 1e9) & ~1 | self._in_tc1, self._in_tc1))

    def send(self, message: Any) -> None:
        if (to := self.peer or self._door) is not None:
            self.transmit(self.framing.pack(message), to)

    def transmit(self, datagram: bytes, peer: Address) -> None:
        self._link.transmit(datagram, peer)

    def arm(self, now: float, arm: bool = True) -> None:
        """Arm, with repeats at intervals; or disarm at once."""
        if not arm or now - self._arm_t > ARM_S:
            self._arm_t = now
            parameters = (float(arm), *[0.0] * 6)
            self.send(dialect.MAVLink_command_long_message(*self.target, ARM_COMMAND, 0, *parameters))

    def _messages(self, received: ReceivedMessages, data: bytes, sender: Address) -> list[Arrival]:
        if not self._peer.may_speak(sender):
            return []
        unpacked = [packet for packet in self.framing.unpack(data) if self._peer.admits(packet, sender, self.now())]
        self._video.only_host = self.peer[0] if self.peer is not None else ""
        now = self.now()
        messages = [(now, message) for message in unpacked]
        for _, message in messages:
            self.target = message.get_srcSystem(), message.get_srcComponent()
            received.messages.setdefault(message.get_type(), []).append((now, message))
            received.components[self.target] += 1
            if message.get_type() == HANDSHAKE:
                self._race.handshake(message)
            elif message.get_type() == RACE and isinstance(news := self._race.read(message, now), RaceStatus):
                received.race.append((now, news))
        return messages

    def _image(self, received: ReceivedMessages, now: float, data: bytes) -> list[ArrivedFrame]:
        if len(data) >= HEADER.size:
            frame_id, chunk_id, total, _, payload, stamp_ns = HEADER.unpack_from(data)
            received.chunk_bytes = max(received.chunk_bytes, payload)
            if chunk_id == total - 1:
                received.images.append((now, frame_id, stamp_ns))
        frame = self._images.feed(data)
        return [] if frame is None else [(now, frame)]


def listen(link: RawLink, seconds: float, wait_s: float, to_fly: bool = False) -> ReceivedMessages:
    """Wait for a first message, then record everything for `seconds`. Sends heartbeats and TIMESYNC only.

    `to_fly` it also waits for the start of an announced race, at most wait_s longer, and arms while there is a race without a
    start yet, to test whether its start disarms. Raises LinkError if no message arrives in time.
    """
    received, begin = ReceivedMessages(seconds), link.now()
    while link.peer is None:
        if link.now() - begin > wait_s:
            why = link.framing.why_refused or "is the simulator in a race?"
            raise LinkError(f"no MAVLink within {wait_s:g} s on {link.address}: {why}")
        link.poll(received)
        link.keep_alive(link.now())
    received.images.clear()
    begin = link.now()
    go_t = math.inf
    while (now := link.now()) < begin + seconds or (
        to_fly and now < go_t + AFTER_GO_S and now < begin + seconds + wait_s
    ):
        link.poll(received)
        go_t = min(go_t, now) if received.go else math.inf
        link.keep_alive(now)
        if to_fly and received.race and received.race[-1][1].start is None:
            received.armed_early = bool(received.armed_early)
            link.arm(now)
        if received.armed_early is False and received["HEARTBEAT"] and is_armed(received["HEARTBEAT"][-1][1]):
            received.armed_early = True
    received.seconds = now - begin
    return received


def is_armed(heartbeat: Any) -> bool:
    return bool(heartbeat.base_mode & dialect.MAV_MODE_FLAG_SAFETY_ARMED)
