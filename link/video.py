"""The vision stream, VADR-TS-002 4.6: JPEG images in chunks, each with a 24-byte little-endian header."""

import struct
from collections import deque
from dataclasses import dataclass, field

from gate_racer.link.messages import VideoFrame
from gate_racer.link.profile import Profile

HEADER = struct.Struct("<IHHIIQ")  # frame_id, chunk_id, total_chunks, jpeg_size, payload_size, sim_time_ns
MOST_CHUNKS = 0xFFFF  # chunks of an image, the largest total_chunks (uint16)
RESTART_NS = 1_000_000_000  # ns, beyond which an older stamp means a restarted stream instead of a late chunk
REMEMBERED = 16  # completed frames whose repeats are recognised; at 30 Hz they are more recent than a restart

FrameKey = tuple[int, int]  # frame_id, sim_time_ns


def datagrams(frame: VideoFrame, profile: Profile) -> list[bytes]:
    """Return all datagrams of one image, whose `t` is on the simulator's clock: stamped and repeated as in the profile.

    Raises:
        ValueError: as `chunks`.
    """
    return _chunks(frame.id, profile.video_stamp(frame.t), frame.jpeg, profile.video_chunk_bytes) * profile.video_copies


def chunks(frame_id: int, t: float, jpeg: bytes, payload_bytes: int) -> list[bytes]:
    """Return the datagrams of one image stamped t (s), each with at most payload_bytes of it.

    Raises:
        ValueError: an empty image, or one that needs more chunks than the header can count.
    """
    return _chunks(frame_id, round(t * 1e9), jpeg, payload_bytes)


def _chunks(frame_id: int, stamp_ns: int, jpeg: bytes, payload_bytes: int) -> list[bytes]:
    total = -(-len(jpeg) // payload_bytes)
    if not 0 < total <= MOST_CHUNKS:
        raise ValueError(
            f"an image of {len(jpeg)} bytes does not fit into 1 to {MOST_CHUNKS} chunks of {payload_bytes} bytes"
        )
    parts = []
    for chunk_id in range(total):
        payload = jpeg[chunk_id * payload_bytes : (chunk_id + 1) * payload_bytes]
        header = HEADER.pack(frame_id & 0xFFFFFFFF, chunk_id, total, len(jpeg), len(payload), stamp_ns)
        parts.append(header + payload)
    return parts


@dataclass(slots=True)
class VideoCounters:
    """Counts of what a `Reassembler` has dropped: datagrams, except `evicted`."""

    malformed: int = 0  # no header, or an impossible one
    inconsistent: int = 0  # contradicts the other chunks of its frame
    duplicate_chunk: int = 0
    duplicate_frame: int = 0  # chunks of a completed frame
    stale: int = 0  # chunks of a frame older than the newest complete one
    evicted: int = 0  # frames dropped incomplete
    foreign: int = 0  # datagrams from hosts other than the simulator's


@dataclass(slots=True)
class _Partial:
    """An incomplete frame."""

    total_chunks: int
    jpeg_size: int
    payloads: dict[int, bytes] = field(default_factory=dict)  # payload by chunk_id
    size: int = 0  # bytes of all payloads


class Reassembler:
    """Reassembly of chunks to frames in any order, each frame once and never after a newer one."""

    def __init__(self, max_frames: int = 8, max_frame_bytes: int = 1 << 20):
        """Create it; at most max_frames incomplete frames are kept, none larger than max_frame_bytes."""
        self.counters = VideoCounters()
        self._max_frames, self._max_frame_bytes = max_frames, max_frame_bytes
        self._partials: dict[FrameKey, _Partial] = {}  # in order of their first chunk
        self._completed: deque[FrameKey] = deque(maxlen=REMEMBERED)

    def feed(self, datagram: bytes) -> VideoFrame | None:
        """Process one datagram. Return the frame that it completes; its `t` is sim_time_ns, still on the video clock."""
        chunk = self._chunk(datagram)
        if chunk is None:
            return None
        key, chunk_id, total_chunks, jpeg_size, payload = chunk
        partial = self._partials.get(key) or self._open(key, _Partial(total_chunks, jpeg_size))
        if (partial.total_chunks, partial.jpeg_size) != (total_chunks, jpeg_size):
            self.counters.inconsistent += 1
            return None
        if chunk_id in partial.payloads:
            self.counters.duplicate_chunk += 1
            return None
        partial.payloads[chunk_id] = payload
        partial.size += len(payload)
        complete = len(partial.payloads) == total_chunks
        if partial.size > jpeg_size or (complete and partial.size != jpeg_size):
            self.counters.inconsistent += 1
            del self._partials[key]
            return None
        return self._close(key, partial) if complete else None

    def _chunk(self, datagram: bytes) -> tuple[FrameKey, int, int, int, bytes] | None:
        """Return key, chunk_id, total_chunks, jpeg_size and payload of a usable datagram; else None."""
        if len(datagram) <= HEADER.size:
            self.counters.malformed += 1
            return None
        frame_id, chunk_id, total_chunks, jpeg_size, payload_size, stamp_ns = HEADER.unpack_from(datagram)
        payload, key = datagram[HEADER.size :], (frame_id, stamp_ns)
        sane = chunk_id < total_chunks <= jpeg_size <= self._max_frame_bytes and payload_size == len(payload)
        if not sane:
            self.counters.malformed += 1
        elif key in self._completed:
            self.counters.duplicate_frame += 1
        elif self._completed and 0 <= self._completed[-1][1] - stamp_ns < RESTART_NS:
            self.counters.stale += 1
        else:
            return key, chunk_id, total_chunks, jpeg_size, payload
        return None

    def _open(self, key: FrameKey, partial: _Partial) -> _Partial:
        if len(self._partials) == self._max_frames:
            self._give_up(next(iter(self._partials)))
        self._partials[key] = partial
        return partial

    def _close(self, key: FrameKey, partial: _Partial) -> VideoFrame:
        del self._partials[key]
        self._completed.append(key)
        for older in [other for other in self._partials if other[1] <= key[1]]:
            self._give_up(older)
        jpeg = b"".join(payload for _, payload in sorted(partial.payloads.items()))
        return VideoFrame(key[1] / 1e9, key[0], jpeg)

    def _give_up(self, key: FrameKey) -> None:
        del self._partials[key]
        self.counters.evicted += 1
