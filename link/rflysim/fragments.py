"""Frames in datagrams: the header in its two generations, distinguished by `check_sum` ("1.1 Communication Packet Header").

The sensor type is not transmitted: it follows from the port and the Config.json.
"""

import struct
from dataclasses import dataclass

from gate_racer.link.reassembly import RESTART_S, Chunk, MalformedError, Reassembler

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
