"""A learner's program: its loading, and its calls in flight, with every mistake in what it returns or raises named.

It is a Python file with `decide(report, pads)`, and optionally `detect(image)`, `locate(box, report)` and `SCENARIO`; modules
beside it can be imported. Its results are validated commands, boxes and places. It runs in a process of its own (`cell.py`).
"""

import difflib
import dis
import itertools
import os
import re
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
TOO_LARGE = f"numbers that are not finite, or over {NUMBER_MAX:g}"
OPENCV = re.compile(r"^OpenCV\(.*?error: | in function 'cv::.*'$", re.MULTILINE)  # of its errors
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
        return self.detect is not detect_pads

    @property
    def own_locate(self) -> bool:
        return self.locate is not _default_locate

    def command(self, report: Report, pads: Sequence[Location]) -> Command | Unreadable:
        """Return the next command. Raises whatever the program raises; an invalid return value is `Unreadable`."""
        returned = self.decide(report, pads)
        try:
            return _command(returned)
        except Exception as error:
            return Unreadable(f"{shown(returned)} ({error_line(error)})")

    def boxes(self, image: Image, mistakes: Counter[str]) -> list[Box]:
        """Return its detections in an image (H, W, 3) BGR; what is no box is dropped and counted."""
        returned, dropped = self.detect(image), "boxes: {} dropped: "
        if not isinstance(returned, list | tuple | np.ndarray) or isinstance(returned, Box):
            kind = "None" if returned is None else f"one {type(returned).__name__}"
            mistakes[f"{dropped}detect returned {kind}: return a list of boxes"] += 1
            return []
        found = [_box(answer) for answer in itertools.islice(returned, BOXES_MAX)]
        mistakes.update(dropped + box for box in found if isinstance(box, str))
        return [box for box in found if isinstance(box, Box)]

    def places(self, boxes: Sequence[Box], report: Report, mistakes: Counter[str]) -> list[Location]:
        """Return the places of boxes on the ground; what is no place is dropped and counted."""
        found = [_place(self.locate(box, report)) for box in boxes]
        mistakes.update(f"places: {{}} dropped: {place}" for place in found if isinstance(place, str))
        return [place for place in found if isinstance(place, Location)]


def _command(returned: Any) -> Command | Unreadable:
    if isinstance(returned, Go):
        numbers = (returned.north, returned.east, returned.up)
        if any(isinstance(n, bool) or not isinstance(n, int | float | np.number) for n in numbers):
            return Unreadable(shown(returned), "north, east and up must be numbers, in m")
        return Go(*map(float, numbers))
    for kind in (Null, Halt, Land):
        if isinstance(returned, kind):
            return kind()
    return Unreadable(shown(returned), advice_on_answer(returned))


def _numbers(answer: Any, names: Sequence[str], what: str) -> list[float] | str:
    """Return a number for each name, or the reason why not: `what` an answer has, or a number that is no use."""
    try:
        numbers = [float(number) for number in itertools.islice(iter(answer), len(names) + 1)]
    except Exception:
        numbers = []
    if len(numbers) != len(names):
        return what
    return numbers if all(abs(number) <= NUMBER_MAX for number in numbers) else TOO_LARGE


def _box(answer: Any) -> Box | str:
    numbers = _numbers(answer, Box._fields, "a box has four numbers: left, top, right and bottom")
    if isinstance(numbers, str):
        return numbers
    box = Box(*numbers)
    if box.left > box.right:
        return "x1 < x0, did you pass x, y, w, h?"
    return "y1 < y0, did you pass x, y, w, h?" if box.top > box.bottom else box


def _place(answer: Any) -> Location | str:
    if answer is None:
        return "locate returned None: does every path through `locate` end in a `return`?"
    numbers = _numbers(answer, Location._fields, "a place has two numbers, north and east")
    return numbers if isinstance(numbers, str) else Location(*numbers)


def shown(value: Any) -> str:
    """Return a value as text of bounded length, even if its own `__repr__` fails."""
    try:
        return one_line(repr(value)[: 2 * TEXT_MAX], TEXT_MAX)
    except BaseException as error:  # its `__repr__` may well call exit()
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def error_line(error: BaseException) -> str:
    """Return an exception as one line, even if its own `__str__` fails."""
    try:
        text = OPENCV.sub("", str(error)[:TRACEBACK_MAX])
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
    line = error_line(error)
    return f"{line}; {advice}" if (advice := advice_on_error(line)) else line


def error_in_flight(error: BaseException, path: Path) -> str:
    """Return an exception as one line, with the program's own innermost line."""
    if isinstance(error, UserError):
        return str(error)
    place = error_place(error, path)
    return error_told(error) + (f" (in `{place[2]}` at {place[0].name}:{place[1]})" if place else "")


def load_program(path: Path) -> Program:
    """Run the file once and return its program. Its folder is the first to import from, each time with new modules.
    Raises UserError for a file that is missing, fails, has a blank left to fill in, or has no function `decide`."""
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
    loaded = set[Any]()
    for instruction in dis.get_instructions(function):
        named = instruction.argval  # newer Pythons load two names in one instruction
        loaded.update(named if isinstance(named, tuple) else (named,))
    return not loaded.isdisjoint({function.__code__.co_varnames[1], *ALL_LOCALS})
