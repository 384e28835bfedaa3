"""Whom a client hears: one autopilot, known by its address, system and component. MAVLink, "Heartbeat/Connection Protocol".

Only an autopilot's HEARTBEAT binds: components that are none (gimbals, cameras, ground stations) announce themselves with
MAV_AUTOPILOT_INVALID. All else is foreign, be it of another address, of another system on the same link or of another component
of the same system.
"""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

Address = tuple[str, int]
SILENCE_S = 3.0  # after which a peer may be let go: a few heartbeats of the slowest autopilots (PX4 sends one a second)


def is_autopilot(packet: Any) -> bool:
    """Whether a pymavlink message is the HEARTBEAT of something that flies."""
    return (
        isinstance(packet, dialect.MAVLink_heartbeat_message)
        and packet.autopilot != dialect.MAV_AUTOPILOT_INVALID
        and packet.type != dialect.MAV_TYPE_GCS
    )


class Peer:
    """The autopilot, once it has been heard; times in s of any steady clock."""

    def __init__(self, host: str = "", port: int = 0):
        """
        Args:
            host, port: where it must be, numeric; empty or 0 for anywhere.
        """
        self.address: Address | None = None
        self._wanted = host, port
        self._source = 0, 0  # system, component
        self._heard = 0.0

    def may_speak(self, sender: Address) -> bool:
        """Whether datagrams of an address are worth reading."""
        host, port = self._wanted
        return host in ("", sender[0]) and port in (0, sender[1]) and self.address in (None, sender)

    def admits(self, packet: Any, sender: Address, now: float) -> bool:
        """Whether a pymavlink message is the autopilot's; the first HEARTBEAT of one binds."""
        source = packet.get_srcSystem(), packet.get_srcComponent()
        if self.address is None and is_autopilot(packet):
            self.address, self._source = sender, source
        if (self.address, self._source) != (sender, source):
            return False
        self._heard = now
        return True

    def let_go(self, now: float) -> bool:
        """Forgets an autopilot that has been silent for `SILENCE_S`, so that another can be taken; returns whether it did."""
        if self.address is None or now - self._heard < SILENCE_S:
            return False
        self.address = None
        return True
