"""MAVLink 2 message signing: 48 bits of SHA-256 over key and packet, and a stamp that must increase from packet to packet.

https://mavlink.io/en/guide/message_signing.html. pymavlink signs and stores the stamps; the hash is checked here beforehand,
since pymavlink accepts a packet's stamp before it checks its signature, so that one forgery could block the true sender.
"""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate_racer.vehicle.errors import UserError

EPOCH_S = 1_420_070_400  # 2015-01-01 00:00 UTC, in Unix time
UNITS_PER_S = 100_000  # units of the stamp
HASH_BYTES = 6  # bytes of the signature (MAVLink 2, message signing)


@dataclass(frozen=True)
class SigningKey:
    """A shared secret, and the time at which its use began."""

    secret: bytes  # 32 bytes
    now_s: float  # Unix time; both ends must agree to a minute

    def install(self, mav: Any) -> None:
        """Make a `dialect.MAVLink` sign what it packs and require signatures on what it decodes."""
        mav.signing.secret_key, mav.signing.sign_outgoing = self.secret, True
        mav.signing.timestamp = round((self.now_s - EPOCH_S) * UNITS_PER_S)

    def signed(self, packet: bytes) -> bool:
        """Return whether the signature at the end of a packet was made with this key."""
        signature = hashlib.sha256(self.secret + packet[:-HASH_BYTES]).digest()[:HASH_BYTES]
        return hmac.compare_digest(signature, packet[-HASH_BYTES:])


def read_key(path: Path, now_s: float) -> SigningKey:
    """Read the key of a file: SHA-256 of its stripped text, as ground stations derive theirs from a passphrase.

    Raises:
        UserError: the file cannot be read, or is empty.
    """
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not text:
        raise UserError(f"{path}: is empty: expected a passphrase")
    return SigningKey(hashlib.sha256(text).digest(), now_s)
