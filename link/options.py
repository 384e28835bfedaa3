"""Command-line options of the link to a simulator or flight controller: addresses, peer, signing key and consent."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.errors import UserError
from gate_racer.link.mavlink import SigningKey, read_key
from gate_racer.link.msp.ports import CONSENT_OPTION, SAFETY_PAGE
from gate_racer.link.sockets import Address, listening_host, parse_address, parse_peer


@dataclass(frozen=True)
class Link:
    """Addresses to receive MAVLink (or MSP in its place) and video on, and the permitted peer."""

    mavlink: Address
    video: Address
    peer: Address | None = None  # as from `parse_peer`; None: any on this machine, or any that reaches --listen
    key: SigningKey | None = None
    msp: str = ""  # as for `open_port`
    consent: str = ""  # page read by the user, as `open_port` requires


def add_link_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the options of a MAVLink and video link."""
    arguments.add_argument(
        "--peer", default="", metavar="HOST[:PORT]", help="accept messages only from the simulator on this host"
    )
    arguments.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="receive MAVLink on this address (default: 127.0.0.1:14550; with --peer 0.0.0.0:14550)",
    )
    arguments.add_argument(
        "--video",
        default="",
        metavar="HOST:PORT",
        help="receive video on this address (default: port 5600 of --listen)",
    )
    arguments.add_argument(
        "--signing-key",
        type=Path,
        metavar="FILE",
        help="sign MAVLink with the passphrase in FILE, and reject unsigned messages",
    )


def add_msp_arguments(arguments: argparse.ArgumentParser, purpose: str) -> None:
    """Add the options; `purpose` says what is done with the flight controller."""
    help_text = f"{purpose}, on a serial port or tcp:HOST:PORT, see docs/betaflight.md"
    arguments.add_argument("--msp", default="", metavar="WHERE", help=help_text)
    arguments.add_argument(
        CONSENT_OPTION,
        default="",
        metavar="PAGE",
        help=f"with --msp: {SAFETY_PAGE}, required for a port that may be a real aircraft",
    )


def link_of(arguments: argparse.Namespace, mavlink_port: int, video_port: int) -> Link:
    """Return the link of the options, with the ports of a profile.

    Raises:
        UserError: malformed address, unknown host, or no key in the file.
    """
    peer = parse_peer(arguments.peer) if arguments.peer else None
    mavlink = parse_address(arguments.listen or listening_host(peer), mavlink_port)
    video = parse_address(arguments.video or mavlink[0], video_port)
    key = read_key(arguments.signing_key, time.time()) if arguments.signing_key else None
    given = vars(arguments)  # some commands have no MSP options
    if peer is not None and peer == mavlink:
        raise UserError(
            f"--peer {arguments.peer}: is the address listened on; name the simulator's, such as port 14560"
        )
    return Link(mavlink, video, peer, key, given.get("msp", ""), given.get("i_have_read", ""))
