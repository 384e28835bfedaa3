"""Messages of numbers in a fixed layout, as dataclasses: their fields in order, vectors one number after the other."""

import functools
import math
import struct
from collections.abc import Iterable
from dataclasses import astuple, fields
from itertools import islice
from typing import Any, ClassVar, get_args, get_type_hints

from typing_extensions import Self

from gate_racer.link.reassembly import MalformedError


class Packed:
    """Base class of a dataclass whose fields are numbers, and tuples of a fixed number of numbers."""

    LAYOUT: ClassVar[struct.Struct]
    SUM: ClassVar[tuple[int, ...]] = ()  # check_sum, the first number
    WHAT: ClassVar[str]  # in messages

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the bytes of one message. Raises MalformedError for another length or check_sum, or numbers not finite."""
        return cls.of(unpacked(cls.LAYOUT, cls.SUM, data, cls.WHAT)[len(cls.SUM) :])

    @classmethod
    def of(cls, numbers: Iterable[Any]) -> Self:
        rest = iter(numbers)
        return cls(*(tuple(islice(rest, width)) if width else next(rest) for width in _widths(cls)))  # type: ignore[arg-type]

    def encode(self) -> bytes:
        numbers = (n for value in astuple(self) for n in (value if isinstance(value, tuple) else (value,)))  # type: ignore[call-overload]
        return self.LAYOUT.pack(*self.SUM, *numbers)


@functools.cache
def _widths(cls: type) -> list[int]:
    """Return the numbers in each field that is a tuple; 0 for a single number."""
    hints = get_type_hints(cls)
    return [len(get_args(hints[field.name])) for field in fields(cls)]


def unpacked(layout: struct.Struct, check_sum: tuple[int, ...], data: bytes, what: str) -> tuple[Any, ...]:
    """Return all numbers of a message. Raises MalformedError as `Packed.decode`."""
    if len(data) != layout.size:
        raise MalformedError(f"{what} has {layout.size} bytes, not {len(data)}")
    numbers = layout.unpack(data)
    if numbers[: len(check_sum)] != check_sum:
        raise MalformedError(f"{what} begins with {check_sum[0]}, not {numbers[0]}")
    if not all(math.isfinite(number) for number in numbers if isinstance(number, float)):
        raise MalformedError(f"{what} holds numbers that are not finite")
    return numbers
