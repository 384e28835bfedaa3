"""The companion computer's end of MSP: requests as bytes, bytes as typed answers. No ports and no clock.

Whatever comes, decoding never raises: what cannot be used is counted and dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from link.msp.framing import Direction, Frame, Parser, ParserCounters, pack
from link.msp.messages import Channels, Code, Message, decode
from link.msp.multiple import split_multiple


@dataclass(slots=True)
class CodecCounters(ParserCounters):
    """What the client's end has dropped."""

    malformed: int = 0  # answers whose payload does not fit
    refused: int = 0  # requests that were answered by an error


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: what was asked, what it holds, and its length on the wire."""

    command: int
    messages: tuple[Message, ...]  # several of MULTIPLE_MSP, none of an acknowledgement
    wire_bytes: int
    refused: bool = False


class MspCodec:
    """Asks and reads. An answer to MULTIPLE_MSP does not say what it holds, so what was asked last is kept."""

    def __init__(self, counters: CodecCounters | None = None) -> None:
        """`counters` may be the caller's own."""
        self.counters = counters if counters is not None else CodecCounters()
        self._parser = Parser((Direction.ANSWER, Direction.ERROR), self.counters)
        self._asked: tuple[Code, ...] = ()

    def request(self, code: Code) -> bytes:
        """Asks for one message."""
        return pack(Frame(code))

    def poll(self, codes: Sequence[Code]) -> bytes:
        """Asks for several messages in one answer, or for a single one by its own command."""
        if len(codes) == 1:
            return self.request(codes[0])
        self._asked = tuple(codes)
        return pack(Frame(Code.MULTIPLE_MSP, bytes(codes)))

    def sticks(self, us: Sequence[int]) -> bytes:
        """SET_RAW_RC: channels in us, in the order of the receiver's map."""
        return pack(Frame(Code.SET_RAW_RC, Channels(tuple(us)).encode()))

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that these bytes complete."""
        return self._read(self._parser.feed(data))

    def give_up(self) -> list[Answer]:
        """No answer came in time: what has begun is no frame."""
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
        """What was asked, as far as it fitted into the answer."""
        parts = split_multiple(payload)
        if parts is None or len(parts) > len(self._asked):
            return []
        return [decode(code, part) for code, part in zip(self._asked, parts, strict=False)]


def _one(frame: Frame) -> Message | None:
    return decode(frame.command, frame.payload)
