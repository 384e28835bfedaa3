"""Frames in datagrams: the header in its two generations, fragmentation and reassembly.

Header of a datagram in its two generations, distinguished by `check_sum` ("1.1 Communication Packet Header").

The sensor type is not transmitted: it follows from the port and the Config.json.

Fragmentation of frames into datagrams, and reassembly by source, frame and `pkg_id`, whatever the network did.
"""

import struct
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from gate_racer.link.rflysim.request import MalformedError

PLAIN_SUM, NUMBERED_SUM = 1234567890, 1234567893
PLAIN = struct.Struct("<4id")  # check_sum, pkg_len, pkg_id, pkg_num, time_stamp
NUMBERED = struct.Struct("<6id")  # check_sum, pkg_len, pkg_id, pkg_num, frame_id, reserved, time_stamp
CHECK_SUM = struct.Struct("<i")
STAMP_MAX_S = 9e9  # s, largest time of a nanosecond count in 64 bit


@dataclass(frozen=True, slots=True)
class Header:
    """Header; `length` is that of the datagram including the header; frame_id None: older generation."""

    length: int
    part: int  # pkg_id
    parts: int  # pkg_num
    t: float  # s of simulation time, at the exposure
    frame_id: int | None = None  # signed, 32 bit
    reserved: int = 0

    @property
    def size(self) -> int:
        """Bytes of the header itself."""
        return PLAIN.size if self.frame_id is None else NUMBERED.size

    def encode(self) -> bytes:
        """Return the bytes of the header."""
        counted = self.length, self.part, self.parts
        if self.frame_id is None:
            return PLAIN.pack(PLAIN_SUM, *counted, self.t)
        return NUMBERED.pack(NUMBERED_SUM, *counted, self.frame_id, self.reserved, self.t)


def decode_header(datagram: bytes) -> Header:
    """Decode the header of a datagram, and check all except `length`.

    Raises:
        MalformedError: no header, or an impossible one.
    """
    if len(datagram) < CHECK_SUM.size:
        raise MalformedError(f"{len(datagram)} bytes are shorter than a header")
    (check_sum,) = CHECK_SUM.unpack_from(datagram)
    layout = {PLAIN_SUM: PLAIN, NUMBERED_SUM: NUMBERED}.get(check_sum)
    if layout is None:
        raise MalformedError(f"check_sum {check_sum} is neither {PLAIN_SUM} nor {NUMBERED_SUM}")
    if len(datagram) < layout.size:
        raise MalformedError(f"{len(datagram)} bytes are shorter than the header of {layout.size}")
    _, length, part, parts, *rest = layout.unpack_from(datagram)
    frame_id, reserved = rest[:2] if layout is NUMBERED else (None, 0)
    if not 0 <= part < parts:
        raise MalformedError(f"packet {part} of {parts}")
    if not abs(rest[-1]) <= STAMP_MAX_S:
        raise MalformedError(f"time_stamp {rest[-1]:g} s is not a valid time")
    return Header(length, part, parts, rest[-1], frame_id, reserved)


CHUNK_BYTES = 60_000  # as in the SDK; 1400 suits WSL and real networks
RESTART_S = 1.0  # s, beyond which an older stamp means a restarted simulation instead of a late datagram
REMEMBERED = 64  # complete frames whose repeats are recognised, and the range of late frame_ids
MOST_SOURCES = 8  # senders with incomplete frames

Key = int | float  # frame_id, or the stamp in the older generation


@dataclass(frozen=True, slots=True)
class Payload:
    """One complete frame of a sensor, not decoded."""

    t: float  # s of simulation time
    frame_id: int | None
    data: bytes


