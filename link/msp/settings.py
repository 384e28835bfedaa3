"""Messages on a Betaflight's configuration: rates, receiver, channels, switches. Betaflight 4.4, `src/main/msp/msp.c`."""

import struct
from dataclasses import astuple, dataclass
from typing import ClassVar, Self

LETTERS = "AERT1234"  # order in which a receiver's map is sent: roll, pitch, yaw, throttle, AUX1 to AUX4
FIRST_US, STEP_US, STEPS = 900, 25, 48  # encoding of a mode's range
SLOTS = 20  # mode ranges, most of them empty


class Fixed:
    """A message of numbers in a fixed layout."""

    LAYOUT: ClassVar[struct.Struct]

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        return cls(*cls.LAYOUT.unpack_from(payload)) if len(payload) >= cls.LAYOUT.size else None

    def encode(self) -> bytes:
        return self.LAYOUT.pack(*astuple(self))  # type: ignore[call-overload]


@dataclass(frozen=True)
class RcTuning(Fixed):
    """Rates as configured: per cent and 10 deg/s, for the curve `rates_type` (0 Betaflight, 3 actual, 4 quick)."""

    LAYOUT = struct.Struct("<8BH6B3HB")
    rc_rate_roll: int
    expo_roll: int
    rate_roll: int
    rate_pitch: int
    rate_yaw: int
    tpa_rate: int
    throttle_mid: int
    throttle_expo: int
    tpa_breakpoint: int
    expo_yaw: int
    rc_rate_yaw: int
    rc_rate_pitch: int
    expo_pitch: int
    throttle_limit_type: int
    throttle_limit: int
    limit_roll_deg_s: int
    limit_pitch_deg_s: int
    limit_yaw_deg_s: int
    rates_type: int


@dataclass(frozen=True)
class RxConfig(Fixed):
    """The receiver, in us: ends and centre of a stick, and limits of valid pulses. Later fields are ignored."""

    LAYOUT = struct.Struct("<B3HB2H")
    serial_rx: int
    max_check_us: int
    mid_us: int
    min_check_us: int
    bind: int
    least_us: int
    most_us: int


@dataclass(frozen=True)
class RxMap:
    """Channel order of the receiver: by default AETR1234."""

    letters: str

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        """Decode the position of each of `LETTERS`."""
        places = payload[: len(LETTERS)]
        if sorted(places) != list(range(len(LETTERS))):
            return None
        return cls("".join(LETTERS[places.index(place)] for place in range(len(LETTERS))))

    def encode(self) -> bytes:
        return bytes(self.letters.index(letter) for letter in LETTERS)


@dataclass(frozen=True)
class ModeRange:
    """Range of an AUX channel (from 1), `low_us` to below `high_us`, that switches a mode on. `mode` is its permanent number."""

    mode: int
    channel: int
    low_us: int
    high_us: int

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<4B")

    @classmethod
    def decode(cls, slot: bytes) -> Self:
        mode, aux, start, end = cls.LAYOUT.unpack(slot)
        return cls(mode, aux + 1, FIRST_US + STEP_US * start, FIRST_US + STEP_US * end)

    def encode(self) -> bytes:
        start, end = (round((us - FIRST_US) / STEP_US) for us in (self.low_us, self.high_us))
        return self.LAYOUT.pack(self.mode, self.channel - 1, start, end)


@dataclass(frozen=True)
class ModeRanges:
    """All configured mode ranges; a slot with an empty range is unused."""

    ranges: tuple[ModeRange, ...]

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        size = ModeRange.LAYOUT.size
        if not payload or len(payload) % size:
            return None
        slots = (ModeRange.decode(payload[at : at + size]) for at in range(0, len(payload), size))
        return cls(tuple(slot for slot in slots if slot.low_us < slot.high_us))

    def encode(self) -> bytes:
        empty = bytes(ModeRange.LAYOUT.size) * (SLOTS - len(self.ranges))
        return b"".join(one.encode() for one in self.ranges) + empty
