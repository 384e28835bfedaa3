"""A learner's program: loading, common mistakes, and its calls in flight.

It is a Python file with `decide(report, pads)`, and optionally `detect(image)`, `locate(box, report)` and `SCENARIO`. Its
results are validated commands, boxes and places, or an error that names its line. Common mistakes are found without
running it; it first runs in a process of its own, so that its statements cannot affect main.
"""

import ast
import contextlib
import dis
import itertools
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gate_racer.bootcamp.api import Box, Command, Go, Halt, Land, Location, Null, Report, Unreadable
from gate_racer.bootcamp.floor import detect_pads, locate
from gate_racer.common.errors import UserError, one_line, say
from gate_racer.common.process import Worker, end_forked_copies, end_with_parent, leave, limit_memory
from gate_racer.sim.view.texture import Image

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

NO_RETURN = "does every path through `decide` end in a `return`?"
CHANGES = {
    "append",
    "extend",
    "add",
    "update",
    "insert",
    "pop",
    "popleft",
    "appendleft",
    "clear",
    "remove",
    "setdefault",
}
WORKERS = {"detect": "detection", "locate": "geolocation", "decide": "decision"}  # each runs in its own process


class Hint(NamedTuple):
    """Line of a program, and what to check there."""

    line: int
    text: str


def blanks(path: Path) -> list[Hint]:
    """Return the lines where a value is still `...`, with their comments. A body that is only `...` does not count."""
    tree, lines = _parsed(path)
    harmless = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and isinstance(node.body[-1], ast.Expr):
            harmless.add(id(node.body[-1].value))
        if isinstance(node, ast.Subscript):  # a[..., 0], tuple[int, ...]
            harmless |= {id(child) for child in ast.walk(node.slice)}
    found = [
        Hint(node.lineno, lines[node.lineno - 1].partition("#")[2].strip() or "put a value in its place")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value is ... and id(node) not in harmless
    ]
    return sorted(found)


def hints(path: Path) -> list[Hint]:
    """Return the probable mistakes in a program; none for a file that does not parse, which fails when it is run."""
    tree, _ = _parsed(path)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = [*_no_return(functions), *_loops(tree), *_shared(tree, functions)]
    return sorted(found)


def hint_lines(programs: Sequence[Path]) -> list[str]:
    """Return the hints on several programs, as lines of text."""
    return [f"hint: {path}:{hint.line}: {hint.text}" for path in programs for hint in hints(path)]


def _parsed(path: Path) -> tuple[ast.Module, list[str]]:
    try:
        text = path.read_text(encoding="utf-8")
        return ast.parse(text), text.splitlines()
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.Module([], []), []


def _no_return(functions: dict[str, ast.FunctionDef]) -> Iterator[Hint]:
    for name in WORKERS:
        if name in functions and not _ends(functions[name].body):
            text = f"`{name}` can end without a `return`, which returns None"
            yield Hint(functions[name].lineno, text)


def _ends(body: list[ast.stmt]) -> bool:
    """Check whether control never reaches the end of these statements."""
    match body[-1] if body else None:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=yes, orelse=no):
            return _ends(yes) and _ends(no)
        case ast.With(body=inner):
            return _ends(inner)
        case ast.Try(body=tried, handlers=handlers, orelse=no, finalbody=last):
            paths = [*(handler.body for handler in handlers), [*tried, *no]]
            return _ends(last) or all(map(_ends, paths))
        case ast.Match(cases=cases):
            return any(_any(case) for case in cases) and all(_ends(case.body) for case in cases)
        case ast.While(test=ast.Constant(value=forever)):
            return bool(forever) and not any(isinstance(node, ast.Break) for node in ast.walk(body[-1]))
    return False


def _any(case: ast.match_case) -> bool:
    """Check whether a case matches any subject."""
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


def _loops(tree: ast.Module) -> Iterator[Hint]:
    for node in tree.body:
        if isinstance(node, ast.While):
            yield Hint(
                node.lineno,
                "a loop outside of functions runs before the flight; `decide` is called at every step without it",
            )


def _shared(tree: ast.Module, functions: dict[str, ast.FunctionDef]) -> Iterator[Hint]:
    """Yield hints on globals that one worker changes and another one reads."""
    stored = {name.id for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for name in _targets(node)}
    used = {worker: _names(worker, functions, set()) & stored for worker in WORKERS if worker in functions}
    for writer in used:
        for name, line in sorted(_changed(writer, functions, set())):
            readers = [other for other in used if other != writer and name in used[other]]
            if name in stored and readers:
                text = f"`{name}` is changed in `{writer}` and used in `{readers[0]}`, which run in separate processes"
                yield Hint(line, f"{text}: a value stored by one is not available to the other")


