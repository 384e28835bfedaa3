"""The vision stream, VADR-TS-002 4.6: JPEG images in chunks, each with a 24-byte little-endian header."""

import struct

from gate_racer.link.messages import VideoFrame
from gate_racer.link.profile import Profile
from gate_racer.link.reassembly import RESTART_S, Chunk, MalformedError, Reassembler

HEADER = struct.Struct("<IHHIIQ")  # frame_id, chunk_id, total_chunks, jpeg_size, payload_size, sim_time_ns
MOST_CHUNKS = 0xFFFF  # chunks of an image, the largest total_chunks (uint16)


def datagrams(frame: VideoFrame, profile: Profile) -> list[bytes]:
    """Return all datagrams of an image on the simulator's clock: stamped and repeated as in the profile. Raises as `chunks`."""
    return chunks(frame.id, profile.video_stamp(frame.t), frame.jpeg, profile.video_chunk_bytes) * profile.video_copies


def chunks(frame_id: int, stamp_ns: int, jpeg: bytes, payload_bytes: int) -> list[bytes]:
    """Return the datagrams of an image. Raises ValueError for an empty one, or more chunks than the header can count."""
    total = -(-len(jpeg) // payload_bytes)
    if not 0 < total <= MOST_CHUNKS:
        raise ValueError(
            f"an image of {len(jpeg)} bytes does not fit into {MOST_CHUNKS} chunks of {payload_bytes} bytes"
        )
    parts = []
    for chunk_id in range(total):
        payload = jpeg[chunk_id * payload_bytes : (chunk_id + 1) * payload_bytes]
        header = HEADER.pack(frame_id & 0xFFFFFFFF, chunk_id, total, len(jpeg), len(payload), stamp_ns)
        parts.append(header + payload)
    return parts


def read_chunk(datagram: bytes) -> Chunk:
    """Decode one datagram. Its stamp is sim_time_ns, still on the video clock. Raises MalformedError."""
    if len(datagram) <= HEADER.size:
        raise MalformedError(f"{len(datagram)} bytes are not more than a header")
    frame_id, chunk_id, total_chunks, jpeg_size, payload_size, stamp_ns = HEADER.unpack_from(datagram)
    payload = datagram[HEADER.size :]
    if not chunk_id < total_chunks <= jpeg_size or payload_size != len(payload):
        raise MalformedError(f"chunk {chunk_id} of {total_chunks} with {len(payload)} of {jpeg_size} bytes")
    return Chunk(stamp_ns / 1e9, frame_id, chunk_id, total_chunks, payload, jpeg_size)


def straggles(chunk: Chunk, newest: Chunk) -> bool:
    """Return whether an image is not newer than the newest one, and not from a restarted stream."""
    return 0 <= newest.t - chunk.t < RESTART_S


def image_reassembler(max_frames: int = 8, max_frame_bytes: int = 1 << 20) -> Reassembler[VideoFrame]:
    def frame(t: float, number: int | None, jpeg: bytes) -> VideoFrame:
        return VideoFrame(t, number or 0, jpeg)

    return Reassembler(read_chunk, frame, straggles, max_frames, max_frame_bytes)
