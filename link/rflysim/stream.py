"""Stream of one sensor: datagrams in, decoded samples out; unusable input is counted and reported once.

Frames come in datagrams, whose header has two generations, distinguished by `check_sum` ("1.1 Communication Packet Header").
The sensor type is not transmitted: it follows from the port and the Config.json.
"""

import struct
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from gate_racer.link.reassembly import RESTART_S, Chunk, MalformedError, Reassembler
from gate_racer.link.rflysim.payloads import (
    Cloud,
    Image,
    Range,
    decode_cloud,
    decode_payload,
    decode_range,
)
from gate_racer.link.rflysim.request import SENSORS, SensorRequest
from gate_racer.link.sockets import Address

CHECK_SUM, PLAIN_SUM, NUMBERED_SUM = struct.Struct("<i"), 1234567890, 1234567893
PLAIN = struct.Struct("<4id")  # check_sum, pkg_len, pkg_id, pkg_num, time_stamp
NUMBERED = struct.Struct("<6id")  # check_sum, pkg_len, pkg_id, pkg_num, frame_id, reserved, time_stamp
LAYOUTS = {PLAIN_SUM: PLAIN, NUMBERED_SUM: NUMBERED}
STAMP_MAX_S = 9e9  # s, largest time of a nanosecond count in 64 bit
CHUNK_BYTES = 60_000  # as in the SDK; 1400 suits WSL and real networks
MOST_BEHIND = 64  # range of frame_ids that are late
MOST_PARTS = 1 << 15  # datagrams of a frame


@dataclass(frozen=True, slots=True)
class Payload:
    """One complete frame of a sensor, not decoded."""

    t: float  # s of simulation time, at the exposure
    frame_id: int | None  # signed, 32 bit; None: older generation
    data: bytes


