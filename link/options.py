"""The command-line options of whoever hears a simulator or a flight controller: where, whom, and by which key or consent."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from link.msp.ports import CONSENT_OPTION, SAFETY_PAGE
from link.peer import Address
from link.signing import SigningKey, read_key
from link.sockets import listening_host, parse_address, parse_peer


@dataclass(frozen=True)
class Link:
    """Where MAVLink, or MSP in its place, and video are heard, and of whom."""

    mavlink: Address
    video: Address
    peer: Address | None = None  # as of `parse_peer`; None: whoever is on this machine, or reaches --listen
    key: SigningKey | None = None
    msp: str = ""  # as of `open_port`
    consent: str = ""  # the page that was read, which that asks for


def add_link_arguments(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--peer", default="", metavar="HOST[:PORT]", help="accept messages from this machine's simulator only"
    )
    arguments.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="MAVLink (default: 127.0.0.1:14550; with --peer 0.0.0.0:14550)",
    )
    arguments.add_argument(
        "--video", default="", metavar="HOST:PORT", help="video (default: port 5600 of the host of --listen)"
    )
    arguments.add_argument(
        "--signing-key",
        type=Path,
        metavar="FILE",
        help="sign MAVLink with the passphrase in FILE, and refuse unsigned messages",
    )


def add_msp_arguments(arguments: argparse.ArgumentParser, purpose: str) -> None:
    """`purpose`: what is done with the flight controller."""
    help_text = f"{purpose}, on a serial port or tcp:HOST:PORT, see docs/betaflight.md"
    arguments.add_argument("--msp", default="", metavar="WHERE", help=help_text)
    arguments.add_argument(
        CONSENT_OPTION,
        default="",
        metavar="PAGE",
        help=f"with --msp: {SAFETY_PAGE}, required for a port that may be a real aircraft",
    )


def link_of(arguments: argparse.Namespace, mavlink_port: int, video_port: int) -> Link:
    """What the options say, with a profile's ports.

    Raises:
        UserError: malformed addresses, an unknown host, or no key in the file.
    """
    peer = parse_peer(arguments.peer) if arguments.peer else None
    mavlink = parse_address(arguments.listen or listening_host(peer), mavlink_port)
    video = parse_address(arguments.video or mavlink[0], video_port)
    key = read_key(arguments.signing_key, time.time()) if arguments.signing_key else None
    given = vars(arguments)  # not every command speaks MSP
    return Link(mavlink, video, peer, key, given.get("msp", ""), given.get("i_have_read", ""))
