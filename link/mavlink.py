"""MAVLink 2: definitions shared by both ends, signing, and packets.

Definitions shared by both ends of the MAVLink 2 link: ids, type masks and checks of single fields. VADR-TS-002, 4.3 to 4.5.

MAVLink 2 message signing: 48 bits of SHA-256 over key and packet, and a stamp that must increase from packet to packet.

https://mavlink.io/en/guide/message_signing.html. pymavlink signs and stores the stamps; the hash is checked here beforehand,
since pymavlink accepts a packet's stamp before it checks its signature, so that one forgery could block the true sender.

MAVLink 2 packets: splitting datagrams into messages and packing messages, with pymavlink for fields and checksums.
"""

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.errors import UserError
from gate_racer.vehicle.rotation import Quaternion

CLIENT = (255, dialect.MAV_COMP_ID_MISSIONPLANNER)  # system, component
SIMULATOR_SYSTEM = 1  # system id of the simulator's vehicle

IGNORE_RATE = (  # roll, pitch, yaw
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_YAW_RATE_IGNORE,
)
RATES_RAD_S = 16  # bit that the real builds since 3390 read as "rates are in rad/s"; unused in MAVLink
THRUST_BODY = 32  # ATTITUDE_TARGET_TYPEMASK_THRUST_BODY_SET, which older definitions lack
IGNORE_THRUST = dialect.ATTITUDE_TARGET_TYPEMASK_THROTTLE_IGNORE
IGNORE_ATTITUDE = dialect.ATTITUDE_TARGET_TYPEMASK_ATTITUDE_IGNORE
RIVAL = b"RIVAL"  # DEBUG_FLOAT_ARRAY: array_id is the place on the start; position (m, world NED) and velocity (m/s)
ACCEL_AND_GYRO = 0x3F  # HIGHRES_IMU.fields_updated
UNMEASURED = [math.nan] * 7  # magnetometer, pressures, altitude, temperature


def milliseconds(t: float) -> int:
    """Return t (s) as the 32-bit field of a stamp."""
    return round(t * 1e3) & 0xFFFFFFFF


def finite(values: Sequence[float]) -> bool:
    """Check that all values are finite."""
    return all(map(math.isfinite, values))


def unit(q: Sequence[float]) -> Quaternion | None:
    """Return q / |q|; None if it is zero or not finite."""
    norm = math.hypot(*q)
    if not math.isfinite(norm) or norm < 1e-6:
        return None
    return q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm


def scaled(signs: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    """Apply a sign convention to values; applying it again undoes it."""
    return tuple(sign * value for sign, value in zip(signs, values, strict=True))


EPOCH_S = 1_420_070_400  # 2015-01-01 00:00 UTC, in Unix time
UNITS_PER_S = 100_000  # units of the stamp
HASH_BYTES = 6  # bytes of the signature (MAVLink 2, message signing)


@dataclass(frozen=True)
class SigningKey:
    """A shared secret, and the time at which its use began."""

    secret: bytes  # 32 bytes
    now_s: float  # Unix time; both ends must agree to a minute

    def install(self, mav: Any) -> None:
        """Make a `dialect.MAVLink` sign what it packs and require signatures on what it decodes."""
        mav.signing.secret_key, mav.signing.sign_outgoing = self.secret, True
        mav.signing.timestamp = round((self.now_s - EPOCH_S) * UNITS_PER_S)

    def signed(self, packet: bytes) -> bool:
        """Return whether the signature at the end of a packet was made with this key."""
        signature = hashlib.sha256(self.secret + packet[:-HASH_BYTES]).digest()[:HASH_BYTES]
        return hmac.compare_digest(signature, packet[-HASH_BYTES:])


def read_key(path: Path, now_s: float) -> SigningKey:
    """Read the key of a file: SHA-256 of its stripped text, as ground stations derive theirs from a passphrase.

    Raises:
        UserError: the file cannot be read, or is empty.
    """
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not text:
        raise UserError(f"{path}: is empty: expected a passphrase")
    return SigningKey(hashlib.sha256(text).digest(), now_s)


MAGIC = dialect.PROTOCOL_MARKER_V2
SIGNED = dialect.MAVLINK_IFLAG_SIGNED
OVERHEAD_BYTES = 12  # header and checksum of a packet


@dataclass(slots=True)
class Counters:
    """Counts of input dropped by a decoder."""

    malformed: int = 0  # byte sequences that are not a MAVLink 2 message
    unsupported: int = 0  # messages that this end does not read
    invalid: int = 0  # not finite, or otherwise invalid
    wrong_target: int = 0  # addressed to another system
    unsigned: int = 0  # not signed with our key, or replayed; only with a key


class Framing:
    """Packets of one end: packs with a running sequence number, and unpacks.

    Each datagram is parsed on its own, so that a broken one does not affect the next.
    """

    def __init__(self, system: int, component: int, counters: Counters, key: SigningKey | None = None):
        """Create it; with a key, outgoing packets are signed and unsigned ones are dropped."""
        self._counters, self._key = counters, key
        self._mav = dialect.MAVLink(None, srcSystem=system, srcComponent=component)
        if key is not None:
            key.install(self._mav)

    def pack(self, message: Any) -> bytes:
        """Return the bytes of a pymavlink message."""
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
                break
            message = self._decoded(datagram[:size])
            if message is not None:
                messages.append(message)
            datagram = datagram[size:]
        return messages

    def _decoded(self, packet: bytes) -> Any:
        if self._key is not None and not (packet[2] & SIGNED and self._key.signed(packet)):
            self._counters.unsigned += 1
            return None
        refused = self._mav.signing.badsig_count
        try:
            return self._mav.decode(bytearray(packet))
        except dialect.MAVError:
            if self._mav.signing.badsig_count > refused:  # a replayed stamp
                self._counters.unsigned += 1
            else:
                self._counters.malformed += 1
            return None


def _packet_bytes(data: bytes) -> int:
    """Return the packet length stated at the start of `data`; 0 if there is no MAVLink 2 header."""
    if len(data) < OVERHEAD_BYTES or data[0] != MAGIC or data[2] not in (0, SIGNED):
        return 0
    return OVERHEAD_BYTES + data[1] + (int(dialect.MAVLINK_SIGNATURE_BLOCK_LEN) if data[2] else 0)
