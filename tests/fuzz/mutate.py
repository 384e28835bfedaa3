"""Mutants of bytes: what a bad disk, a cut transfer, an editor and somebody who means harm make of a file."""

import random
from collections.abc import Callable

WORDS = (
    b"\0", b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"nan", b"-inf", b"1e999", b"9" * 5000, b"-",
    b"\n", b"\"", b"'", b"[" * 2000, b"{\"a\":" * 500, b"&a [*a]", b"*a", b"!!python/object:os.system x", b"!!set",
    b"2020-01-01", b"0x" + b"f" * 500, b"<<: ", b"null", b"true", b"~", b"../../etc/passwd", b"</script><script>x",
    b"\xe2\x80\xa8", b"\xed\xa0\x80", b"1" + b"0" * 30, b",,,", b"# ", b"%", b"\t", b"{}", b"[]", b"0", b"-1", b"1.5",
    b"a: &a [1,1]\nb: &b [*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n", b"4294967296",
)  # fmt: skip
TOKENS = b" \t\n,:[]{}\"'"


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 2, 4))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _drop(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, rng.randrange(1, 400)))]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 16, rng.randrange(1, 4000)))
    data[at:at] = data[at : at + size] * rng.choice((1, 2, 50))


def _word(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.choice((0, 0, 1, 4, 8))] = rng.choice(WORDS)


def _token(rng: random.Random, data: bytearray) -> None:
    """Another word in the place of one that a text has."""
    begin = at = rng.randrange(len(data))
    while begin > 0 and data[begin - 1] not in TOKENS:
        begin -= 1
    while at < len(data) and data[at] not in TOKENS and at - begin < 80:
        at += 1
    data[begin:at] = rng.choice(WORDS)


def _swap(rng: random.Random, data: bytearray) -> None:
    a, b, size = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 64)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


WAYS: tuple[Callable[[random.Random, bytearray], None], ...] = (_flip, _set, _cut, _drop, _repeat, _word, _token, _swap)
MOST_BYTES = 4 << 20


def mutant(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if changed:
            rng.choice(WAYS)(rng, changed)
    return bytes(changed[:MOST_BYTES])
