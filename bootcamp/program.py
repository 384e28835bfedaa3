"""A learner's program: its loading, and its calls in flight, with every mistake in what it returns or raises named.

It is a Python file with `decide(report, pads)`, and optionally `detect(image)`, `locate(box, report)` and `SCENARIO`; modules
beside it can be imported. Its results are validated commands, boxes and places. It runs in a process of its own (`cell.py`).
"""

import contextlib
import difflib
import dis
import itertools
import os
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from gate_racer.bootcamp.api import Box, Command, Go, Halt, Land, Location, Null, Report, Unreadable
from gate_racer.bootcamp.floor import detect_pads, locate
from gate_racer.bootcamp.mistakes import advice_on_answer, advice_on_error, blanks
from gate_racer.common.errors import UserError, one_line
from gate_racer.sim.view.texture import Image

TEXT_MAX = 80  # characters shown of an unreadable command
TRACEBACK_MAX = 20_000  # characters kept of a traceback, the last ones (chosen)
BOXES_MAX = 1000  # greatest number of boxes used of an image
NUMBER_MAX = 1e6  # greatest coordinate of a box in px or a place in m, beyond drawing and flying
ALL_LOCALS = ("locals", "vars", "dir", "eval", "exec", "sys", "inspect")  # names that give access to unnamed arguments
SITES = ("site-packages", "dist-packages")  # folders of installed modules, perhaps beside the program


@dataclass(frozen=True)
class Program:
    """Functions of a program, and the name of its scenario."""

    decide: Callable[[Report, Sequence[Location]], Any]
    detect: Callable[[Image], Any]
    locate: Callable[[Box, Report], Any]
    scenario: str

    @property
    def looks(self) -> bool:
        """Whether any command may depend on an image: `detect` or `locate` is its own, or `decide` reads pads."""
        return self.own_detect or self.own_locate or _reads_second(self.decide)

    @property
    def own_detect(self) -> bool:
        """Whether `detect` is the program's own."""
        return self.detect is not detect_pads

    @property
    def own_locate(self) -> bool:
        """Whether `locate` is the program's own."""
        return self.locate is not _default_locate

    def command(self, report: Report, pads: Sequence[Location]) -> Command | Unreadable:
        """Return the next command. Raises whatever the program raises; an invalid return value is `Unreadable`."""
        returned = self.decide(report, pads)
        try:
            return _command(returned)
        except Exception as error:
            return Unreadable(f"{shown(returned)} ({error_line(error)})")

    def boxes(self, image: Image) -> tuple[list[Box], Counter[str]]:
        """Return its detections in an image (H, W, 3) BGR, and the reasons for which others are dropped."""
        returned, dropped = self.detect(image), Counter[str]()
        if not isinstance(returned, list | tuple | np.ndarray) or isinstance(returned, Box):
            return [], Counter([f"detect returned {_kind(returned)}: return a list of boxes"])
        answers = [_box(answer) for answer in itertools.islice(returned, BOXES_MAX)]
        dropped.update(answer for answer in answers if isinstance(answer, str))
        return [answer for answer in answers if isinstance(answer, Box)], dropped

    def places(self, boxes: Sequence[Box], report: Report) -> tuple[list[Location], Counter[str]]:
        """Return the places of boxes on the ground, and the reasons for which others are dropped."""
        found = [_place(self.locate(box, report)) for box in boxes]
        dropped = Counter(place for place in found if isinstance(place, str))
        return [place for place in found if isinstance(place, Location)], dropped


def _command(returned: Any) -> Command | Unreadable:
    """Convert a return value to a command of the API's own types."""
    if isinstance(returned, Go):
        numbers = (returned.north, returned.east, returned.up)
        if any(isinstance(n, bool) or not isinstance(n, int | float | np.number) for n in numbers):
            return Unreadable(shown(returned), "north, east and up must be numbers, in m")
        return Go(*map(float, numbers))
    for kind in (Null, Halt, Land):
        if isinstance(returned, kind):
            return kind()
    return Unreadable(shown(returned), advice_on_answer(returned))


def _numbers(answer: Any, count: int) -> list[float] | None:
    """Return exactly `count` numbers; None if the answer is otherwise."""
    try:
        numbers = [float(number) for number in itertools.islice(iter(answer), count + 1)]
    except Exception:
        return None
    return numbers if len(numbers) == count else None


def _kind(value: Any) -> str:
    """Return the kind of a value that should be another, in words."""
    return "None" if value is None else f"one {type(value).__name__}"


def _box(answer: Any) -> Box | str:
    """Return a box, or the reason for which it is none."""
    numbers = _numbers(answer, 4)
    if numbers is None:
        return "a box has four numbers: left, top, right and bottom"
    if not all(abs(number) <= NUMBER_MAX for number in numbers):
        return f"numbers that are not finite, or over {NUMBER_MAX:g}"
    box = Box(*numbers)
    if box.left > box.right:
        return "x1 < x0, did you pass x, y, w, h?"
    return "y1 < y0, did you pass x, y, w, h?" if box.top > box.bottom else box


