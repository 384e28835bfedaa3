"""Layouts of state and input vectors: slices, column names, units and frames, defined once."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Field:
    """Named block of a vector."""

    at: slice
    columns: tuple[str, ...]  # names of its entries in CSV headers and logs, e.g. p_x
    unit: str
    frame: str  # frame or description


class Layout(dict[str, Field]):
    """Ordered mapping of names to `Field`; `x[RATES_X["v"].at]` is the velocity."""

    @cached_property
    def size(self) -> int:
        """Number of entries of the vector."""
        return sum(len(field.columns) for field in self.values())

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Column names of all entries, in order."""
        return tuple(column for field in self.values() for column in field.columns)


def layout(**fields: tuple[str, str, str]) -> Layout:
    """Build a layout from name=(component suffixes, unit, frame); no suffix means a scalar."""
    result, start = Layout(), 0
    for name, (suffixes, unit, frame) in fields.items():
        columns = tuple(f"{name}_{suffix}" for suffix in suffixes.split()) or (name,)
        result[name] = Field(slice(start, start + len(columns)), columns, unit, frame)
        start += len(columns)
    return result
