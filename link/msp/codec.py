"""The companion computer's end of MSP: requests to bytes, bytes to typed replies. No ports and no clock.

Decoding never raises: unusable input is counted and dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gate_racer.link.msp.framing import Direction, Frame, Parser, ParserCounters, pack
from gate_racer.link.msp.messages import Channels, Code, Message, decode
from gate_racer.link.msp.multiple import split_multiple


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
        messages = self._several(frame.payload) if frame.command == Code.MULTIPLE_MSP else [_one(frame)]
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


def _one(frame: Frame) -> Message | None:
    return decode(frame.command, frame.payload)
