"""Header of a datagram in its two generations, distinguished by `check_sum` ("1.1 Communication Packet Header").

The sensor type is not transmitted: it follows from the port and the Config.json.
"""

import struct
from dataclasses import dataclass

from gate_racer.link.rflysim.malformed import MalformedError

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
