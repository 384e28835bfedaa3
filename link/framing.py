"""MAVLink 2 packets: splitting datagrams into messages and packing messages, with pymavlink for fields and checksums."""

from dataclasses import dataclass
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.signing import SigningKey

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