def fragments(payload: Payload, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Return the datagrams of a frame. As in the SDK, a multiple of chunk_bytes ends with a datagram that is only a header."""
    check_sum, number = (PLAIN_SUM, ()) if payload.frame_id is None else (NUMBERED_SUM, (payload.frame_id, 0))
    layout, parts, datagrams = LAYOUTS[check_sum], len(payload.data) // chunk_bytes + 1, []
    for part in range(parts):
        chunk = payload.data[part * chunk_bytes : (part + 1) * chunk_bytes]
        datagrams.append(layout.pack(check_sum, layout.size + len(chunk), part, parts, *number, payload.t) + chunk)
    return datagrams


def read_fragment(datagram: bytes) -> Chunk:
    """Decode one datagram. Raises MalformedError.

    `pkg_len` is the datagram's length, as with all known senders, or the whole frame's, as in the document: of its data alone,
    with one header, or with all of them.
    """
    if len(datagram) < CHECK_SUM.size:
        raise MalformedError(f"{len(datagram)} bytes are shorter than a header")
    (check_sum,) = CHECK_SUM.unpack_from(datagram)
    layout = LAYOUTS.get(check_sum)
    if layout is None:
        raise MalformedError(f"check_sum {check_sum} is neither {PLAIN_SUM} nor {NUMBERED_SUM}")
    if len(datagram) < layout.size:
        raise MalformedError(f"{len(datagram)} bytes are shorter than the header of {layout.size}")
    _, length, part, parts, *number, t = layout.unpack_from(datagram)
    if not 0 <= part < parts <= MOST_PARTS:
        raise MalformedError(f"packet {part} of {parts}, of {MOST_PARTS} at most")
    if not abs(t) <= STAMP_MAX_S:
        raise MalformedError(f"time_stamp {t:g} s is not a valid time")
    chunk = datagram[layout.size :]
    if length != len(datagram) and (length < len(chunk) or (parts == 1 and length != len(chunk))):
        raise MalformedError(f"pkg_len {length} in a datagram of {len(datagram)} bytes")
    sizes = () if length == len(datagram) else (length, length - layout.size, length - layout.size * parts)
    return Chunk(t, number[0] if number else None, part, parts, chunk, sizes)


def fragment_reassembler(
    max_frames: int = 3, max_frame_bytes: int = 32 << 20, timeout_s: float = 0.5
) -> Reassembler[Payload]:
    """Return a reassembler of frames, bounded as `Reassembler` says."""
    return Reassembler(read_fragment, Payload, _straggles, max_frames, max_frame_bytes, timeout_s)


def _straggles(chunk: Chunk, newest: Chunk) -> bool:
    """Return whether a frame is not newer than the newest one, and not from a restarted simulation."""
    if (chunk.frame_id is None) != (newest.frame_id is None) or newest.t - chunk.t > RESTART_S:
        return False
    if chunk.frame_id is None or newest.frame_id is None:
        return chunk.t <= newest.t
    behind = (newest.frame_id - chunk.frame_id) & 0xFFFFFFFF  # the count wraps
    return behind < MOST_BEHIND and chunk.t <= newest.t  # a later exposure with a lower number: the count restarted


Value = Image | Cloud | Range | bytes  # bytes: of an image file
Tell = Callable[[str], None]
MOST_TOPICS = 20  # per stream
MILESTONES = {10**n for n in range(7)}  # occurrences that are reported


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Measurement of a sensor at t (s, simulation time)."""

    sensor: SensorRequest
    t: float
    frame_id: int | None
    value: Value


class RateLimitedReporter:
    """Reporter of events at their first, tenth, hundredth ... occurrence, for at most `MOST_TOPICS` topics."""

    def __init__(self, tell: Tell, name: str):
        self._tell, self._name, self._times = tell, name, Counter[str]()

    def __call__(self, topic: str, text: str) -> None:
        """Count an event on a topic, and report it if due."""
        if topic not in self._times and len(self._times) == MOST_TOPICS:
            return
        self._times[topic] += 1
        times = self._times[topic]
        if times in MILESTONES:
            often = f" ({times} times so far)" if times > 1 else ""
            self._tell(f"rflysim: {self._name}: {text}{often}")


class Stream:
    """Decoder of one stream."""

    def __init__(self, sensor: SensorRequest, tell: Tell, read: Callable[[bytes], Value]):
        """Create it; `read` decodes a frame, or raises MalformedError."""
        self.sensor, self.read, self.health = sensor, read, StreamHealth()
        self.say = RateLimitedReporter(
            tell, f"sensor {sensor.seq_id} ({SENSORS[sensor.type_id].name}), port {sensor.port}"
        )
        self._fragments = fragment_reassembler()
        self.counters = self._fragments.counters

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Sample | None:
        """Process a datagram at `now` (s, monotonic); return the sample that it completes."""
        before = self.counters.malformed
        payload = self._fragments.feed(datagram, source, now)
        if self.counters.malformed > before:
            self.say("malformed", f"dropped a datagram: {self._fragments.reason}; further ones are only counted")
        if payload is None:
            return None
        try:
            value = self.read(payload.data)
        except MalformedError as error:
            self.counters.unreadable += 1
            self.say("unreadable", f"dropped a frame: {error}; further ones are only counted")
            return None
        self.health.saw(now)
        return Sample(self.sensor, payload.t, payload.frame_id, value)


def reader(sensor: SensorRequest) -> Callable[[bytes], Value]:
    """Return the decoder of a sensor's frames."""
    if SENSORS[sensor.type_id].encoding:
        return partial(decode_payload, sensor=sensor)
    return partial(decode_cloud, sensor=sensor) if SENSORS[sensor.type_id].axes else decode_range


class StreamHealth:
    """Rate, gaps and age of a stream, by times of arrival."""

    def __init__(self) -> None:
        self.frames, self.longest_gap_s, self.shortest_gap_s, self.gap_s = 0, 0.0, 0.0, 0.0
        self._first = self._last = 0.0

    def saw(self, now: float) -> None:
        """Record a frame at `now`, s."""
        if self.frames:
            self.gap_s = max(now - self._last, 0.0)
            self.longest_gap_s = max(self.longest_gap_s, self.gap_s)
            self.shortest_gap_s = min(self.shortest_gap_s, self.gap_s) if self.frames > 1 else self.gap_s
        else:
            self._first = now
        self.frames += 1
        self._last = now

    @property
    def hz(self) -> float:
        """Mean rate so far, Hz."""
        return (self.frames - 1) / (self._last - self._first) if self._last > self._first else 0.0

    def report(self, now: float, what: str, server: Address) -> str:
        """Return a line on the state of a stream of `what` from a server."""
        age = self.age(now)
        if age is None:
            return f"no {what} yet from {server[0]}:{server[1]}"
        return f"{self.frames} {what}s, {self.hz:.1f} Hz, gap {self.longest_gap_s:.2f} s, age {age:.2f} s"

    def age(self, now: float) -> float | None:
        """Return the time (s) since the last frame, at least 0; None before the first."""
        return max(now - self._last, 0.0) if self.frames else None
