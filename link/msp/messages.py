"""MSP: messages of Betaflight, typed, in the units of the wire, frames of version 1, and the companion computer's end.

Each message has `encode`, and `decode`, which returns None for a short payload; appended fields of newer firmware are ignored.
Betaflight 4.4 (API 1.45), `src/main/msp/msp.c` and `msp_serial.c`.

    $ M direction size command payload xor          the checksum is the XOR of all bytes from the size on

Size 255 announces a longer frame and command 255 an embedded one of version 2, of which nothing here has need. MULTIPLE_MSP has
several replies in one frame, which saves a round trip for each. No ports and no clock. Decoding never raises: unusable input is
counted and dropped.
"""

import enum
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import ClassVar

from typing_extensions import Self

from gate_racer.link.packed import Packed

LETTERS = "AERT1234"  # order in which a receiver's map is sent: roll, pitch, yaw, throttle, AUX1 to AUX4
FIRST_US, STEP_US = 900, 25  # encoding of a mode's range
SLOTS = 20  # mode ranges, most of them empty


class Fixed(Packed):
    @classmethod
    def decode(cls, data: bytes) -> Self | None:  # type: ignore[override]
        return cls.of(cls.LAYOUT.unpack_from(data)) if len(data) >= cls.LAYOUT.size else None


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
    letters: str

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
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


Counts = tuple[int, int, int]


class Code(enum.IntEnum):
    API_VERSION = 1
    FC_VARIANT = 2
    FC_VERSION = 3
    BOARD_INFO = 4
    MODE_RANGES = 34
    RX_CONFIG = 44
    RX_MAP = 64
    RAW_IMU = 102
    RC = 105
    ATTITUDE = 108
    ALTITUDE = 109
    RC_TUNING = 111
    STATUS_EX = 150
    SET_RAW_RC = 200
    MULTIPLE_MSP = 230


# Reasons for which the flight controller does not arm, from the lowest bit (`armingDisableFlags_e` of `runtime_config.h`).
DisableFlag = enum.IntFlag(
    "DisableFlag",
    "NO_GYRO FAILSAFE RX_FAILSAFE BAD_RX_RECOVERY BOX_FAILSAFE RUNAWAY_TAKEOFF CRASH_DETECTED THROTTLE ANGLE"
    " BOOT_GRACE_TIME NO_PREARM LOAD CALIBRATING CLI CMS_MENU BST MSP PARALYZE GPS RESCUE RPM_FILTER REBOOT_REQUIRED"
    " DSHOT_BITBANG ACC_CALIBRATION MOTOR_PROTOCOL ARM_SWITCH",
)


@dataclass(frozen=True)
class Version(Fixed):
    """Version of the firmware, or behind a number of the protocol that of its API: 0, 1, 45 for Betaflight 4.4."""

    LAYOUT = struct.Struct("<3B")
    numbers: Counts


@dataclass(frozen=True)
class RawImu(Fixed):
    """Counts in Betaflight's axes: x forward, y left, z up. `accel`: 512 per g; `gyro`: scale of the sensor."""

    LAYOUT = struct.Struct("<9h")
    accel: Counts
    gyro: Counts
    mag: Counts = (0, 0, 0)


@dataclass(frozen=True)
class RawAttitude(Fixed):
    """Roll and pitch in tenths of a degree, heading in whole degrees 0 to 359."""

    LAYOUT = struct.Struct("<3h")
    roll_ddeg: int
    pitch_ddeg: int
    heading_deg: int


@dataclass(frozen=True)
class Altitude(Fixed):
    """Estimated altitude in cm, climb in cm/s."""

    LAYOUT = struct.Struct("<ih")
    altitude_cm: int
    climb_cm_s: int


@dataclass(frozen=True)
class FcVariant:
    name: str

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        return cls(_text(payload[:4])) if len(payload) >= 4 else None

    def encode(self) -> bytes:
        return self.name.encode("ascii")[:4].ljust(4)


