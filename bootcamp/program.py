"""A learner's program: a Python file with `decide(report, pads)`, and if it likes `detect(image)`, `locate(box, report)` and
`SCENARIO`. Whatever it does, what comes out of here is a command, boxes and places, or an error that names its line."""

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

from bootcamp.api import Box, Command, Go, Halt, Land, Location, Null, Report, Unreadable
from bootcamp.floor import Image
from bootcamp.ground import locate
from bootcamp.hints import NO_RETURN, blanks
from bootcamp.pads import detect_pads
from vehicle.errors import UserError, one_line, say

TEXT_MAX = 80  # of what is shown of an unreadable command
BOXES_MAX = 1000
NUMBER_MAX = 1e6  # of a box in px and a place in m: beyond, nothing can be drawn or flown to
LOAD_S = 20.0  # for the statements of a file; functions run later
STRIKES = 3  # of the limit, until a file that swallows it is given up
ALL_LOCALS = ("locals", "vars", "dir", "eval", "exec", "sys", "inspect")  # names by which code reads arguments unnamed
TOLD_CODE = 77  # exit code of a process that has said why it leaves


class StillRunning(BaseException):
    """Struck a file that does not end."""


@dataclass(frozen=True)
class Program:
    """Its functions."""

    decide: Callable[[Report, Sequence[Location]], Any]
    detect: Callable[[Image], Any]
    locate: Callable[[Box, Report], Any]
    scenario: str

    @property
    def looks(self) -> bool:
        """Whether any answer may depend on an image: `detect` or `locate` is its own, or `decide` reads pads."""
        return (self.detect, self.locate) != (detect_pads, _ours) or _reads_second(self.decide)

    def command(self, report: Report, pads: Sequence[Location]) -> Command | Unreadable:
        """Asks for the next command. Raises whatever the program raises, but not what its answer does."""
        said = self.decide(report, pads)
        try:
            return _command(said)
        except Exception as error:
            return Unreadable(f"{shown(said)} ({told(error)})")

    def boxes(self, image: Image) -> tuple[list[Box], int]:
        """What it detects, and how much of its answer was no box of four finite numbers in the right order."""
        said = self.detect(image)
        answers = list(itertools.islice(said, BOXES_MAX)) if isinstance(said, list | tuple | np.ndarray) else [said]
        boxes = [box for answer in answers if (box := _box(answer)) is not None]
        return boxes, len(answers) - len(boxes)

    def places(self, boxes: Sequence[Box], report: Report) -> tuple[list[Location], int]:
        """Where boxes lie on the ground, and how many of them nowhere."""
        found = [_location(self.locate(box, report)) for box in boxes]
        places = [place for place in found if place is not None]
        return places, len(found) - len(places)


def _command(said: Any) -> Command | Unreadable:
    """A command of our own making, whatever class or numbers the answer has."""
    if isinstance(said, Go):
        numbers = (said.north, said.east, said.up)
        if any(isinstance(n, bool) or not isinstance(n, int | float | np.number) for n in numbers):
            return Unreadable(shown(said))
        return Go(*map(float, numbers))
    for kind in (Null, Halt, Land):
        if isinstance(said, kind):
            return kind()
    return Unreadable(shown(said), NO_RETURN if said is None else "")


def _numbers(answer: Any, count: int) -> list[float] | None:
    """Exactly so many numbers, none beyond NUMBER_MAX, or None."""
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
    """A value as text of bounded length, even where its own `__repr__` fails."""
    try:
        return one_line(repr(value)[: 2 * TEXT_MAX], TEXT_MAX)
    except Exception as error:
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def told(error: BaseException) -> str:
    """An exception as one line, even where its own `__str__` fails."""
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__


def load_program(path: Path) -> Program:
    """Runs the file once.

    Raises:
        UserError: no such file, an error in it, statements that do not end, a blank that is left, or no function `decide`.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such program, see examples/")
    if left := blanks(path):
        raise UserError(f"{path}:{left[0].line}: a blank (...) is left to fill in: {left[0].text}")
    try:
        with _limited(path):
            names = runpy.run_path(str(path))
    except (Exception, SystemExit, StillRunning) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = (error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else 1) or 1
        what = _endless() if isinstance(error, StillRunning) else told(error)
        raise UserError(f"{path}:{line}: {what}") from None
    decide, detect, place = names.get("decide"), names.get("detect", detect_pads), names.get("locate", _ours)
    if not callable(decide):
        raise UserError(f"{path}: has no function decide(report, pads), see examples/waypoint.py")
    for name, function, form in (("detect", detect, "detect(image)"), ("locate", place, "locate(box, report)")):
        if not callable(function):
            raise UserError(f"{path}: {name} must be a function {form}")
    return Program(decide, detect, place, str(names.get("SCENARIO", "waypoint")))


def _ours(box: Box, report: Report) -> Location | None:
    return locate(box, report.height, report.position, report.q_wb, report.camera)


def _reads_second(function: Callable[..., Any]) -> bool:
    """Whether a function may read its second argument. Only Python code that loads neither that nor all locals does not."""
    if not isinstance(function, FunctionType) or function.__code__.co_argcount < 2:
        return True
    code = function.__code__
    loaded = set[Any]()
    for instruction in dis.get_instructions(code):
        named = instruction.argval  # newer Pythons load two at once
        loaded.update(named if isinstance(named, tuple) else (named,))
    return not loaded.isdisjoint({code.co_varnames[1], *ALL_LOCALS})


def _endless() -> str:
    return (
        f"still running after {LOAD_S:g} s: a loop outside of functions? `decide` is asked again at every step, so the file"
        " needs no loop of its own"
    )


@contextlib.contextmanager
def _limited(path: Path) -> Iterator[None]:
    """Strikes what runs inside after LOAD_S, several times, and in the end leaves the process, as one line says. Where
    there are no timers (Windows), or in a thread, nothing strikes."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    strikes = 0

    def strike(_: int, frame: FrameType | None) -> None:
        nonlocal strikes
        strikes += 1
        if strikes == STRIKES:
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
