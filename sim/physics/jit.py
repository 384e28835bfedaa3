"""Numba compilation of the plants. The vehicle's equations of motion, written for numbers and symbols, are used unchanged.

Machine code is cached outside the source tree under a hash of all its sources: Numba's own cache checks the function's
own file only, and would keep stale code of functions inlined from other files.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.extending import register_jitable

from gate_racer.common.cache import cache_folder
from gate_racer.common.compiled import compiled
from gate_racer.common.files import FileError
from gate_racer.vehicle import dynamics, rotation
from gate_racer.vehicle.rotation import Array

_SOURCES = [Path(dynamics.__file__), Path(rotation.__file__), *sorted(Path(__file__).parent.glob("*.py"))]
_KEY = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES) + numba.__version__.encode()).hexdigest()[:16]
try:
    _FOLDER = str(cache_folder() / f"numba-{_KEY}")
except FileError:
    _FOLDER = ""  # Numba's own choice, or no cache

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
_compile = compiled(nogil=True, error_model="numpy")  # release the GIL; division by zero gives inf


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call, and cache the machine code for the next process.

    The cache folder is set for this function alone, so that other packages keep theirs whatever the order of imports.
    """
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, _FOLDER
    try:
        return _compile(function)
    finally:
        config.CACHE_DIR = before


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Inline a function into its compiled callers, so that wide tuples stay in registers; from Python it runs uncompiled."""
    return register_jitable(forceinline=True)(function)


def record(parameters: T) -> T:
    """Convert a (nested) NamedTuple of numbers and tuples to a NumPy record of the same names: a few us per call to pass."""
    return cast(T, np.array(parameters, dtype=_dtype(parameters))[()])


def boxed(parameters: tuple) -> Array:
    """Return the `record` as the only element of an array, which is passed to compiled code ten times as fast: 0.4 us."""
    return np.array([record(parameters)])


def _dtype(parameters: Any) -> np.dtype:
    fields = [
        (name, _dtype(value)) if hasattr(value, "_fields") else (name, np.float64, np.shape(value))
        for name, value in zip(parameters._fields, parameters, strict=True)
    ]
    return np.dtype((np.record, fields))
