"""Array types of images and masks, and typed compilation."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # (H, W) one channel or (H, W, 3) BGR; pixel centres are at integers
Float32 = NDArray[np.float32]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: str | None = None) -> Callable[[Function], Function]:
    """Compile a function by Numba, at import for an explicit signature, and cache the machine code where a folder can be written.

    The cache tracks the function's own file only: compiled functions that call each other stay in one file.
    """

    def compile_function(function: Function) -> Function:
        try:
            return cast(Function, njit(signature, cache=True)(function))
        except RuntimeError:  # neither the package's folder nor the user's cache can be written
            return cast(Function, njit(signature)(function))

    return compile_function
