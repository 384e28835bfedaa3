"""Both ends' codecs and datagrams, for tests."""

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.client import ClientCodec
from gate_racer.link.profile import load_profile
from gate_racer.link.server import ServerCodec

SPEC = load_profile("spec")


def said(codec: ServerCodec, message) -> bytes:
    """A message as one datagram."""
    return b"".join(codec.encode(message))


def client() -> ClientCodec:
    return ClientCodec(SPEC)


def server() -> ServerCodec:
    return ServerCodec(SPEC)


def packed(message, system=255, component=190) -> bytes:
    """A pymavlink message as some other program would send it."""
    return message.pack(dialect.MAVLink(None, srcSystem=system, srcComponent=component))
