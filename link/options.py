"""Settings of the link to a simulator or flight controller: addresses, peer, signing key and consent."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gate_racer.common.errors import UserError
from gate_racer.common.settings import key

if TYPE_CHECKING:
    from gate_racer.link.mavlink import SigningKey
    from gate_racer.link.sockets import Address

SAFETY_PAGE = "docs/safety.md"
CAMERAS = V4L2, GSTREAMER, FILM = "v4l2", "gst", "film"  # what stands before the colon of a camera's name
VIEW_PORT = 8765  # TCP port of live views, Foxglove's default
TERMINAL = "pty"  # in place of a serial line of the simulated flight controller


@dataclass(frozen=True)
class Link:
    mavlink: "Address"
    video: "Address"
    peer: "Address | None" = None  # as from `parse_peer`; None: any on this machine, or any that reaches `listen`
    key: "SigningKey | None" = None


NOWHERE = Link(("", 0), ("", 0))  # of a flight in one process


@dataclass(frozen=True)
class ConsentSettings:
    i_have_read: str = key(
        "", f"{SAFETY_PAGE}, required for a port that may be a real aircraft; by `--set` only", typed=True
    )


@dataclass(frozen=True)
class LinkSettings:
    profile: str = key("spec", "wire profile: name or YAML file", "NAME")
    peer: str = key("", "accept messages only from the simulator on this host", "HOST[:PORT]")
    listen: str = key(
        "", "receive MAVLink on this address; else 127.0.0.1:14550, with a peer 0.0.0.0:14550", "HOST:PORT"
    )
    video: str = key("", "receive video on this address, HOST:PORT; else port 5600 of `link.listen`")
    signing_key: Path | None = key(None, "sign MAVLink with the passphrase in this file, and reject unsigned messages")

    def opened(self, mavlink_port: int, video_port: int) -> Link:
        """Return the link, with the ports of a profile. Raises UserError for a malformed address, unknown host, or no key."""
        from gate_racer.link.mavlink import read_key
        from gate_racer.link.sockets import listening_host, parse_address, parse_peer, returns

        peer = parse_peer(self.peer) if self.peer else None
        mavlink = parse_address(self.listen or listening_host(peer), mavlink_port)
        video = parse_address(self.video or mavlink[0], video_port)
        signing = read_key(self.signing_key, time.time()) if self.signing_key else None
        if peer is not None and returns(peer, mavlink):
            cure = "name the simulator's, such as port 14560"
            raise UserError(f"link.peer {self.peer}: is the address listened on; {cure}")
        return Link(mavlink, video, peer, signing)