def _targets(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.Name]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from (name for name in ast.walk(target) if isinstance(name, ast.Name))


def _names(name: str, functions: dict[str, ast.FunctionDef], seen: set[str]) -> set[str]:
    """Return the names used in a function, and in the file's functions that it calls."""
    seen.add(name)
    names = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
    return names.union(*(_names(other, functions, seen) for other in names & functions.keys() - seen))


def _changed(name: str, functions: dict[str, ast.FunctionDef], seen: set[str]) -> set[tuple[str, int]]:
    """Return the names whose objects a function changes, with line numbers."""
    seen.add(name)
    found = set[tuple[str, int]]()
    for node in ast.walk(functions[name]):
        match node:
            case ast.Global(names=names):
                found |= {(one, node.lineno) for one in names}
            case ast.Call(func=ast.Attribute(value=ast.Name(id=one), attr=method)) if method in CHANGES:
                found.add((one, node.lineno))
            case (
                ast.Subscript(value=ast.Name(id=one), ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id=one), ctx=ast.Store())
            ):
                found.add((one, node.lineno))
            case ast.Call(func=ast.Name(id=one)) if one in functions and one not in seen:
                found |= _changed(one, functions, seen)
    return found


TEXT_MAX = 80  # characters shown of an unreadable command
TRACEBACK_MAX = 20_000  # characters kept of a traceback, the last ones (chosen)
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
        found = [_numbers(self.locate(box, report), 2) for box in boxes]
        places = [Location(*place) for place in found if place]
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


def shown(value: Any) -> str:
    """Return a value as text of bounded length, even if its own `__repr__` fails."""
    try:
        return one_line(repr(value)[: 2 * TEXT_MAX], TEXT_MAX)
    except BaseException as error:  # its `__repr__` may well call exit()
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def error_line(error: BaseException) -> str:
    """Return an exception as one line, even if its own `__str__` fails."""
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except BaseException:
        return type(error).__name__


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception, its last `TRACEBACK_MAX` characters, even if the exception cannot be shown."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:
        text = "".join([*traceback.format_tb(error.__traceback__), type(error).__name__])
    return text[-TRACEBACK_MAX:]


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


MEMORY_BYTES = 4 << 30  # limit of one worker; with images of 4096 x 4096 the display needs the most, 1.4 GiB
PRELOADED = f"{__package__}.crew"  # imports all modules that workers need
LONGEST_S = LOAD_S * (TIMEOUTS_MAX + 1) + 60.0  # s to start the process and run the file


def process_context() -> "SpawnContext | ForkServerContext":
    """Return a fork-server context with preloaded modules, for fast starts, where available, else a spawn context."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def scenario_of(path: Path) -> str:
    """Load a program in a separate process and return the name of its scenario.

    Raises:
        UserError: it cannot be loaded, see `load_program`, or it ends its own process.
        SystemExit: it does not end; its process has printed the error.
    """
    worker = Worker(_load, path, name="load", context=process_context())
    endless = f"{path}: does not end when it is loaded"
    try:
        problem, scenario = worker.pipe.recv() if worker.pipe.poll(LONGEST_S) else (endless, "")
    except (EOFError, OSError):
        worker.process.join(1.0)
        code = worker.process.exitcode
        if code == TOLD_CODE:
            raise SystemExit(2) from None
        problem, scenario = f"{path}: ends its own process (exit code {code}) while it is loaded", ""
    finally:
        worker.close(0.0)
    if problem:
        raise UserError(problem)
    return str(scenario)


def confine() -> None:
    """Confine a process before it runs a learner's program: ignore Ctrl-C, end with main, and limit memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # main terminates this process
    end_with_parent()
    end_forked_copies()
    limit_memory(MEMORY_BYTES)


def _load(line: Connection, path: Path) -> None:
    confine()
    try:
        answer = "", load_program(path).scenario
    except UserError as error:
        answer = str(error), ""
    except BaseException as error:  # such as a KeyboardInterrupt raised by the program itself
        answer = f"{path}: {error_line(error)}", ""
    line.send(answer)
    leave(0)
