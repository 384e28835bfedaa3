"""Numba for the plants. The vehicle's equations of motion, written for numbers and symbols, serve here as they are.

Compiled code is cached outside the source tree, by a hash of everything that it depends on: Numba's own cache looks at
one file only, and would keep the old text of a function in another file.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.extending import register_jitable

from vehicle import dynamics, rotation
from vehicle.cache import cache_folder
from vehicle.rotation import Array

_SOURCES = [Path(dynamics.__file__), Path(rotation.__file__), *sorted(Path(__file__).parent.glob("*.py"))]
_KEY = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES) + numba.__version__.encode()).hexdigest()[:16]
_FOLDER = str(cache_folder() / f"numba-{_KEY}")

for _function in (
    rotation.product,
    rotation.rotate,
    rotation.rate,
    rotation.conjugate,
    dynamics.drag,
    dynamics.translation,
    dynamics.authority,
    dynamics.rates,
    dynamics.rotors,
):
    register_jitable(forceinline=True)(_function)

T = TypeVar("T", bound=tuple)
_compile = numba.njit(cache=True, nogil=True, error_model="numpy")  # threads run beside each other; 1/0 is infinite


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call, and keep the machine code for the next process.

    The folder is set for this function alone: other rooms find their machine code where they keep it, whoever is imported first.
    """
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, _FOLDER
    try:
        return cast(Callable[..., Any], _compile(function))
    finally:
        config.CACHE_DIR = before


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function into each that calls it, so that wide tuples stay in registers. Called from Python it is Python."""
    return register_jitable(forceinline=True)(function)


def record(parameters: T) -> T:
    """A (nested) NamedTuple of numbers and tuples as a record with the same names, which costs a call a few microseconds."""
    return cast(T, np.array(parameters, dtype=_dtype(parameters))[()])


def boxed(parameters: tuple) -> Array:
    """A `record` as the only element of an array, which is handed over ten times as fast: 0.4 us."""
    return np.array([record(parameters)])


def _dtype(parameters: Any) -> np.dtype:
    fields = [
        (name, _dtype(value)) if hasattr(value, "_fields") else (name, np.float64, np.shape(value))
        for name, value in zip(parameters._fields, parameters, strict=True)
    ]
    return np.dtype((np.record, fields))