def fragments(payload: Payload, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Return the datagrams of a frame. As in the SDK, a multiple of chunk_bytes ends with a datagram that is only a header."""
    size = PLAIN.size if payload.frame_id is None else NUMBERED.size
    parts, datagrams = len(payload.data) // chunk_bytes + 1, []
    for part in range(parts):
        chunk = payload.data[part * chunk_bytes : (part + 1) * chunk_bytes]
        header = Header(size + len(chunk), part, parts, payload.t, payload.frame_id)
        datagrams.append(header.encode() + chunk)
    return datagrams


@dataclass(slots=True)
class FragmentCounters:
    """Counts of a `FragmentReassembler`: datagrams, except `complete` and `evicted`."""

    complete: int = 0  # frames
    evicted: int = 0  # frames dropped incomplete
    duplicate: int = 0  # repeated fragments, or fragments of a completed frame
    malformed: int = 0  # no header, or an impossible one
    inconsistent: int = 0  # contradicts the other fragments of its frame
    late: int = 0  # fragments of a frame older than the newest complete one


@dataclass(slots=True)
class _PartialFrame:
    """An incomplete frame."""

    header: Header
    since: float
    chunks: dict[int, bytes] = field(default_factory=dict)  # by pkg_id
    size: int = 0
    stated: int | None = None  # bytes of the frame, where pkg_len means those

    def lengths(self) -> tuple[int, ...]:
        """Return the possible pkg_len of the whole frame: data alone, with one header, or with all of them."""
        header = self.header.size
        return self.size, self.size + header, self.size + header * self.header.parts


@dataclass(slots=True)
class _Source:
    """One sender and its incomplete frames, the oldest first."""

    partials: dict[Key, _PartialFrame] = field(default_factory=dict)
    completed: deque[Key] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    newest: Header | None = None  # newest complete frame


class FragmentReassembler:
    """Reassembly of fragments to frames in any order, each frame once and never after a newer one. Never raises."""

    def __init__(
        self,
        max_frames: int = 3,
        max_frame_bytes: int = 32 << 20,
        max_parts: int = 1 << 15,
        timeout_s: float = 0.5,
    ):
        """Create it. Memory is bounded: at most max_frames incomplete frames of max_frame_bytes, for each of a few sources.

        Args:
            timeout_s: s, after which an incomplete frame is dropped.
        """
        self.counters, self.reason = FragmentCounters(), ""  # reason why the last datagram was malformed
        self._max_frames, self._max_frame_bytes, self._max_parts = max_frames, max_frame_bytes, max_parts
        self._timeout_s = timeout_s
        self._sources: dict[Hashable, _Source] = {}  # the source silent for longest first

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Payload | None:
        """Process one datagram at `now` (s, monotonic). `source`: sender and local port. Return the frame that it completes."""
        try:
            header = decode_header(datagram)
            chunk = datagram[header.size :]
            self._require(header, len(datagram))
        except MalformedError as error:
            self.counters.malformed += 1
            self.reason = str(error)
            return None
        stream = self._stream(source)
        self._expire(stream, now)
        key: Key = header.t if header.frame_id is None else header.frame_id
        if not self._wanted(stream, key, header):
            return None
        partial = stream.partials.get(key) or self._open(stream, key, _PartialFrame(header, now))
        if (partial.header.parts, partial.header.t) != (header.parts, header.t):
            self.counters.inconsistent += 1
            return None
        if header.part in partial.chunks:
            self.counters.duplicate += 1
            return None
        if header.length != len(datagram) and partial.stated not in (None, header.length):
            self.counters.inconsistent += 1
            return None
        if header.length != len(datagram):
            partial.stated = header.length
        partial.chunks[header.part] = chunk
        partial.size += len(chunk)
        if partial.size > self._max_frame_bytes:
            self.counters.inconsistent += 1
            self._give_up(stream, key)
            return None
        if len(partial.chunks) < header.parts:
            return None
        if partial.stated is not None and partial.stated not in partial.lengths():
            self.counters.inconsistent += 1
            self._give_up(stream, key)
            return None
        return self._close(stream, key, partial)

    def _require(self, header: Header, length: int) -> None:
        """Check that `pkg_len` is the datagram's length, as with all known senders, or the whole frame's, as in the document."""
        data = length - header.size
        if header.length != length and (header.length < data or (header.parts == 1 and header.length != data)):
            raise MalformedError(f"pkg_len {header.length} in a datagram of {length} bytes")
        if header.parts > self._max_parts:
            raise MalformedError(f"a frame of {header.parts} packets, more than {self._max_parts}")

    def _stream(self, source: Hashable) -> _Source:
        stream = self._sources.pop(source, None) or _Source()
        if len(self._sources) == MOST_SOURCES:
            silent = self._sources.pop(next(iter(self._sources)))
            self.counters.evicted += len(silent.partials)
        self._sources[source] = stream
        return stream

    def _expire(self, stream: _Source, now: float) -> None:
        for key in [key for key, partial in stream.partials.items() if now - partial.since > self._timeout_s]:
            self._give_up(stream, key)

    def _wanted(self, stream: _Source, key: Key, header: Header) -> bool:
        """Return whether a frame may still be delivered; count it if not."""
        newest = stream.newest
        if newest is None or not _straggles(header, newest):
            return True
        if key in stream.completed:
            self.counters.duplicate += 1
        else:
            self.counters.late += 1
        return False

    def _open(self, stream: _Source, key: Key, partial: _PartialFrame) -> _PartialFrame:
        if len(stream.partials) == self._max_frames:
            self._give_up(stream, next(iter(stream.partials)))
        stream.partials[key] = partial
        return partial

    def _close(self, stream: _Source, key: Key, partial: _PartialFrame) -> Payload:
        del stream.partials[key]
        header, stream.newest = partial.header, partial.header
        stream.completed.append(key)
        for older in [k for k, other in stream.partials.items() if _straggles(other.header, header)]:
            self._give_up(stream, older)
        self.counters.complete += 1
        return Payload(header.t, header.frame_id, b"".join(partial.chunks[n] for n in range(header.parts)))

    def _give_up(self, stream: _Source, key: Key) -> None:
        del stream.partials[key]
        self.counters.evicted += 1


def _straggles(header: Header, newest: Header) -> bool:
    """Return whether a frame is not newer than the newest one, and not from a restarted simulation."""
    if (header.frame_id is None) != (newest.frame_id is None) or newest.t - header.t > RESTART_S:
        return False
    if header.frame_id is None or newest.frame_id is None:
        return header.t <= newest.t
    behind = (newest.frame_id - header.frame_id) & 0xFFFFFFFF  # the count wraps
    return behind < REMEMBERED and header.t <= newest.t  # a later exposure with a lower number: the count restarted
