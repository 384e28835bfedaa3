"""Selection of the autopilot that a client listens to, by address and ids. MAVLink, "Heartbeat/Connection Protocol".

Only an autopilot's HEARTBEAT binds: other components (gimbals, cameras, ground stations) send MAV_AUTOPILOT_INVALID. All else
is foreign: another address, another system on the same link, or another component of the same system.
"""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

Address = tuple[str, int]
Sender = tuple[int, int]  # system, component
SILENCE_S = 3.0  # s of silence, after which a peer is released: a few heartbeats of the slowest autopilots (PX4: 1 Hz)


def is_autopilot(packet: Any) -> bool:
    """Return whether a pymavlink message is the HEARTBEAT of a vehicle."""
    return (
        isinstance(packet, dialect.MAVLink_heartbeat_message)
        and packet.autopilot != dialect.MAV_AUTOPILOT_INVALID
        and packet.type != dialect.MAV_TYPE_GCS
    )


class Peer:
    """The autopilot, once received; times in s of any monotonic clock.

    Until the link is complete it may be replaced: at once by one with the ids in the profile, by any other after a while.
    """

    def __init__(self, host: str = "", port: int = 0, expected: Sender | None = None):
        """
        Args:
            host, port: required address, numeric; empty or 0 for anywhere.
            expected: system and component of the simulator in the profile.
        """
        self.address: Address | None = None
        self._wanted, self._expected = (host, port), expected
        self._source: Sender = 0, 0
        self._rival: tuple[Address, Sender] | None = None  # another autopilot, received since this one was bound
        self._met = self._received = 0.0
        self._complete = self._changed = False

    def may_speak(self, sender: Address) -> bool:
        """Return whether datagrams of an address are to be read."""
        host, port = self._wanted
        return (
            host in ("", sender[0])
            and port in (0, sender[1])
            and (self.address in (None, sender) or not self._complete)
        )

    def admits(self, packet: Any, sender: Address, now: float) -> bool:
        """Return whether a pymavlink message is the autopilot's; its first HEARTBEAT binds."""
        source = packet.get_srcSystem(), packet.get_srcComponent()
        if (self.address, self._source) != (sender, source):
            if self._complete or not is_autopilot(packet):
                return False
            if self.address is not None and (source != self._expected or self._source == self._expected):
                self._rival = sender, source
                return False
            self._bind(sender, source, now)
        self._received = now
        return True

    def _bind(self, address: Address | None, source: Sender, now: float) -> None:
        self._changed = self._changed or self.address is not None
        self.address, self._source, self._rival, self._met, self._received = address, source, None, now, now
        self._complete = False

    def reconsider(self, now: float, complete: bool) -> bool:
        """Release an autopilot that is silent, or whose link is incomplete while another is received. Call it until GO.

        Args:
            complete: all messages that a flight needs were received.

        Returns:
            Whether it was released or replaced since the last call: its messages are void.
        """
        self._complete = complete
        if self.address is not None and now - self._received >= SILENCE_S:
            self._bind(None, (0, 0), now)
        elif not complete and self._rival is not None and now - self._met >= SILENCE_S:
            self._bind(*self._rival, now)
        changed, self._changed = self._changed, False
        return changed
