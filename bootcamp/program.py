"""A learner's program: a Python file with `decide(report, pads)`, and optionally `detect(image)`, `locate(box, report)` and
`SCENARIO`. Its results are validated commands, boxes and places, or an error that names its line."""

import contextlib
import dis
import itertools
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import numpy as np

from gate_racer.bootcamp.api import Box, Command, Go, Halt, Land, Location, Null, Report, Unreadable
from gate_racer.bootcamp.ground import locate
from gate_racer.bootcamp.hints import NO_RETURN, blanks
from gate_racer.bootcamp.pads import detect_pads
from gate_racer.sim.view.texture import Image
from gate_racer.vehicle.errors import UserError, one_line, say

TEXT_MAX = 80  # characters shown of an unreadable command
BOXES_MAX = 1000  # greatest number of boxes used of an image
NUMBER_MAX = 1e6  # greatest coordinate of a box in px or a place in m, beyond drawing and flying
LOAD_S = 20.0  # s for the statements of a file; its functions run later
TIMEOUTS_MAX = 3  # timeouts after which a file that catches the exception is terminated
ALL_LOCALS = ("locals", "vars", "dir", "eval", "exec", "sys", "inspect")  # names that give access to unnamed arguments
TOLD_CODE = 77  # exit code of a process that has already printed its error


class StillRunning(BaseException):
    """Raised in a file whose statements do not end within `LOAD_S`."""


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
        return (self.detect, self.locate) != (detect_pads, _default_locate) or _reads_second(self.decide)

    def command(self, report: Report, pads: Sequence[Location]) -> Command | Unreadable:
        """Return the next command. Raises whatever the program raises; an invalid return value is `Unreadable`."""
        returned = self.decide(report, pads)
        try:
            return _command(returned)
        except Exception as error:
            return Unreadable(f"{shown(returned)} ({error_line(error)})")

    def boxes(self, image: Image) -> tuple[list[Box], int]:
        """Return its detections in an image (H, W, 3) BGR, and the number of malformed boxes."""
        returned = self.detect(image)
        answers = (
            list(itertools.islice(returned, BOXES_MAX))
            if isinstance(returned, list | tuple | np.ndarray)
            else [returned]
        )
        boxes = [box for answer in answers if (box := _box(answer)) is not None]
        return boxes, len(answers) - len(boxes)

    def places(self, boxes: Sequence[Box], report: Report) -> tuple[list[Location], int]:
        """Return the places of boxes on the ground, and the number of boxes without one."""
        found = [_location(self.locate(box, report)) for box in boxes]
        places = [place for place in found if place is not None]
        return places, len(found) - len(places)


def _command(returned: Any) -> Command | Unreadable:
    """Convert a return value to a command of the API's own types."""
    if isinstance(returned, Go):
        numbers = (returned.north, returned.east, returned.up)
        if any(isinstance(n, bool) or not isinstance(n, int | float | np.number) for n in numbers):
            return Unreadable(shown(returned))
        return Go(*map(float, numbers))
    for kind in (Null, Halt, Land):
        if isinstance(returned, kind):
            return kind()
    return Unreadable(shown(returned), NO_RETURN if returned is None else "")


def _numbers(answer: Any, count: int) -> list[float] | None:
    """Return exactly `count` numbers, none beyond NUMBER_MAX; None if the answer is otherwise."""
    try:
        numbers = [float(number) for number in itertools.islice(iter(answer), count + 1)]
    except Exception:
        return None
    return numbers if len(numbers) == count and all(abs(number) <= NUMBER_MAX for number in numbers) else None


def _box(answer: Any) -> Box | None:
    numbers = _numbers(answer, 4)
    box = Box(*numbers) if numbers else None
    return box if box and box.left <= box.right and box.top <= box.bottom else None


def _location(answer: Any) -> Location | None:
    numbers = _numbers(answer, 2)
    return Location(*numbers) if numbers else None


def shown(value: Any) -> str:
    """Return a value as text of bounded length, even if its own `__repr__` fails."""
    try:
        return one_line(repr(value)[: 2 * TEXT_MAX], TEXT_MAX)
    except Exception as error:
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def error_line(error: BaseException) -> str:
    """Return an exception as one line, even if its own `__str__` fails."""
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__


def load_program(path: Path) -> Program:
    """Run the file once and return its program.

    Raises:
        UserError: the file is missing, fails, does not end, has a blank left to fill in, or has no function `decide`.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such program; `gate-racer examples` writes some to examples/")
    if left := blanks(path):
        raise UserError(f"{path}:{left[0].line}: a blank (...) is left to fill in: {left[0].text}")
    try:
        with _limited(path):
            names = runpy.run_path(str(path))
    except (Exception, SystemExit, StillRunning) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = (error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else 1) or 1
        what = _endless() if isinstance(error, StillRunning) else error_line(error)
        raise UserError(f"{path}:{line}: {what}") from None
    decide, detect, place = names.get("decide"), names.get("detect", detect_pads), names.get("locate", _default_locate)
    if not callable(decide):
        raise UserError(f"{path}: has no function decide(report, pads); see examples/waypoint.py")
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


def _endless() -> str:
    return (
        f"still running after {LOAD_S:g} s: a loop outside of functions? `decide` is called at every step, so the file"
        " needs no loop of its own"
    )


@contextlib.contextmanager
def _limited(path: Path) -> Iterator[None]:
    """Raise `StillRunning` in the block every LOAD_S, and after `TIMEOUTS_MAX` times print the error and exit the process.

    Without timers (Windows), or outside the main thread, there is no limit.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    strikes = 0

    def strike(_: int, frame: FrameType | None) -> None:
        nonlocal strikes
        strikes += 1
        if strikes == TIMEOUTS_MAX:
            while frame is not None and frame.f_code.co_filename != str(path):
                frame = frame.f_back
            say(f"error: {path}:{frame.f_lineno if frame else 1}: {_endless()}", sys.stderr)
            os._exit(TOLD_CODE)
        raise StillRunning

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, LOAD_S, LOAD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
