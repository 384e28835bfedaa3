"""MSP frames, version 1 and 2, and the companion computer's end of the protocol: requests to bytes, bytes to typed replies.

    v1: $ M direction size command payload xor                     size 255: jumbo, the size follows the command in 16 bit
    v2: $ X direction flag command(16) size(16) payload crc        all numbers little endian

The checksum of version 1 is the XOR of all bytes from the size on, that of version 2 is CRC-8/DVB-S2 of all from the flag on.
MULTIPLE_MSP has several replies in one frame, which saves a round trip for each. Betaflight 4.4, `src/main/msp/msp_serial.c` and
`msp.c`; the wiki of iNav, "MSP V2". No ports and no clock. Decoding never raises: unusable input is counted and dropped.
"""

import enum
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor

from gate_racer.link.msp.messages import Channels, Code, Message, decode

MARK = ord("$")
V1, V2 = ord("M"), ord("X")
JUMBO = 255  # size byte of a longer version 1 frame; as a command it announces an embedded version 2 frame
LONGEST_PAYLOAD = 1024  # largest accepted payload; Betaflight's replies have some hundred bytes
POLYNOMIAL = 0xD5  # x^8 + x^7 + x^6 + x^4 + x^2 + 1
HEADER_V1, HEADER_JUMBO, HEADER_V2 = struct.Struct("<xxxBB"), struct.Struct("<xxxBBH"), struct.Struct("<xxxBHH")


class Direction(enum.IntEnum):
    """Direction of a frame, and whether it is an error."""

    REQUEST = ord("<")  # sent to the flight controller
    ANSWER = ord(">")
    ERROR = ord("!")  # error from the flight controller: it does not support or execute the request


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the wire."""

    command: int
    payload: bytes = b""
    direction: Direction = Direction.REQUEST
    version: int = 1
    flag: int = 0  # version 2 only


@dataclass(slots=True)
class ParserCounters:
    """Counts of what a parser has dropped."""

    stray: int = 0  # bytes outside of frames
    checksum: int = 0  # frames with a wrong checksum
    oversized: int = 0  # frames longer than `LONGEST_PAYLOAD`, or of the embedded version
    incomplete: int = 0  # frames that were never completed
    direction: int = 0  # valid frames in the other direction: an echo


def _shifted(crc: int, _: int) -> int:
    return (crc << 1 ^ POLYNOMIAL) & 0xFF if crc & 0x80 else crc << 1


CRC_OF_BYTE = [reduce(_shifted, range(8), byte) for byte in range(256)]


def crc8(data: bytes) -> int:
    """Return the CRC-8/DVB-S2."""
    return reduce(lambda crc, byte: CRC_OF_BYTE[crc ^ byte], data, 0)


def xor8(data: bytes) -> int:
    """Return the XOR of all bytes."""
    return reduce(xor, data, 0)


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame.

    Raises:
        ValueError: unknown version, or a command, flag or payload out of range.
    """
    size = len(frame.payload)
    if size > 0xFFFF:
        raise ValueError(f"a payload of {size} bytes: must be at most 65535")
    if frame.version == 2:
        if not (0 <= frame.command <= 0xFFFF and 0 <= frame.flag <= 0xFF):
            raise ValueError(f"command {frame.command} with flag {frame.flag}: must be at most 65535 and 255")
        body = struct.pack("<BHH", frame.flag, frame.command, size) + frame.payload
        return bytes((MARK, V2, frame.direction)) + body + bytes((crc8(body),))
    if frame.version != 1 or not 0 <= frame.command < JUMBO or frame.flag:
        raise ValueError(
            f"version {frame.version}, command {frame.command}: version 1 has commands 0 to 254 and no flag"
        )
    begin = struct.pack("<BB", size, frame.command) if size < JUMBO else struct.pack("<BBH", JUMBO, frame.command, size)
    body = begin + frame.payload
    return bytes((MARK, V1, frame.direction)) + body + bytes((xor8(body),))


