"""MAVLink 2: definitions shared by both ends (VADR-TS-002, 4.3 to 4.5), and packets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pymavlink.dialects.v20 import common as dialect

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


MAGIC = dialect.PROTOCOL_MARKER_V2
OLD_MAGIC = dialect.PROTOCOL_MARKER_V1
OLD = "messages are of MAVLink 1: let their sender speak MAVLink 2 (a program on pymavlink: MAVLINK20=1 in its environment)"
SIGNED = dialect.MAVLINK_IFLAG_SIGNED
OVERHEAD_BYTES = 12  # header and checksum of a packet


@dataclass(slots=True)
class Counters:
    malformed: int = 0  # byte sequences that are not a MAVLink 2 message
    unsupported: int = 0  # messages that this end does not read
    invalid: int = 0  # not finite, or otherwise invalid
    wrong_target: int = 0  # addressed to another system


class Framing:
    """Packets of one end. Each datagram is parsed on its own, so that a broken one does not affect the next."""

    def __init__(self, system: int, component: int, counters: Counters):
        self._counters, self._mav = counters, dialect.MAVLink(None, srcSystem=system, srcComponent=component)
        self.refused = ""  # why packets were refused, if their sender can help it

    def pack(self, message: Any) -> bytes:
        packet: bytes = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return packet

    def unpack(self, datagram: bytes) -> list[Any]:
        """Return the pymavlink messages of a datagram. Never raises; broken packets are counted."""
        messages = []
        while datagram:
            size = _packet_bytes(datagram)
            if not 0 < size <= len(datagram):
                self._counters.malformed += 1
                if datagram[0] == OLD_MAGIC:
                    self.refused = OLD
                break
            packet, datagram = datagram[:size], datagram[size:]
            try:
                messages.append(self._mav.decode(bytearray(packet)))
            except dialect.MAVError:
                self._counters.malformed += 1
        return messages


def _packet_bytes(data: bytes) -> int:
    """Return the packet length stated at the start of `data`; 0 if there is no MAVLink 2 header."""
    if len(data) < OVERHEAD_BYTES or data[0] != MAGIC or data[2] not in (0, SIGNED):
        return 0
    return OVERHEAD_BYTES + data[1] + (int(dialect.MAVLINK_SIGNATURE_BLOCK_LEN) if data[2] else 0)
