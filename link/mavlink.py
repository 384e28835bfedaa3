"""MAVLink 2: definitions shared by both ends (VADR-TS-002, 4.3 to 4.5), packets, and their signatures.

A signature is 48 bits of SHA-256 over key and packet, with a stamp that must increase from packet to packet
(https://mavlink.io/en/guide/message_signing.html). Packets are checked here: pymavlink accepts a stamp before it checks the
signature, so that one forgery blocks the true sender; stamps of any future, so that one wrong clock blocks all others; and of
a new sender those of the last minute, so that a recording is accepted after a restart. Here no stamp may be ahead of this
clock by more than `AHEAD_S`, or of before this end began. Sent stamps follow the clock and the stamps received: a sender whose
clock is behind is understood once it has heard this end.
"""

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.errors import UserError
from gate_racer.link.messages import TargetFrame
from gate_racer.vehicle.rotation import Quaternion

CLIENT = (255, dialect.MAV_COMP_ID_MISSIONPLANNER)  # system, component

IGNORE_RATE = (  # roll, pitch, yaw
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_YAW_RATE_IGNORE,
)
RATES_RAD_S = 16  # bit that the real builds since 3390 read as "rates are in rad/s"; unused in MAVLink
IGNORE_THRUST = dialect.ATTITUDE_TARGET_TYPEMASK_THROTTLE_IGNORE
IGNORE_ATTITUDE = dialect.ATTITUDE_TARGET_TYPEMASK_ATTITUDE_IGNORE
FRAMES = {  # the first of each is sent; BODY is the one of VADR-TS-002, 3.8
    dialect.MAV_FRAME_LOCAL_NED: TargetFrame.LOCAL,
    dialect.MAV_FRAME_LOCAL_OFFSET_NED: TargetFrame.OFFSET,
    dialect.MAV_FRAME_BODY_NED: TargetFrame.BODY,
    dialect.MAV_FRAME_BODY_OFFSET_NED: TargetFrame.BODY,
    dialect.MAV_FRAME_BODY_FRD: TargetFrame.BODY,
}
RIVAL = b"RIVAL"  # DEBUG_FLOAT_ARRAY: array_id is the place on the start; position (m, world NED) and velocity (m/s)
ACCEL_AND_GYRO = 0x3F  # HIGHRES_IMU.fields_updated
UNMEASURED = [math.nan] * 7  # magnetometer, pressures, altitude, temperature


def milliseconds(t: float) -> int:
    """Return t (s) as the 32-bit field of a stamp."""
    return round(t * 1e3) & 0xFFFFFFFF


def timesync_request(stamp_ns: int, in_tc1: bool = False) -> dialect.MAVLink_timesync_message:
    """Return a TIMESYNC request; its stamp is in ts1 as MAVLink defines it, or in tc1."""
    return dialect.MAVLink_timesync_message(*((stamp_ns, 0) if in_tc1 else (0, stamp_ns)))


def finite(values: Sequence[float]) -> bool:
    return all(map(math.isfinite, values))


def unit(q: Sequence[float]) -> Quaternion | None:
    """Return q / |q|; None if it is zero or not finite."""
    norm = math.hypot(*q)
    if not math.isfinite(norm) or norm < 1e-6:
        return None
    return q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm


S = TypeVar("S", bound=tuple[float, ...])


def scaled(signs: S, values: Sequence[float]) -> S:
    """Apply a sign convention to as many values; applying it again undoes it."""
    return tuple(sign * value for sign, value in zip(signs, values, strict=True))  # type: ignore[return-value]


EPOCH_S = 1_420_070_400  # 2015-01-01 00:00 UTC, in Unix time
UNITS_PER_S = 100_000  # units of the stamp
HASH_BYTES, STAMP_BYTES = 6, 6  # bytes at the end of a packet: hash, and before it the stamp, and before that the link
AHEAD_S = 60.0  # s, greatest difference of two clocks (MAVLink 2, message signing)


@dataclass
class SigningKey:
    """A shared secret, and the time at which its use began."""

    secret: bytes  # 32 bytes
    now_s: float  # Unix time; both ends must agree to a minute
    clock: Callable[[], float] = field(default=time.monotonic, compare=False)  # s
    _begin: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self._begin = self.clock()

    @property
    def stamp(self) -> int:
        return self.first + round((self.clock() - self._begin) * UNITS_PER_S)

    @property
    def first(self) -> int:
        return round((self.now_s - EPOCH_S) * UNITS_PER_S)

    def signed(self, packet: bytes) -> bool:
        signature = hashlib.sha256(self.secret + packet[:-HASH_BYTES]).digest()[:HASH_BYTES]
        return hmac.compare_digest(signature, packet[-HASH_BYTES:])


