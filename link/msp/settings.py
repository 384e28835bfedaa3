"""How a Betaflight is set up, as it says over MSP: rates, receiver, channels, switches. Betaflight 4.4, `src/main/msp/msp.c`."""

import struct
from dataclasses import astuple, dataclass
from typing import ClassVar, Self

LETTERS = "AERT1234"  # in whose order a receiver's map is told: roll, pitch, yaw, throttle, AUX1 to AUX4
FIRST_US, STEP_US, STEPS = 900, 25, 48  # of a mode's range
SLOTS = 20  # of mode ranges, most of them empty


class Fixed:
    """A message of numbers in fixed places."""

    LAYOUT: ClassVar[struct.Struct]

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        return cls(*cls.LAYOUT.unpack_from(payload)) if len(payload) >= cls.LAYOUT.size else None

    def encode(self) -> bytes:
        return self.LAYOUT.pack(*astuple(self))  # type: ignore[call-overload]


@dataclass(frozen=True)
class RcTuning(Fixed):
    """Rates as they are set: per cent and 10 deg/s, by the kind of curve `rates_type` (0 Betaflight, 3 actual, 4 quick)."""

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
    """The receiver, in us: a stick's ends and middle, and between which pulses count. What follows is not read."""

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
    """The order in which the receiver has its channels: AETR1234 if nothing was changed."""

    letters: str

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        """On the wire stands the place of each of `LETTERS`."""
        places = payload[: len(LETTERS)]
        if sorted(places) != list(range(len(LETTERS))):
            return None
        return cls("".join(LETTERS[places.index(place)] for place in range(len(LETTERS))))

    def encode(self) -> bytes:
        return bytes(self.letters.index(letter) for letter in LETTERS)


@dataclass(frozen=True)
class ModeRange:
    """A mode is on while an AUX channel (1 and up) lies from `low_us` to below `high_us`. `mode` is its permanent number."""

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
    """All that is set up; a slot whose range is empty holds nothing."""

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