def _place(answer: Any) -> Location | str:
    """Return a place, or the reason for which it is none."""
    numbers = _numbers(answer, 2)
    if answer is None:
        return "locate returned None: does every path through `locate` end in a `return`?"
    if numbers is None:
        return "a place has two numbers, north and east"
    if not all(abs(number) <= NUMBER_MAX for number in numbers):
        return f"numbers that are not finite, or over {NUMBER_MAX:g}"
    return Location(*numbers)


def shown(value: Any) -> str:
    """Return a value as text of bounded length, even if its own `__repr__` fails."""
    try:
        return one_line(repr(value)[: 2 * TEXT_MAX], TEXT_MAX)
    except BaseException as error:  # its `__repr__` may well call exit()
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def error_line(error: BaseException) -> str:
    """Return an exception as one line, even if its own `__str__` fails."""
    try:
        text = str(error)[:TRACEBACK_MAX]
        return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    except BaseException:
        return type(error).__name__


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception, its last `TRACEBACK_MAX` characters, even if the exception cannot be shown."""
    return "".join([*traceback.format_tb(error.__traceback__), error_line(error)])[-TRACEBACK_MAX:]


def own_file(file: str, path: Path) -> bool:
    """Check whether a file of a traceback is the program, or a module beside it."""
    folder = os.fspath(path.absolute().parent) + os.sep
    return file == str(path) or (file.startswith(folder) and not any(site in file for site in SITES))


def error_place(error: BaseException, path: Path) -> tuple[Path, int, str] | None:
    """Return file, line and function of the innermost frame of an exception that is the learner's own."""
    if isinstance(error, SyntaxError) and error.filename and own_file(error.filename, path):
        return Path(error.filename), error.lineno or 1, "<module>"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if own_file(frame.filename, path)]
    return (Path(frames[-1].filename), frames[-1].lineno or 1, frames[-1].name) if frames else None


def error_told(error: BaseException) -> str:
    """Return an exception as one line, with what to do about a usual mistake."""
    line, advice = error_line(error), ""
    with contextlib.suppress(BaseException):  # the exception is the learner's own, and so are its attributes
        advice = advice_on_error(error, line)
    return f"{line}; {advice}" if advice else line


def error_in_flight(error: BaseException, path: Path) -> str:
    """Return an exception as one line, with the program's own innermost line."""
    place = error_place(error, path)
    return (
        error_told(error) if place is None else f"{error_told(error)} (in `{place[2]}` at {place[0].name}:{place[1]})"
    )


def load_program(path: Path) -> Program:
    """Run the file once and return its program. Its folder is the first to import from, each time with new modules.

    Raises:
        UserError: the file is missing, fails, has a blank left to fill in, or has no function `decide`.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such program; `gate-racer examples` writes some to examples/")
    if left := blanks(path):
        raise UserError(f"{path}:{left[0].line}: a blank (...) is left to fill in: {left[0].text}")
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before = set(sys.modules)
    try:
        names = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        file, line, _ = error_place(error, path) or (path, 1, "")
        raise UserError(f"{file}:{line}: {error_told(error)}") from None
    for name in set(sys.modules) - before:
        if own_file(getattr(sys.modules[name], "__file__", None) or "", path):
            del sys.modules[name]
    decide, detect, place = names.get("decide"), names.get("detect", detect_pads), names.get("locate", _default_locate)
    if not callable(decide):
        near = difflib.get_close_matches("decide", [name for name, value in names.items() if callable(value)], 1)
        meant = f"; is `{near[0]}` meant to be it?" if near else "; see examples/waypoint.py"
        raise UserError(f"{path}: has no function decide(report, pads){meant}")
    for name, function, form in (("detect", detect, "detect(image)"), ("locate", place, "locate(box, report)")):
        if not callable(function):
            raise UserError(f"{path}: {name} must be a function {form}")
    return Program(decide, detect, place, str(names.get("SCENARIO", "waypoint")))


def _default_locate(box: Box, report: Report) -> Location | None:
    return locate(box, report.height, report.position, report.q_wb, report.camera)


def _reads_second(function: Callable[..., Any]) -> bool:
    """Check whether a function may read its second argument: False only for Python code that loads neither it nor all locals."""
    if not isinstance(function, FunctionType) or function.__code__.co_argcount < 2:
        return True
    code = function.__code__
    loaded = set[Any]()
    for instruction in dis.get_instructions(code):
        named = instruction.argval  # newer Pythons load two names in one instruction
        loaded.update(named if isinstance(named, tuple) else (named,))
    return not loaded.isdisjoint({code.co_varnames[1], *ALL_LOCALS})
