"""Numba compilation of the plants. The vehicle's equations of motion, written for numbers and symbols, are used unchanged.

Machine code is cached outside the source tree under a hash of all its sources: Numba's own cache checks the function's
own file only, and would keep stale code of functions inlined from other files.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from gate_racer.common.compiled import code_folder, compiled
from gate_racer.common.compiled import inlined as inlined
from gate_racer.vehicle import dynamics, rotation
from gate_racer.vehicle.rotation import Array

T = TypeVar("T", bound=tuple)


def _sources() -> list[Path]:
    return [Path(dynamics.__file__), Path(rotation.__file__), *sorted(Path(__file__).parent.glob("*.py"))]


# Release the GIL; division by zero gives inf.
njit: Callable[[Callable[..., Any]], Callable[..., Any]] = compiled(
    folder=code_folder(_sources), nogil=True, error_model="numpy"
)


def record(parameters: T) -> T:
    """Convert a NamedTuple of numbers, tuples, dataclasses and NamedTuples to a NumPy record of the same names."""
    return cast(T, np.array(_plain(parameters), dtype=_dtype(parameters))[()])


def boxed(parameters: tuple) -> Array:
    """Return the `record` as the only element of an array, which is passed to compiled code ten times as fast: 0.4 us."""
    return np.array([record(parameters)])


def _names(parameters: Any) -> tuple[str, ...]:
    if is_dataclass(parameters):
        return tuple(field.name for field in fields(parameters))
    return getattr(parameters, "_fields", ())


def _plain(parameters: Any) -> Any:
    names = _names(parameters)
    return tuple(_plain(getattr(parameters, name)) for name in names) if names else parameters


def _dtype(parameters: Any) -> np.dtype:
    parts = ((name, getattr(parameters, name)) for name in _names(parameters))
    kinds = [(name, _dtype(one)) if _names(one) else (name, np.float64, np.shape(one)) for name, one in parts]
    return np.dtype((np.record, kinds))