@dataclass(frozen=True)
class BoardInfo:
    """The board: four letters, and the name of its target. Revision, kind, capabilities and later fields are ignored."""

    board: str
    target: str

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<4s4xB")

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        begin = cls.LAYOUT.size
        if len(payload) < begin:
            return None
        board, letters = cls.LAYOUT.unpack_from(payload)
        if len(payload) < begin + letters:
            return None
        return cls(_text(board), _text(payload[begin : begin + letters]))

    def encode(self) -> bytes:
        return self.LAYOUT.pack(self.board.encode("ascii"), len(self.target)) + self.target.encode("ascii")


@dataclass(frozen=True)
class StatusEx:
    """STATUS_EX, as far as it is used. The first mode bit is ARM; the others are in the order of configuration."""

    modes: int
    disabled: DisableFlag
    profile: int = 0
    rate_profile: int = 0
    cycle_us: int = 0
    sensors: int = 0
    profiles: int = 0

    BEGIN: ClassVar[struct.Struct] = struct.Struct("<H2xHIB2xBBB")  # the last counts further bytes of modes
    END: ClassVar[struct.Struct] = struct.Struct("<BIx")  # number of flags, flags

    @property
    def armed(self) -> bool:
        return bool(self.modes & 1)

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        if len(payload) < cls.BEGIN.size:
            return None
        cycle_us, sensors, modes, profile, profiles, rate_profile, more = cls.BEGIN.unpack_from(payload)
        begin = cls.BEGIN.size + more
        if len(payload) < begin + cls.END.size:
            return None
        disabled = DisableFlag(cls.END.unpack_from(payload, begin)[1])
        return cls(modes, disabled, profile, rate_profile, cycle_us, sensors, profiles)

    def encode(self) -> bytes:
        about = self.cycle_us, self.sensors, self.modes, self.profile, self.profiles, self.rate_profile, 0
        return self.BEGIN.pack(*about) + self.END.pack(len(DisableFlag), int(self.disabled))


@dataclass(frozen=True)
class Channels:
    """RC channels that the flight controller uses, in us: roll, pitch, yaw, throttle, AUX1 and so on.

    In SET_RAW_RC the first four are in the order of the receiver's map instead, by default AETR.
    """

    us: tuple[int, ...]

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        return cls(struct.unpack(f"<{len(payload) // 2}H", payload)) if payload and len(payload) % 2 == 0 else None

    def encode(self) -> bytes:
        return struct.pack(f"<{len(self.us)}H", *self.us)


Message = (
    Version | FcVariant | BoardInfo | RawImu | RawAttitude | Altitude | RcTuning | StatusEx | Channels
    | ModeRanges | RxConfig | RxMap
)  # fmt: skip
KINDS: dict[int, type[Message]] = {
    Code.API_VERSION: Version,
    Code.FC_VARIANT: FcVariant,
    Code.FC_VERSION: Version,
    Code.BOARD_INFO: BoardInfo,
    Code.MODE_RANGES: ModeRanges,
    Code.RX_CONFIG: RxConfig,
    Code.RX_MAP: RxMap,
    Code.RAW_IMU: RawImu,
    Code.RC: Channels,
    Code.ATTITUDE: RawAttitude,
    Code.ALTITUDE: Altitude,
    Code.RC_TUNING: RcTuning,
    Code.STATUS_EX: StatusEx,
}


def decode(command: int, payload: bytes) -> Message | None:
    kind = KINDS.get(command)
    return kind.decode(payload) if kind is not None else None


def _text(data: bytes) -> str:
    return "".join(c if c.isprintable() else "?" for c in data.decode("latin-1")).rstrip()


BEGIN = b"$M"
JUMBO = 255  # as size: a longer frame follows; as command: a frame of version 2
HEADER = struct.Struct("<2s3B")  # begin, direction, size, command


class Direction(enum.IntEnum):
    """Direction of a frame, and whether it is an error."""

    REQUEST = ord("<")  # sent to the flight controller
    ANSWER = ord(">")
    ERROR = ord("!")  # error from the flight controller: it does not support or execute the request


DIRECTIONS = frozenset(Direction)


@dataclass(frozen=True, slots=True)
class Frame:
    command: int
    payload: bytes = b""
    direction: Direction = Direction.REQUEST