class Parser:
    """Frame search in a stream, however it is split. Never raises; other bytes are counted.

    After a broken frame the search continues behind its first byte, so that no valid frame is lost with it.
    """

    def __init__(self, expected: Collection[Direction], counters: ParserCounters | None = None):
        """Create it; `expected`: directions that this end receives."""
        self.counters = counters if counters is not None else ParserCounters()
        self.stray = b""  # bytes outside of frames in the last `feed`
        self._expected, self._buffer = frozenset(expected), bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        self._buffer += data
        return self._search()

    def give_up(self) -> list[Frame]:
        """Discard the first byte of an incomplete frame, and return the frames found behind it."""
        if not self._buffer:
            return []
        self.counters.incomplete += 1
        del self._buffer[0]
        return self._search()

    def _search(self) -> list[Frame]:
        frames, stray, buffer = list[Frame](), bytearray(), self._buffer
        while buffer:
            start = buffer.find(MARK)
            outside = len(buffer) if start < 0 else start
            stray += buffer[:outside]
            del buffer[:outside]
            used, frame = self._first() if buffer else (0, None)
            if used == 0:
                break
            if frame is None:
                stray += buffer[:used]
            elif frame.direction in self._expected:
                frames.append(frame)
            else:
                self.counters.direction += 1
            del buffer[:used]
        self.stray = bytes(stray)
        self.counters.stray += len(stray)
        return frames

    def _first(self) -> tuple[int, Frame | None]:
        """Return the number of bytes at the start of the buffer to remove, and their frame if any; 0 while more are needed."""
        buffer = self._buffer
        if len(buffer) > 1 and buffer[1] not in (V1, V2):
            return 1, None
        if len(buffer) > 2 and buffer[2] not in tuple(Direction):
            return 1, None
        if len(buffer) < HEADER_V1.size:
            return 0, None
        return self._version_2() if buffer[1] == V2 else self._version_1()

    def _version_1(self) -> tuple[int, Frame | None]:
        buffer, header = self._buffer, HEADER_V1
        size, command = HEADER_V1.unpack_from(buffer)
        if command == JUMBO:
            return self._refused()
        if size == JUMBO:
            if len(buffer) < HEADER_JUMBO.size:
                return 0, None
            header, (_, command, size) = HEADER_JUMBO, HEADER_JUMBO.unpack_from(buffer)
            if not JUMBO <= size <= LONGEST_PAYLOAD:
                return self._refused()
        return self._whole(header.size, size, Frame(command, b"", Direction(buffer[2])))

    def _version_2(self) -> tuple[int, Frame | None]:
        buffer = self._buffer
        if len(buffer) < HEADER_V2.size:
            return 0, None
        flag, command, size = HEADER_V2.unpack_from(buffer)
        if size > LONGEST_PAYLOAD:
            return self._refused()
        return self._whole(HEADER_V2.size, size, Frame(command, b"", Direction(buffer[2]), 2, flag))

    def _whole(self, begin: int, size: int, head: Frame) -> tuple[int, Frame | None]:
        """Return the frame with its payload, once it is complete and its checksum is correct."""
        end, buffer = begin + size, self._buffer
        if len(buffer) <= end:
            return 0, None
        body = bytes(buffer[3:end])
        if buffer[end] != (crc8(body) if head.version == 2 else xor8(body)):
            self.counters.checksum += 1
            return 1, None
        return end + 1, Frame(head.command, bytes(buffer[begin:end]), head.direction, head.version, head.flag)

    def _refused(self) -> tuple[int, None]:
        self.counters.oversized += 1
        return 1, None


def split_multiple(payload: bytes) -> list[bytes] | None:
    """Return the payloads in a reply to MULTIPLE_MSP, each preceded by its size; None if the sizes are inconsistent."""
    parts, at = list[bytes](), 0
    while at < len(payload):
        end = at + 1 + payload[at]
        if end > len(payload):
            return None
        parts.append(payload[at + 1 : end])
        at = end
    return parts


def join_multiple(parts: Sequence[bytes]) -> bytes:
    """Return the inverse of `split_multiple`."""
    return b"".join(bytes((len(part),)) + part for part in parts)


@dataclass(slots=True)
class CodecCounters(ParserCounters):
    """Counts of what the client's end has dropped."""

    malformed: int = 0  # replies with an invalid payload
    refused: int = 0  # requests answered by an error


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply: the command, its messages, and its length on the wire."""

    command: int
    messages: tuple[Message, ...]  # several for MULTIPLE_MSP, none for an acknowledgement
    wire_bytes: int
    refused: bool = False


class MspCodec:
    """Encoder of requests and decoder of replies. A reply to MULTIPLE_MSP is read by the last request, as it has no names."""

    def __init__(self, counters: CodecCounters | None = None) -> None:
        """Create it; `counters` may be shared."""
        self.counters = counters if counters is not None else CodecCounters()
        self._parser = Parser((Direction.ANSWER, Direction.ERROR), self.counters)
        self._requested: tuple[Code, ...] = ()

    def request(self, code: Code) -> bytes:
        """Return a request for one message."""
        return pack(Frame(code))

    def poll(self, codes: Sequence[Code]) -> bytes:
        """Return a request for several messages in one reply, or for a single one by its own command."""
        if len(codes) == 1:
            return self.request(codes[0])
        self._requested = tuple(codes)
        return pack(Frame(Code.MULTIPLE_MSP, bytes(codes)))

    def sticks(self, us: Sequence[int]) -> bytes:
        """Return SET_RAW_RC: channels in us, in the order of the receiver's map."""
        return pack(Frame(Code.SET_RAW_RC, Channels(tuple(us)).encode()))

    def feed(self, data: bytes) -> list[Answer]:
        """Return the replies that these bytes complete."""
        return self._read(self._parser.feed(data))

    def give_up(self) -> list[Answer]:
        """Discard the start of an incomplete frame after a time-out, and return replies found behind it."""
        return self._read(self._parser.give_up())

    def _read(self, frames: list[Frame]) -> list[Answer]:
        answers = (self._answer(frame) for frame in frames)
        return [answer for answer in answers if answer is not None]

    def _answer(self, frame: Frame) -> Answer | None:
        length = len(pack(frame))
        if frame.direction is Direction.ERROR:
            self.counters.refused += 1
            return Answer(frame.command, (), length, refused=True)
        if frame.command == Code.SET_RAW_RC:
            return Answer(frame.command, (), length)
        several = frame.command == Code.MULTIPLE_MSP
        messages = self._several(frame.payload) if several else [decode(frame.command, frame.payload)]
        sound = [message for message in messages if message is not None]
        if not sound or len(sound) < len(messages):
            self.counters.malformed += 1
            return None
        return Answer(frame.command, tuple(sound), length)

    def _several(self, payload: bytes) -> list[Message | None]:
        """Return the requested messages, as far as they fitted into the reply."""
        parts = split_multiple(payload)
        if parts is None or len(parts) > len(self._requested):
            return []
        return [decode(code, part) for code, part in zip(self._requested, parts, strict=False)]
