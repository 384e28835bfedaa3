"""MSP frames of version 1, and the companion computer's end of the protocol: requests to bytes, bytes to typed replies.

    $ M direction size command payload xor          the checksum is the XOR of all bytes from the size on

Size 255 announces a longer frame and command 255 an embedded one of version 2, of which nothing here has need. MULTIPLE_MSP has
several replies in one frame, which saves a round trip for each. Betaflight 4.4, `src/main/msp/msp_serial.c` and `msp.c`.
No ports and no clock. Decoding never raises: unusable input is counted and dropped.
"""

import enum
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor

from gate_racer.link.msp.messages import Channels, Code, Message, decode

BEGIN = b"$M"
JUMBO = 255  # as size: a longer frame follows; as command: a frame of version 2
HEADER = struct.Struct("<xxxBB")  # size, command


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


@dataclass(slots=True)
class ParserCounters:
    """Counts of what a parser has dropped."""

    stray: int = 0  # bytes outside of frames
    checksum: int = 0  # frames with a wrong checksum
    oversized: int = 0  # longer frames, or of version 2
    incomplete: int = 0  # frames that were never completed
    direction: int = 0  # valid frames in the other direction: an echo


def xor8(data: bytes) -> int:
    """Return the XOR of all bytes."""
    return reduce(xor, data, 0)


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame. Raises ValueError for a command or a payload that does not fit."""
    size = len(frame.payload)
    if not 0 <= frame.command < JUMBO or size >= JUMBO:
        raise ValueError(f"command {frame.command} with {size} bytes: must be at most 254 and 254")
    body = bytes((size, frame.command)) + frame.payload
    return BEGIN + bytes((frame.direction,)) + body + bytes((xor8(body),))


class Parser:
    """Frame search in a stream, however it is split. Never raises; other bytes are counted.

    After a broken frame the search continues behind its first byte, so that no valid frame is lost with it.
    """

    def __init__(self, expected: Collection[Direction], counters: ParserCounters | None = None):
        """Create it; `expected`: directions that this end receives."""
        self.counters = counters if counters is not None else ParserCounters()
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
        frames, buffer = list[Frame](), self._buffer
        while buffer:
            start = buffer.find(BEGIN[:1])
            outside = len(buffer) if start < 0 else start
            self.counters.stray += outside
            del buffer[:outside]
            used, frame = self._first() if buffer else (0, None)
            if used == 0:
                break
            if frame is None:
                self.counters.stray += used
            elif frame.direction in self._expected:
                frames.append(frame)
            else:
                self.counters.direction += 1
            del buffer[:used]
        return frames

    def _first(self) -> tuple[int, Frame | None]:
        """Return the number of bytes at the start of the buffer to remove, and their frame if any; 0 while more are needed."""
        buffer = self._buffer
        if not BEGIN.startswith(buffer[: len(BEGIN)]) or (len(buffer) > 2 and buffer[2] not in tuple(Direction)):
            return 1, None
        if len(buffer) < HEADER.size:
            return 0, None
        size, command = HEADER.unpack_from(buffer)
        if JUMBO in (size, command):
            self.counters.oversized += 1
            return 1, None
        end = HEADER.size + size
        if len(buffer) <= end:
            return 0, None
        if buffer[end] != xor8(bytes(buffer[3:end])):
            self.counters.checksum += 1
            return 1, None
        return end + 1, Frame(command, bytes(buffer[HEADER.size : end]), Direction(buffer[2]))


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
    """Return the inverse of `split_multiple`, with as many of the parts as fit into a frame."""
    joined = b""
    for part in parts:
        if len(joined) + 1 + len(part) >= JUMBO:
            break
        joined += bytes((len(part),)) + part
    return joined


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
