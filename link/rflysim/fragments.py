"""Frames cut into datagrams, and put together again whatever the network did: by source and frame, by `pkg_id` within it."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from link.rflysim.header import NUMBERED, PLAIN, Header, decode_header
from link.rflysim.malformed import MalformedError

CHUNK_BYTES = 60_000  # as the SDK cuts; 1400 suits WSL and real networks
RESTART_S = 1.0  # a stamp older than this is no straggler: the simulation has begun anew
REMEMBERED = 64  # complete frames whose repeats are known, and how far back a frame_id is a straggler's
MOST_SOURCES = 8

Key = int | float  # frame_id, or the stamp of the generation without


@dataclass(frozen=True, slots=True)
class Payload:
    """One frame of a sensor, whole but not decoded."""

    t: float  # s of simulation time
    frame_id: int | None
    data: bytes


def fragments(payload: Payload, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """The datagrams of a frame. As from the SDK, a whole multiple of chunk_bytes ends in one that is only a header."""
    size = PLAIN.size if payload.frame_id is None else NUMBERED.size
    parts, datagrams = len(payload.data) // chunk_bytes + 1, []
    for part in range(parts):
        chunk = payload.data[part * chunk_bytes : (part + 1) * chunk_bytes]
        header = Header(size + len(chunk), part, parts, payload.t, payload.frame_id)
        datagrams.append(header.encode() + chunk)
    return datagrams


@dataclass(slots=True)
class FragmentCounters:
    """What a `FragmentReassembler` has done with what came: datagrams, but for `complete` and `evicted`."""

    complete: int = 0  # frames
    evicted: int = 0  # frames given up incomplete
    duplicate: int = 0  # of a fragment that is there, or of a frame that was complete
    malformed: int = 0  # no header, or one that cannot be true
    inconsistent: int = 0  # contradicts the other fragments of its frame
    late: int = 0  # of a frame older than the newest complete one


@dataclass(slots=True)
class _PartialFrame:
    """A frame on its way."""

    header: Header
    since: float
    chunks: dict[int, bytes] = field(default_factory=dict)  # by pkg_id
    size: int = 0
    stated: int | None = None  # bytes of the frame, where pkg_len means those

    def lengths(self) -> tuple[int, ...]:
        """What a pkg_len of the whole frame may be: data alone, with one header, or with all of them."""
        header = self.header.size
        return self.size, self.size + header, self.size + header * self.header.parts


@dataclass(slots=True)
class _Source:
    """One sender and what it has under way; the oldest frame first."""

    partials: dict[Key, _PartialFrame] = field(default_factory=dict)
    completed: deque[Key] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    newest: Header | None = None  # complete


class FragmentReassembler:
    """Joins fragments to frames in any order, each frame once and never after a newer one. Never raises."""

    def __init__(
        self,
        max_frames: int = 3,
        max_frame_bytes: int = 32 << 20,
        max_parts: int = 1 << 15,
        timeout_s: float = 0.5,
    ):
        """Memory is bounded: so many incomplete frames of each of a few sources, none larger than that.

        Args:
            timeout_s: after which an incomplete frame is given up.
        """
        self.counters, self.reason = FragmentCounters(), ""  # why the last datagram was malformed
        self._max_frames, self._max_frame_bytes, self._max_parts = max_frames, max_frame_bytes, max_parts
        self._timeout_s = timeout_s
        self._sources: dict[Hashable, _Source] = {}  # the one silent for longest first

    def feed(self, datagram: bytes, source: Hashable, now: float) -> Payload | None:
        """Takes one datagram at `now` (s, steady). `source` names sender and local port. Returns the frame that it completes."""
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
        """`pkg_len` is the datagram's length, as every known sender has it, or the whole frame's, as in the document."""
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
        """Whether a frame may still be delivered; if not, that counts."""
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
    """Whether a frame is the newest or comes after it though it is older, and not from a simulation begun anew."""
    if (header.frame_id is None) != (newest.frame_id is None) or newest.t - header.t > RESTART_S:
        return False
    if header.frame_id is None or newest.frame_id is None:
        return header.t <= newest.t
    behind = (newest.frame_id - header.frame_id) & 0xFFFFFFFF  # the count wraps
    return behind < REMEMBERED and header.t <= newest.t  # a later exposure with a lower number: counted anew
