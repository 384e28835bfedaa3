"""Parts that a user brings: the class that `package.module:Class` or `path/file.py:Class` names, and guarded calls of it.

A call that raises, or does not return in time, gives a reason in place of a result, and is counted; nothing is raised in flight.
"""

import copy
import importlib
import importlib.util
import queue
import re
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_racer.common.errors import UserError, one_line
from gate_racer.common.files import read_bytes

NAME = re.compile(r"(.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):[^\W\d]\w*|.+\.py")
SOURCE_BYTES = 4 << 20  # bytes, largest source file (chosen)
REASON = 200  # characters, longest reason of a failure (chosen)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of an object, by which equal reasons would differ
# s, longest call where time stands still meanwhile: more than any load of the machine delays one (chosen).
PATIENCE_S = 5.0
LIVE_PATIENCE_S = 0.1  # s, longest call in real time: some command periods, in which the last command acts (chosen)
PAGE = "docs/parts.md"
CLASS = "a class of your own, `package.module:Class` or `file.py:Class`"


def is_part(name: str) -> bool:
    """Return whether it has the form `package.module:Class` or `path/file.py:Class`; a file alone counts, and is refused."""
    return NAME.fullmatch(name) is not None


def part_content(name: str) -> bytes:
    """Return the source of the module that a part comes from. Raises UserError where there is none."""
    where, _ = _parted(name)
    source = where if where.endswith(".py") else _module(name, where).__file__
    if source is None:
        raise UserError(f"{name}: {where} has no source file")
    return read_bytes(Path(source), SOURCE_BYTES)


def load_part(name: str, what: str, needed: Sequence[str]) -> type:
    """Return the class of a part, which must have one of the methods `needed`. Raises UserError."""
    where, cls = _parted(name)
    module = _module(name, where)
    found = getattr(module, cls, None)
    if not isinstance(found, type):
        own = [key for key, one in vars(module).items() if isinstance(one, type) and one.__module__ == module.__name__]
        lacks = f"{where} has no class {cls!r}" if cls else f"the class is missing, as in {where}:Class"
        raise UserError(f"{name}: {lacks}; it has: {', '.join(own) or 'none'}")
    if not any(callable(getattr(found, method, None)) for method in needed):
        methods = " nor ".join(f"`{method}`" for method in needed)
        raise UserError(f"{name}: {cls} has no method {methods}, by which it would be a {what}, see {PAGE}")
    return found


def _parted(name: str) -> tuple[str, str]:
    """Return module or file, and class; "" for a file alone."""
    where, _, cls = name.rpartition(":")
    return (where, cls) if where and not cls.endswith(".py") else (name, "")


def _module(name: str, where: str) -> ModuleType:
    """Import a file, or a module that is installed. Raises UserError."""
    path = Path(where)
    if where.endswith(".py") and not path.is_file():
        raise UserError(f"{name}: {where}: no such file")
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        key = f"gate_racer_part_{path.stem}"
        spec = importlib.util.spec_from_file_location(key, path)
        assert spec is not None and spec.loader is not None, "a file's name ends in .py"
        module = sys.modules[key] = importlib.util.module_from_spec(spec)  # dataclasses and pickles look it up
        if (beside := str(path.resolve().parent)) not in sys.path:
            sys.path.append(beside)  # for what it imports beside itself; last, so that it hides nothing
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:
        raise UserError(f"{name}: cannot be imported: {described(error)}") from None


def described(error: BaseException) -> str:
    """Return type, message and place of an error in the code of a user: the last line of it that is not ours."""
    try:
        message = one_line(str(error), REASON)
    except Exception:  # of an error that cannot be shown
        message = ""
    ours = str(Path(__file__).parent.parent)
    calls = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith((ours, "<frozen"))]
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    else:
        place = f" ({calls[-1].filename}:{calls[-1].lineno})" if calls else ""
    return f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"


def array_of(value: object, *shape: int) -> NDArray[np.float64] | None:
    """Return a copy of a value as an array of this shape with finite entries; None if it is none."""
    try:
        found = np.array(value, float)
    except (TypeError, ValueError):
        return None
    return found if found.shape == shape and np.isfinite(found).all() else None


class Part:
    """An instance of a user's class whose methods are called under guard, on a thread of its own."""

    def __init__(
        self, name: str, what: str, needed: Sequence[str], given: Sequence[Any], patience_s: float = PATIENCE_S
    ):
        """Make the instance with the arguments `given`; no call may take longer than patience_s. Raises UserError."""
        self.name, self.faults = name, Counter[str]()
        self._made_by = name, what, needed, given, patience_s
        self._patience_s, self._busy = patience_s, False
        cls = load_part(name, what, needed)
        try:
            self._instance = cls(*copy.deepcopy(given))
        except (Exception, SystemExit) as error:
            raise UserError(f"{name}: cannot be made: {described(error)}") from None
        self._asked: queue.SimpleQueue[tuple[Any, tuple[Any, ...]]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, str]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def __deepcopy__(self, memo: object) -> "Part":
        """Return a new instance: parts are copied only before they have received anything."""
        return Part(*self._made_by)

    def has(self, method: str) -> bool:
        """Return whether the instance has a method, for those that are optional."""
        return callable(getattr(self._instance, method, None))

    def call(self, method: str, *given: Any) -> tuple[Any, str]:
        """Return the result of a method, and why there is none, or ""; each failure is counted in `faults`.

        The method gets copies, which are its own: what it changes in them is changed nowhere else.
        """
        if self._busy:
            self._busy = self._answers.empty()
            if self._busy:
                return None, self.fault("it has not returned from an earlier call")
            self._answers.get()
        self._asked.put((getattr(self._instance, method), copy.deepcopy(given)))
        try:
            result, why = self._answers.get(timeout=self._patience_s)
        except queue.Empty:
            self._busy = True
            return None, self.fault(f"{method} has not returned within {self._patience_s:g} s")
        return (result, "") if not why else (None, self.fault(why))

    def fault(self, why: str) -> str:
        """Count a failure, and return it with the part's name."""
        why = one_line(ADDRESS.sub("", why), REASON)
        self.faults[why] += 1
        return f"{self.name}: {why}"

    @property
    def summary(self) -> str:
        """Return how often calls have failed, and the most frequent reason; empty if none has."""
        if not self.faults:
            return ""
        (why, times), *others = self.faults.most_common()
        more = f", and {sum(count for _, count in others)} times otherwise" if others else ""
        return f"{self.name} failed {times} times: {why}{more}"

    def _work(self) -> None:
        while True:
            method, given = self._asked.get()
            try:
                answer = method(*given), ""
            except BaseException as error:  # SystemExit as well: nothing of a part may end the flight
                answer = None, described(error)
            self._answers.put(answer)
