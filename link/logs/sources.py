"""`Source`: where a format carries a signal; `found`: the first valid source of every signal.

A log is a set of tables, one for each of its messages: columns by field, with the times in `t`, s. A format lists, for each
signal, the fields that may carry it in order of preference. What a log holds decides, not which firmware wrote it: a source is
passed over where its fields are absent, or where all its values are equal and a later source is alive.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gate_racer.link.logs.samples import LoggedSignals, Samples
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, from_euler

Table = Mapping[str, Array]  # columns (N,) by field, and `t`, s
Tables = Mapping[str, Table]  # by message

FRD = np.array([1.0, -1.0, -1.0])  # factors on axes x forward, y left, z up, of world or body
PULSE_LOW_US, PULSE_US = 1000.0, 1000.0  # of radio sticks and motor outputs
RAD = math.radians(1.0)


class Source(NamedTuple):
    """Fields of a message that carry a signal, and what makes them SI values (N, n) in this project's axes."""

    message: str
    fields: tuple[str, ...]
    convert: Callable[[Array], Array]

    @property
    def called(self) -> str:
        """Name in the log: of the message, or of a table's columns."""
        return self.message or "..".join(dict.fromkeys((self.fields[0], self.fields[-1])))


def scaled(*factors: float) -> Callable[[Array], Array]:
    """Return a conversion that multiplies by a factor, or by one for each column."""
    by = np.array(factors)
    return lambda values: values * by


same, turned, turned_gravities = scaled(1.0), scaled(*FRD), scaled(*(GRAVITY * FRD))


def pulses(values: Array) -> Array:
    """Return 0..1 of pulses in us."""
    return np.clip((values - PULSE_LOW_US) / PULSE_US, 0.0, 1.0)


def eulers(factor: float = 1.0) -> Callable[[Array], Array]:
    """Return the conversion of roll, pitch and yaw, times a factor in rad, to quaternions."""
    return lambda angles: np.array([from_euler(*one) for one in angles * factor]).reshape(-1, 4)


def mean(convert: Callable[[Array], Array] = same) -> Callable[[Array], Array]:
    """Return the mean over columns, after a conversion: the throttle of motors."""
    return lambda values: convert(values).mean(axis=1, keepdims=True)


def share(values: Array) -> Array:
    """Return 0..1 of what may be logged in per cent or per mille."""
    largest = float(np.nanmax(values, initial=0.0))
    return values / next(unit for unit in (1.0, 100.0, 1000.0, largest) if largest <= 1.5 * unit or unit == largest)


def masked(bits: int, wanted: bool, convert: Callable[[Array], Array] = same) -> Callable[[Array], Array]:
    """Return a conversion of the columns behind the first, a type_mask: NaN where it has any of these bits but should not,
    or the other way round.
    """
    return lambda columns: np.where(
        ((columns[:, :1].astype(int) & bits) > 0) == wanted, convert(columns[:, 1:]), np.nan
    )


def indexed(name: str, size: int = 3) -> tuple[str, ...]:
    """Return the names of an array's fields, such as `q[0]`."""
    return tuple(f"{name}[{k}]" for k in range(size))


def xyz(name: str = "{}", axes: str = "xyz") -> tuple[str, ...]:
    """Return names of three fields, such as `AccX`, `AccY`, `AccZ`."""
    return tuple(name.format(axis) for axis in axes)


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the numbers of rows by column; NaN where a row has none."""
    names = [name for name, value in rows[0].items() if isinstance(value, int | float)]
    return {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names}


def found(tables: Tables, sources: Mapping[str, Sequence[Source]], notes: Sequence[str] = ()) -> LoggedSignals:
    """Return every signal from its first valid source."""
    signals = {}
    for name, choices in sources.items():
        present = [one for one in choices if tables.get(one.message, {}).keys() >= {*one.fields, "t"}]
        taken = [Samples(tables[one.message]["t"], _values(tables[one.message], one)) for one in present]
        taken = [one for one in taken if len(one)]
        alive = [one for one in taken if np.ptp(one.values, axis=0).any()]
        if taken:
            signals[name] = (alive or taken)[0]
    names = {
        name: " or ".join(dict.fromkeys(one.called for one in choices)) for name, choices in sources.items() if choices
    }
    return LoggedSignals(signals, tuple(notes), names)


def _values(table: Table, source: Source) -> Array:
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # damaged values
        return source.convert(np.column_stack([np.asarray(table[name], float) for name in source.fields]))
