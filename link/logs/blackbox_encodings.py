"""Field encodings of Betaflight's blackbox: each decoder takes bytes, a position and a number of fields.

It returns that many values and the position behind them, raises IndexError at the end of the file, and FrameError for bytes
that the firmware never writes. Format: betaflight.com/docs/development/Blackbox-Internals.
"""

from collections.abc import Callable

VB_BYTES = 5  # longest variable-byte number: 32 bit, 7 per byte
END_TEXT = b"End of log\0"

Decoded = tuple[list[int], int]


class FrameError(Exception):
    """The bytes are not a frame."""


def signed(value: int, bits: int) -> int:
    """Return the lowest bits of a number, in two's complement."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def unsigned_vb(data: bytes, at: int, count: int = 1) -> Decoded:
    """Decode seven bits per byte, the lowest first; the eighth marks that more follow."""
    byte = data[at]
    if byte < 0x80:
        return [byte], at + 1
    value, shift = byte & 0x7F, 7
    for k in range(1, VB_BYTES):
        byte = data[at + k]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return [value], at + k + 1
        shift += 7
    raise FrameError


def signed_vb(data: bytes, at: int, count: int = 1) -> Decoded:
    """Decode an unsigned number as zigzag: 0, -1, 1, -2, 2."""
    (value,), at = unsigned_vb(data, at)
    return [(value >> 1) ^ -(value & 1)], at


def neg_14bit(data: bytes, at: int, count: int = 1) -> Decoded:
    """Decode an unsigned number as the negative of 14 bits."""
    (value,), at = unsigned_vb(data, at)
    return [-signed(value, 14)], at


def tag8_8svb(data: bytes, at: int, count: int) -> Decoded:
    """Decode a byte of flags for up to eight nonzero fields, then these fields; a single field has no such byte."""
    if count == 1:
        return signed_vb(data, at)
    tag, at, values = data[at], at + 1, []
    for k in range(count):
        value = 0
        if tag >> k & 1:
            (value,), at = signed_vb(data, at)
        values.append(value)
    return values, at


def tag2_3s32(data: bytes, at: int, count: int) -> Decoded:
    """Decode three fields of 2, 4 or 6 bit each, by the upper two bits; or of one to four bytes each, the lowest first."""
    lead = data[at]
    kind = lead >> 6
    if kind == 0:
        values, at = [signed(lead >> shift, 2) for shift in (4, 2, 0)], at + 1
    elif kind == 1:
        values, at = [signed(lead, 4), signed(data[at + 1] >> 4, 4), signed(data[at + 1], 4)], at + 2
    elif kind == 2:
        values, at = [signed(data[at + k], 6) for k in range(3)], at + 3
    else:
        at, values = at + 1, []
        for k in range(3):
            size = (lead >> (2 * k) & 3) + 1
            data[at + size - 1]  # raises IndexError at the end of the file
            values.append(int.from_bytes(data[at : at + size], "little", signed=True))
            at += size
    return values[:count], at


def tag8_4s16(data: bytes, at: int, count: int) -> Decoded:
    """Decode four fields of 0, 1, 2 or 4 nibbles, two bits of the first byte each; the nibbles follow, the upper first."""
    tag, nibbles, values = data[at], 2 * (at + 1), []
    for k in range(4):
        size = (0, 1, 2, 4)[tag >> (2 * k) & 3]
        value = 0
        for _ in range(size):
            byte = data[nibbles >> 1]
            value = value << 4 | (byte & 15 if nibbles & 1 else byte >> 4)
            nibbles += 1
        values.append(signed(value, 4 * size) if size else 0)
    return values[:count], (nibbles + 1) >> 1


def null(data: bytes, at: int, count: int) -> Decoded:
    """Return 0 for a field that is not written."""
    return [0], at


def _numbers(count: int) -> Callable[[bytes, int], int]:
    def skip(data: bytes, at: int) -> int:
        for _ in range(count):
            _, at = unsigned_vb(data, at)
        return at

    return skip


def _adjustment(data: bytes, at: int) -> int:
    return at + 5 if data[at] > 127 else unsigned_vb(data, at + 1)[1]


def _end(data: bytes, at: int) -> int:
    if data[at : at + len(END_TEXT)] != END_TEXT:
        raise FrameError
    return at + len(END_TEXT)


# Decoder and the most fields that it decodes together, by the number in the header.
DECODERS: dict[int, tuple[Callable[[bytes, int, int], Decoded], int]] = {
    0: (signed_vb, 1),
    1: (unsigned_vb, 1),
    3: (neg_14bit, 1),
    6: (tag8_8svb, 8),
    7: (tag2_3s32, 3),
    8: (tag8_4s16, 4),
    9: (null, 1),
}
# Function that skips an event, by its number: sync beep, adjustment, resume, disarm, flight mode, end of the log.
EVENTS: dict[int, Callable[[bytes, int], int]] = {
    0: _numbers(1),
    13: _adjustment,
    14: _numbers(2),
    15: _numbers(1),
    30: _numbers(2),
    255: _end,
}
