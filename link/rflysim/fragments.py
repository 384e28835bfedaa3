"""Frames in datagrams: the header in its two generations, distinguished by `check_sum` ("1.1 Communication Packet Header").

The sensor type is not transmitted: it follows from the port and the Config.json.
"""

import struct
from dataclasses import dataclass

from gate_racer.link.reassembly import RESTART_S, Chunk, MalformedError, Reassembler

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
MOST_BEHIND = 64  # range of frame_ids that are late
MOST_PARTS = 1 << 15  # datagrams of a frame


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


def read_fragment(datagram: bytes) -> Chunk:
    """Decode one datagram. Raises MalformedError.

    `pkg_len` is the datagram's length, as with all known senders, or the whole frame's, as in the document: of its data alone,
    with one header, or with all of them.
    """
    header = decode_header(datagram)
    chunk, stated = datagram[header.size :], header.length
    if stated != len(datagram) and (stated < len(chunk) or (header.parts == 1 and stated != len(chunk))):
        raise MalformedError(f"pkg_len {stated} in a datagram of {len(datagram)} bytes")
    if header.parts > MOST_PARTS:
        raise MalformedError(f"a frame of {header.parts} packets, more than {MOST_PARTS}")
    sizes = () if stated == len(datagram) else (stated, stated - header.size, stated - header.size * header.parts)
    return Chunk(header.t, header.frame_id, header.part, header.parts, chunk, sizes)


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
