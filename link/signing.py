"""MAVLink 2 message signing: 48 bits of SHA-256 over key and packet, and a stamp that must rise with every packet of a stream.

https://mavlink.io/en/guide/message_signing.html. pymavlink signs and keeps the stamps; the hash is checked here beforehand,
since pymavlink believes a packet's stamp before its signature, so that one forgery could silence the true sender.
"""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vehicle.errors import UserError

EPOCH_S = 1_420_070_400  # 2015-01-01 00:00 UTC, in Unix time
UNITS_PER_S = 100_000  # of stamps
HASH_BYTES = 6


@dataclass(frozen=True)
class SigningKey:
    """A shared secret, and when its use began."""

    secret: bytes  # 32 bytes
    now_s: float  # Unix time; the other end must agree to a minute

    def install(self, mav: Any) -> None:
        """Makes a `dialect.MAVLink` sign what it packs and demand signatures of what it decodes."""
        mav.signing.secret_key, mav.signing.sign_outgoing = self.secret, True
        mav.signing.timestamp = round((self.now_s - EPOCH_S) * UNITS_PER_S)

    def signed(self, packet: bytes) -> bool:
        """Whether the signature at the end of a packet was made with this key."""
        signature = hashlib.sha256(self.secret + packet[:-HASH_BYTES]).digest()[:HASH_BYTES]
        return hmac.compare_digest(signature, packet[-HASH_BYTES:])


def read_key(path: Path, now_s: float) -> SigningKey:
    """The key of a file: SHA-256 of its text without the white space around, as ground stations make theirs of a passphrase.

    Raises:
        UserError: the file cannot be read, or is empty.
    """
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not text:
        raise UserError(f"{path}: is empty; a signing key is a passphrase in a file")
    return SigningKey(hashlib.sha256(text).digest(), now_s)
