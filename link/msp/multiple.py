"""MULTIPLE_MSP: several replies in one frame, which saves a round trip for each. Betaflight 4.4, `src/main/msp/msp.c`."""

from collections.abc import Sequence


def split_multiple(payload: bytes) -> list[bytes] | None:
    """Return the payloads in a reply to MULTIPLE_MSP, each preceded by its size; None if the sizes are inconsistent."""
    parts, at = list[bytes](), 0
    while at < len(payload):
        end = at + 1 + payload[at]
        if end > len(payload):
            return None
        parts.append(payload[at + 1 : end])
        at = end
    return parts


def join_multiple(parts: Sequence[bytes]) -> bytes:
    """Return the inverse of `split_multiple`."""
    return b"".join(bytes((len(part),)) + part for part in parts)
