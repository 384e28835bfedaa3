"""MULTIPLE_MSP: several answers in one frame, which saves a wait for each. Betaflight 4.4, `src/main/msp/msp.c`."""

from collections.abc import Sequence


def split_multiple(payload: bytes) -> list[bytes] | None:
    """The payloads in an answer to MULTIPLE_MSP, each with its size before it; None where the sizes do not fit."""
    parts, at = list[bytes](), 0
    while at < len(payload):
        end = at + 1 + payload[at]
        if end > len(payload):
            return None
        parts.append(payload[at + 1 : end])
        at = end
    return parts


def join_multiple(parts: Sequence[bytes]) -> bytes:
    """The inverse of `split_multiple`."""
    return b"".join(bytes((len(part),)) + part for part in parts)
