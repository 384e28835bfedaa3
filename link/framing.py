"""MAVLink 2 packets: a datagram is split into messages and a message is packed, with pymavlink for fields and checksums."""

from dataclasses import dataclass
from typing import Any

from pymavlink.dialects.v20 import common as dialect

MAGIC = dialect.PROTOCOL_MARKER_V2
SIGNED = dialect.MAVLINK_IFLAG_SIGNED
OVERHEAD_BYTES = 12  # header and checksum around a payload


@dataclass(slots=True)
class Counters:
    """What a decoder has dropped."""

    malformed: int = 0  # stretches of bytes that are no MAVLink 2 message
    unsupported: int = 0  # messages that this side does not read
    invalid: int = 0  # not finite, or otherwise without meaning
    wrong_target: int = 0  # meant for another system


class Framing:
    """Packets of one sender: packs with a running sequence number, unpacks whatever comes.

    Each datagram is parsed on its own, so that a broken one cannot spoil the next.
    """

    def __init__(self, system: int, component: int, counters: Counters):
        self._counters = counters
        self._mav = dialect.MAVLink(None, srcSystem=system, srcComponent=component)

    def pack(self, message: Any) -> bytes:
        """The bytes of a pymavlink message."""
        packet: bytes = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return packet

    def unpack(self, datagram: bytes) -> list[Any]:
        """The pymavlink messages of a datagram. Never raises; what is broken is counted, signatures are not checked."""
        messages = []
        while datagram:
            size = _packet_bytes(datagram)
            if not 0 < size <= len(datagram):
                self._counters.malformed += 1
                break
            try:
                messages.append(self._mav.decode(bytearray(datagram[:size])))
            except dialect.MAVError:
                self._counters.malformed += 1
            datagram = datagram[size:]
        return messages


def _packet_bytes(data: bytes) -> int:
    """How long the packet at the start of `data` says that it is; 0 if that is no MAVLink 2 header."""
    if len(data) < OVERHEAD_BYTES or data[0] != MAGIC or data[2] not in (0, SIGNED):
        return 0
    return OVERHEAD_BYTES + data[1] + (int(dialect.MAVLINK_SIGNATURE_BLOCK_LEN) if data[2] else 0)
