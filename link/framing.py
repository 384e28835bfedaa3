"""MAVLink 2 packets: a datagram is split into messages and a message is packed, with pymavlink for fields and checksums."""

from dataclasses import dataclass
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from link.signing import SigningKey

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
    unsigned: int = 0  # not signed with our key, or signed before; only where there is a key


class Framing:
    """Packets of one sender: packs with a running sequence number, unpacks whatever comes.

    Each datagram is parsed on its own, so that a broken one cannot spoil the next.
    """

    def __init__(self, system: int, component: int, counters: Counters, key: SigningKey | None = None):
        """With a key everything is signed, and what comes must be."""
        self._counters, self._key = counters, key
        self._mav = dialect.MAVLink(None, srcSystem=system, srcComponent=component)
        if key is not None:
            key.install(self._mav)

    def pack(self, message: Any) -> bytes:
        """The bytes of a pymavlink message."""
        packet: bytes = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return packet

    def unpack(self, datagram: bytes) -> list[Any]:
        """The pymavlink messages of a datagram. Never raises; what is broken or not signed is counted."""
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
            if self._mav.signing.badsig_count > refused:  # a stamp that was used
                self._counters.unsigned += 1
            else:
                self._counters.malformed += 1
            return None


def _packet_bytes(data: bytes) -> int:
    """How long the packet at the start of `data` says that it is; 0 if that is no MAVLink 2 header."""
    if len(data) < OVERHEAD_BYTES or data[0] != MAGIC or data[2] not in (0, SIGNED):
        return 0
    return OVERHEAD_BYTES + data[1] + (int(dialect.MAVLINK_SIGNATURE_BLOCK_LEN) if data[2] else 0)
