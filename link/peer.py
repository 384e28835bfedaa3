"""Whom a client hears: one autopilot, known by its address, system and component. MAVLink, "Heartbeat/Connection Protocol".

Only an autopilot's HEARTBEAT binds: components that are none (gimbals, cameras, ground stations) announce themselves with
MAV_AUTOPILOT_INVALID. All else is foreign, be it of another address, of another system on the same link or of another component
of the same system.
"""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

Address = tuple[str, int]
Source = tuple[int, int]  # system, component
SILENCE_S = 3.0  # after which a peer gives way: a few heartbeats of the slowest autopilots (PX4 sends one a second)


def is_autopilot(packet: Any) -> bool:
    """Whether a pymavlink message is the HEARTBEAT of something that flies."""
    return (
        isinstance(packet, dialect.MAVLink_heartbeat_message)
        and packet.autopilot != dialect.MAV_AUTOPILOT_INVALID
        and packet.type != dialect.MAV_TYPE_GCS
    )


class Peer:
    """The autopilot, once it has been heard; times in s of any steady clock.

    Until the link is complete it may turn out to be the wrong one, and gives way: to the one whose ids the profile names at once,
    to any other after a while.
    """

    def __init__(self, host: str = "", port: int = 0, expected: Source | None = None):
        """
        Args:
            host, port: where it must be, numeric; empty or 0 for anywhere.
            expected: system and component of the simulator in the profile.
        """
        self.address: Address | None = None
        self._wanted, self._expected = (host, port), expected
        self._source: Source = 0, 0
        self._rival: tuple[Address, Source] | None = None  # another autopilot, heard since this one was met
        self._met = self._heard = 0.0
        self._complete = self._changed = False

    def may_speak(self, sender: Address) -> bool:
        """Whether datagrams of an address are worth reading."""
        host, port = self._wanted
        return (
            host in ("", sender[0])
            and port in (0, sender[1])
            and (self.address in (None, sender) or not self._complete)
        )

    def admits(self, packet: Any, sender: Address, now: float) -> bool:
        """Whether a pymavlink message is the autopilot's; the first HEARTBEAT of one binds."""
        source = packet.get_srcSystem(), packet.get_srcComponent()
        if (self.address, self._source) != (sender, source):
            if self._complete or not is_autopilot(packet):
                return False
            if self.address is not None and (source != self._expected or self._source == self._expected):
                self._rival = sender, source
                return False
            self._bind(sender, source, now)
        self._heard = now
        return True

    def _bind(self, address: Address | None, source: Source, now: float) -> None:
        self._changed = self._changed or self.address is not None
        self.address, self._source, self._rival, self._met, self._heard = address, source, None, now, now
        self._complete = False

    def reconsider(self, now: float, complete: bool) -> bool:
        """Lets go of an autopilot that has fallen silent, or with which the link is not complete while there is another. To be
        called often before GO.

        Args:
            complete: whether all has been heard that a flight needs.

        Returns:
            Whether it is gone, or was exchanged since the last call: what was heard of it is void.
        """
        self._complete = complete
        if self.address is not None and now - self._heard >= SILENCE_S:
            self._bind(None, (0, 0), now)
        elif not complete and self._rival is not None and now - self._met >= SILENCE_S:
            self._bind(*self._rival, now)
        changed, self._changed = self._changed, False
        return changed
