"""Reassembly of frames from the datagrams of a stream, whatever the network does; shared by all image protocols."""

import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

REMEMBERED = 16  # complete frames whose repeats are recognised; they are more recent than a restart
RESTART_S = 1.0  # s, beyond which an older stamp means a restarted stream instead of a late datagram
MOST_SOURCES = 8  # senders with incomplete frames

Key = tuple[float, int | None]  # stamp and number of a frame
F = TypeVar("F")


class MalformedError(ValueError):
    """Bytes that are not what their stream carries; the message gives the reason. The receiver catches and counts it."""


@dataclass(slots=True)
class StreamCounters:
    """Counts of what a stream has dropped: datagrams, except `evicted` and `unreadable`."""

    evicted: int = 0  # frames dropped incomplete
    duplicate: int = 0  # repeated chunks, or chunks of a completed frame
    malformed: int = 0  # no header, or an impossible one
    inconsistent: int = 0  # contradicts the other chunks of its frame
    late: int = 0  # chunks of a frame older than the newest complete one
    foreign: int = 0  # datagrams from hosts other than the server
    unreadable: int = 0  # frames that were complete but could not be decoded


@dataclass(frozen=True, slots=True)
class Chunk:
    """One datagram of a frame."""

    t: float  # s, stamp of the frame
    frame_id: int | None  # None where frames are not numbered
    part: int  # from 0
    parts: int
    data: bytes
    sizes: tuple[int, ...] = ()  # bytes that the whole frame may have; empty where the datagram does not tell

    @property
    def key(self) -> Key:
        """What identifies its frame."""
        return self.t, self.frame_id


@dataclass(slots=True)
class _Partial:
    """An incomplete frame."""

    first: Chunk
    since: float
    sizes: tuple[int, ...] = ()
    data: dict[int, bytes] = field(default_factory=dict)  # by part
    size: int = 0


@dataclass(slots=True)
class _Source:
    """One sender and its incomplete frames, the oldest first."""

    partials: dict[Key, _Partial] = field(default_factory=dict)
    completed: deque[Key] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    newest: Chunk | None = None  # of the newest complete frame


class Reassembler(Generic[F]):
    """Reassembly of chunks to frames in any order, each frame once and never after a newer one. Never raises."""

    def __init__(
        self,
        read: Callable[[bytes], Chunk],
        make: Callable[[float, int | None, bytes], F],
        straggles: Callable[[Chunk, Chunk], bool],
        max_frames: int,
        max_frame_bytes: int,
        timeout_s: float = math.inf,
    ):
        """Create it. Memory is bounded: at most max_frames incomplete frames of max_frame_bytes, for each of a few sources.

        Args:
            read: decodes one datagram, or raises MalformedError.
            make: creates a frame of its stamp (s), number and bytes.
            straggles: whether a chunk's frame is not newer than another, and not of a restarted stream.
            timeout_s: s, after which an incomplete frame is dropped.
        """
        self.counters, self.reason = StreamCounters(), ""  # reason why the last datagram was malformed
        self._read, self._make, self._straggles = read, make, straggles
        self._max_frames, self._max_frame_bytes, self._timeout_s = max_frames, max_frame_bytes, timeout_s
        self._sources: dict[Hashable, _Source] = {}  # the source silent for longest first

    def feed(self, datagram: bytes, source: Hashable = None, now: float = 0.0) -> F | None:
        """Process one datagram at `now` (s, monotonic). `source`: sender and local port. Return the frame that it completes."""
        try:
            chunk = self._read(datagram)
            if chunk.sizes and min(chunk.sizes) > self._max_frame_bytes:
                raise MalformedError(f"a frame of {min(chunk.sizes)} bytes, more than {self._max_frame_bytes}")
        except MalformedError as error:
            self.counters.malformed += 1
            self.reason = str(error)
            return None
        stream = self._stream(source)
        for key in [key for key, partial in stream.partials.items() if now - partial.since > self._timeout_s]:
            self._give_up(stream, key)
        if not self._wanted(stream, chunk):
            return None
        partial = stream.partials.get(chunk.key) or self._open(stream, _Partial(chunk, now))
        if partial.first.parts != chunk.parts or (partial.sizes and chunk.sizes and partial.sizes != chunk.sizes):
            self.counters.inconsistent += 1
            return None
        if chunk.part in partial.data:
            self.counters.duplicate += 1
            return None
        partial.data[chunk.part] = chunk.data
        partial.sizes, partial.size = partial.sizes or chunk.sizes, partial.size + len(chunk.data)
        complete = len(partial.data) == chunk.parts
        if partial.size > max(partial.sizes, default=self._max_frame_bytes) or (
            complete and partial.sizes and partial.size not in partial.sizes
        ):
            self.counters.inconsistent += 1
            del stream.partials[chunk.key]
            return None
        return self._close(stream, partial) if complete else None

    def _stream(self, source: Hashable) -> _Source:
        stream = self._sources.pop(source, None) or _Source()
        if len(self._sources) == MOST_SOURCES:
            silent = self._sources.pop(next(iter(self._sources)))
            self.counters.evicted += len(silent.partials)
        self._sources[source] = stream
        return stream

    def _wanted(self, stream: _Source, chunk: Chunk) -> bool:
        """Return whether a chunk's frame may still be delivered; count it if not."""
        if chunk.key in stream.completed:
            self.counters.duplicate += 1
        elif stream.newest is not None and self._straggles(chunk, stream.newest):
            self.counters.late += 1
        else:
            return True
        return False

    def _open(self, stream: _Source, partial: _Partial) -> _Partial:
        if len(stream.partials) == self._max_frames:
            self._give_up(stream, next(iter(stream.partials)))
        stream.partials[partial.first.key] = partial
        return partial

    def _close(self, stream: _Source, partial: _Partial) -> F:
        first = stream.newest = partial.first
        del stream.partials[first.key]
        stream.completed.append(first.key)
        for key in [key for key, other in stream.partials.items() if self._straggles(other.first, first)]:
            self._give_up(stream, key)
        return self._make(first.t, first.frame_id, b"".join(partial.data[k] for k in range(first.parts)))

    def _give_up(self, stream: _Source, key: Key) -> None:
        del stream.partials[key]
        self.counters.evicted += 1