def read_key(path: Path, now_s: float) -> SigningKey:
    """Read a key: SHA-256 of the file's stripped text, as of ground stations. Raises UserError without one."""
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not text:
        raise UserError(f"{path}: is empty: expected a passphrase")
    return SigningKey(hashlib.sha256(text).digest(), now_s)


MAGIC = dialect.PROTOCOL_MARKER_V2
OLD_MAGIC = dialect.PROTOCOL_MARKER_V1
OLD = "messages are of MAVLink 1: let their sender speak MAVLink 2 (a program on pymavlink: MAVLINK20=1 in its environment)"
SIGNED = dialect.MAVLINK_IFLAG_SIGNED
OVERHEAD_BYTES = 12  # header and checksum of a packet


@dataclass(slots=True)
class Counters:
    malformed: int = 0  # byte sequences that are not a MAVLink 2 message
    unsupported: int = 0  # messages, and frames of ODOMETRY, that this end does not read
    invalid: int = 0  # not finite, or otherwise invalid
    wrong_target: int = 0  # addressed to another system
    unsigned: int = 0  # not signed with our key, by a wrong clock, or replayed; only with a key


class Signatures:
    """Signatures of one end: stamps of what it sends, and refusals of what it receives."""

    def __init__(self, key: SigningKey):
        self._key = key
        self._newest = dict[tuple[int, int, int], int]()  # stamps by link, system and component

    def stamp(self) -> int:
        return max(self._key.stamp, *self._newest.values(), 0)

    def refusal(self, packet: bytes) -> tuple[str, str] | None:
        """Return why a packet is refused, in a word or two and in one line; None if it is accepted."""
        if not packet[2] & SIGNED:
            return "not signed", "messages are not signed: give their sender the same signing key"
        if not self._key.signed(packet):
            return "another key", "messages are signed with another key: both ends need the same passphrase"
        stamp = int.from_bytes(packet[-HASH_BYTES - STAMP_BYTES : -HASH_BYTES], "little")
        sender = packet[-HASH_BYTES - STAMP_BYTES - 1], packet[5], packet[6]
        off_s = (stamp - self._key.stamp) / UNITS_PER_S
        if off_s > AHEAD_S:
            return "clock", f"messages are signed by a clock {off_s:.0f} s ahead of this one: set both clocks"
        if sender not in self._newest and stamp < self._key.first:
            begun = "before this end began: a recording, or a clock that is behind"
            return "clock", f"messages are signed {-off_s:.0f} s ago, {begun}"
        if stamp <= self._newest.get(sender, -1):
            return "repeated", "signed messages are repeated, or the network reorders them"
        self._newest[sender] = stamp
        return None


class Framing:
    """Packets of one end. Each datagram is parsed on its own, so that a broken one does not affect the next."""

    def __init__(self, system: int, component: int, counters: Counters, key: SigningKey | None = None):
        self._counters, self._signatures = counters, Signatures(key) if key is not None else None
        self._mav, self._reader = (dialect.MAVLink(None, srcSystem=system, srcComponent=component) for _ in range(2))
        self.refused = dict[str, str]()  # newest line for each reason
        if key is not None:
            self._mav.signing.secret_key, self._mav.signing.sign_outgoing = key.secret, True

    @property
    def why_refused(self) -> str:
        return "; ".join(self.refused.values())

    def pack(self, message: Any) -> bytes:
        if self._signatures is not None:
            self._mav.signing.timestamp = max(self._mav.signing.timestamp, self._signatures.stamp())
        packet: bytes = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return packet

    def unpack(self, datagram: bytes) -> list[Any]:
        """Return the pymavlink messages of a datagram. Never raises; broken or unsigned packets are counted."""
        messages = []
        while datagram:
            size = _packet_bytes(datagram)
            if not 0 < size <= len(datagram):
                self._counters.malformed += 1
                if datagram[0] == OLD_MAGIC:
                    self.refused["MAVLink 1"] = OLD
                break
            packet, datagram = datagram[:size], datagram[size:]
            if self._signatures is not None and (refusal := self._signatures.refusal(packet)) is not None:
                self._counters.unsigned += 1
                self.refused.update([refusal])
                continue
            try:
                messages.append(self._reader.decode(bytearray(packet)))
            except dialect.MAVError:
                self._counters.malformed += 1
        return messages


def _packet_bytes(data: bytes) -> int:
    """Return the packet length stated at the start of `data`; 0 if there is no MAVLink 2 header."""
    if len(data) < OVERHEAD_BYTES or data[0] != MAGIC or data[2] not in (0, SIGNED):
        return 0
    return OVERHEAD_BYTES + data[1] + (int(dialect.MAVLINK_SIGNATURE_BLOCK_LEN) if data[2] else 0)
