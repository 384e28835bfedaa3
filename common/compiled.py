"""Array types of images and masks, and functions that Numba compiles at their first call.

Numba takes longer to load than most programs take to start, and the functions of a flight a minute to compile: so a module only
declares them. `warm_up` compiles those of a known signature, before a flight.
"""

import functools
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gate_racer.common.errors import say
from gate_racer.common.files import FileError

Image = NDArray[np.uint8]  # (H, W) one channel or (H, W, 3) BGR; pixel centres are at integers
Float32 = NDArray[np.float32]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(
    signature: str | None = None, folder: Callable[[], str] | None = None, **options: Any
) -> Callable[[Function], Function]:
    """Declare a function that Numba compiles at its first call, for an explicit signature if given, and for no other then.

    Machine code is kept for the next process where a folder can be written. Numba's own folder tracks the function's own file
    only: compiled functions that call each other stay in one file, unless `folder` returns one for all their sources.
    """

    def declared(function: Function) -> Function:
        return cast(Function, CompiledFunction(function, signature, folder, options))

    return declared


def code_folder(sources: Callable[[], Sequence[Path]]) -> Callable[[], str]:
    """Return the `folder` of functions in several files that call each other, by a hash of their sources; "" without any."""

    @functools.cache
    def folder() -> str:
        from importlib.metadata import version

        from gate_racer.common.cache import cache_folder

        content = b"".join(path.read_bytes() for path in sources()) + version("numba").encode()
        try:
            return str(cache_folder() / f"numba-{hashlib.sha256(content).hexdigest()[:16]}")
        except FileError:
            return ""

    return folder


def inlined(function: Function) -> Function:
    """Declare a function to be inlined into compiled callers, so that wide tuples stay in registers; Python runs it as it is."""
    _INLINED.append(function)
    return function


def warm_up() -> None:
    """Compile, or load from the cache, the functions with a signature of all modules loaded so far."""
    for function in _SIGNED:
        _ = function.dispatcher


class CompiledFunction:
    """Function that is compiled when it is called, from Python or by another compiled one, or looked at by `warm_up`."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: str | None,
        folder: Callable[[], str] | None,
        options: dict[str, Any],
    ):
        functools.update_wrapper(self, function)
        self._declared = function, signature, folder, options
        _MODULES.add(function.__module__)
        if signature is not None:
            _SIGNED.append(self)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher; with a signature, compiled."""
        numba = _numba()
        while _INLINED:
            numba.extending.register_jitable(forceinline=True)(_INLINED.pop())
        function, signature, folder, options = self._declared
        config: Any = numba.config
        before = config.CACHE_DIR  # of other packages, which keep theirs whatever the order of imports
        config.CACHE_DIR = folder() if folder is not None else before
        try:
            return numba.njit(signature, cache=True, **options)(function)
        except RuntimeError:  # Numba finds no folder for the cache that it can write
            return numba.njit(signature, **options)(function)
        finally:
            config.CACHE_DIR = before

    @property
    def _numba_type_(self) -> Any:
        """Type by which Numba finds the dispatcher where another compiled function calls this one."""
        return self.dispatcher._numba_type_


_INLINED: list[Callable[..., Any]] = []  # declared, but unknown to Numba yet
_SIGNED: list[CompiledFunction] = []
_MODULES: set[str] = set()  # that declare functions, and have not been told of


@functools.cache
def _numba() -> Any:
    """Return Numba, loaded at the first use. Each module is named on stderr before the first function of it is compiled."""
    import numba
    from numba.core import event

    class Teller(event.Listener):
        def on_start(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            module = dispatcher.py_func.__module__
            if module in _MODULES:
                _MODULES.remove(module)
                kept = "once" if dispatcher.stats.cache_path else "no cache can be written"
                say(f"compiling {module} ({kept})", sys.stderr)

        def on_end(self, event: Any) -> None:
            pass

    listen: Any = event.register
    listen("numba:compile", Teller())
    return numba
