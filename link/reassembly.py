"""Reassembly of frames from the datagrams of a stream, whatever the network does; shared by all image protocols."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

REMEMBERED = 16  # complete frames whose repeats are recognised; they are more recent than a restart
RESTART_S = 1.0  # s, beyond which an older stamp means a restarted stream instead of a late datagram

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
    t: float  # s, stamp of the frame
    frame_id: int | None  # None where frames are not numbered
    part: int  # from 0
    parts: int
    data: bytes
    size: int | None = None  # bytes of the whole frame; None where the datagram does not tell

    @property
    def key(self) -> Key:
        return self.t, self.frame_id


@dataclass(slots=True)
class _Partial:
    first: Chunk
    data: dict[int, bytes] = field(default_factory=dict)  # by part
    size: int = 0


class Reassembler(Generic[F]):
    """Reassembly of chunks to frames in any order, each frame once and never after a newer one. Never raises."""

    def __init__(
        self,
        read: Callable[[bytes], Chunk],
        make: Callable[[float, int | None, bytes], F],
        straggles: Callable[[Chunk, Chunk], bool],
        max_frames: int,
        max_frame_bytes: int,
    ):
        """Create it, of at most max_frames incomplete frames. `read` decodes a datagram, or raises MalformedError; `make`
        makes a frame of stamp (s), number and bytes; `straggles`: a chunk is not newer than another, nor of a restart.
        """
        self.counters, self.reason = StreamCounters(), ""  # reason why the last datagram was malformed
        self._read, self._make, self._straggles = read, make, straggles
        self._max_frames, self._max_frame_bytes = max_frames, max_frame_bytes
        self._partials: dict[Key, _Partial] = {}  # the oldest first
        self._completed: deque[Key] = deque(maxlen=REMEMBERED)
        self._newest: Chunk | None = None  # of the newest complete frame

    def feed(self, datagram: bytes) -> F | None:
        try:
            chunk = self._read(datagram)
            if (chunk.size or 0) > self._max_frame_bytes:
                raise MalformedError(f"a frame of {chunk.size} bytes, more than {self._max_frame_bytes}")
        except MalformedError as error:
            self.counters.malformed += 1
            self.reason = str(error)
            return None
        if chunk.key in self._completed:
            self.counters.duplicate += 1
            return None
        if self._newest is not None and self._straggles(chunk, self._newest):
            self.counters.late += 1
            return None
        return self._add(chunk)

    def _add(self, chunk: Chunk) -> F | None:
        partial = self._partials.get(chunk.key)
        if partial is None:
            if len(self._partials) == self._max_frames:
                self._give_up(next(iter(self._partials)))
            partial = self._partials[chunk.key] = _Partial(chunk)
        if (partial.first.parts, partial.first.size) != (chunk.parts, chunk.size):
            self.counters.inconsistent += 1
            return None
        if chunk.part in partial.data:
            self.counters.duplicate += 1
            return None
        partial.data[chunk.part] = chunk.data
        partial.size += len(chunk.data)
        complete, size = len(partial.data) == chunk.parts, chunk.size
        if partial.size > (size or self._max_frame_bytes) or (complete and size and partial.size != size):
            self.counters.inconsistent += 1
            del self._partials[chunk.key]
            return None
        if not complete:
            return None
        first = self._newest = partial.first
        del self._partials[first.key]
        self._completed.append(first.key)
        for key in [key for key, other in self._partials.items() if self._straggles(other.first, first)]:
            self._give_up(key)
        return self._make(first.t, first.frame_id, b"".join(partial.data[k] for k in range(first.parts)))

    def _give_up(self, key: Key) -> None:
        del self._partials[key]
        self.counters.evicted += 1
