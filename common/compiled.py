"""Array types of images and masks, and typed compilation."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # (H, W) one channel or (H, W, 3) BGR; pixel centres are at integers
Float32 = NDArray[np.float32]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: str | None = None, **options: Any) -> Callable[[Function], Function]:
    """Compile a function by Numba, at import for an explicit signature, and cache the machine code where a folder can be written.

    The cache tracks the function's own file only: compiled functions that call each other stay in one file.
    """

    def compile_(function: Function) -> Function:
        try:
            return cast(Function, njit(signature, cache=True, **options)(function))
        except RuntimeError:  # Numba finds no folder for the cache that it can write
            return cast(Function, njit(signature, **options)(function))

    return compile_