@dataclass(slots=True)
class CodecCounters:
    damaged: int = 0  # bytes outside of whole frames of version 1
    direction: int = 0  # valid frames in the other direction: an echo
    malformed: int = 0  # replies with an invalid payload
    refused: int = 0  # requests answered by an error


def xor8(data: bytes | bytearray) -> int:
    return reduce(xor, data, 0)


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame. Raises ValueError for a command or a payload that does not fit."""
    size = len(frame.payload)
    if not 0 <= frame.command < JUMBO or size >= JUMBO:
        raise ValueError(f"command {frame.command} with {size} bytes: must be at most 254 and 254")
    body = bytes((size, frame.command)) + frame.payload
    return BEGIN + bytes((frame.direction,)) + body + bytes((xor8(body),))


class Parser:
    """Frame search in a stream; never raises. A broken frame is left by its first byte, to lose no valid one."""

    def __init__(self, expected: Collection[Direction], counters: CodecCounters | None = None):
        """Create it; `expected`: directions that this end receives."""
        self.counters = counters if counters is not None else CodecCounters()
        self._expected, self._buffer = frozenset(expected), bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        return self._search()

    def give_up(self) -> list[Frame]:
        """Discard the first byte of an incomplete frame, and return the frames found behind it."""
        if not self._buffer:
            return []
        self.counters.damaged += 1
        del self._buffer[0]
        return self._search()

    def _search(self) -> list[Frame]:
        frames, buffer, counters = list[Frame](), self._buffer, self.counters
        while len(buffer) > HEADER.size:
            begin, direction, size, command = HEADER.unpack_from(buffer)
            end = HEADER.size + size
            known = begin == BEGIN and direction in DIRECTIONS and JUMBO not in (size, command)
            if known and len(buffer) <= end:
                break
            if not known or buffer[end] != xor8(buffer[3:end]):
                counters.damaged += 1
                del buffer[0]
                continue
            if direction in self._expected:
                frames.append(Frame(command, bytes(buffer[HEADER.size : end]), Direction(direction)))
            else:
                counters.direction += 1
            del buffer[: end + 1]
        return frames


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
    joined = b""
    for part in parts:
        if len(joined) + 1 + len(part) >= JUMBO:
            break
        joined += bytes((len(part),)) + part
    return joined


@dataclass(frozen=True, slots=True)
class Answer:
    command: int
    messages: tuple[Message, ...]  # several for MULTIPLE_MSP, none for an acknowledgement or an error
    wire_bytes: int


class MspCodec:
    """Encoder of requests and decoder of replies. A reply to MULTIPLE_MSP is read by the last request, as it has no names."""

    def __init__(self, counters: CodecCounters | None = None) -> None:
        self.counters = counters if counters is not None else CodecCounters()
        self._parser = Parser((Direction.ANSWER, Direction.ERROR), self.counters)
        self._requested: tuple[Code, ...] = ()

    def request(self, code: Code) -> bytes:
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
        return [answer for frame in self._parser.feed(data) if (answer := self._answer(frame)) is not None]

    def give_up(self) -> None:
        """Discard the start of an incomplete frame after a time-out, with replies found behind it, whose time is unknown."""
        self._parser.give_up()

    def _answer(self, frame: Frame) -> Answer | None:
        length = len(pack(frame))
        if frame.direction is Direction.ERROR:
            self.counters.refused += 1
            return Answer(frame.command, (), length)
        if frame.command == Code.SET_RAW_RC:
            return Answer(frame.command, (), length)
        if frame.command == Code.MULTIPLE_MSP:  # as many of the requested messages as fitted
            parts = split_multiple(frame.payload) or []
            sound = len(parts) <= len(self._requested)
            messages = [decode(code, part) for code, part in zip(self._requested, parts, strict=False)] if sound else []
        else:
            messages = [decode(frame.command, frame.payload)]
        if not messages or None in messages:
            self.counters.malformed += 1
            return None
        return Answer(frame.command, tuple(message for message in messages if message is not None), length)
