"""Process that runs a learner's program: confined, its output limited, and the place known where it hangs or crashed.

What it sends is read as data of known types (`receive`), and processes that it starts end with it (`no_survivors`).
"""

import contextlib
import faulthandler
import io
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate_racer.bootcamp.program import error_in_flight, load_program, own_file, traceback_text
from gate_racer.common import process
from gate_racer.common.errors import UserError, one_line, say
from gate_racer.common.process import Worker, descendants, end_descendants, leave

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

MEMORY_BYTES = 4 << 30  # limit of one process; with images of 4096 x 4096 the display needs the most, 1.4 GiB
PROCESSES_MAX = 32  # processes of a program at a time (chosen)
PRELOADED = f"{__package__}.crew"  # imports all modules that workers need
LOAD_S = 20.0  # s for the statements of a file; its functions run later
ENDLESS = "`decide` is called at every step, so the file needs no loop of its own"
LINES_PER_S, LINE_MAX = 20, 200  # lines of output passed on in each second, and their characters
TRACE_S = 1.0  # s to wait for the place where a process hangs (chosen)
TRACE_BYTES = 1 << 16  # bytes of a trace and of output read at once
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.system")  # audit events
FRAME = re.compile(r'File "(.+)", line (\d+) in (\w+|<\w+>)')  # of faulthandler
STARTED, SENTINEL = b"s", b""  # the first message of a worker, and the last one to it; all others are pickles
ROOM = __package__
MESSAGES = {  # names of the types in messages, by module
    f"{ROOM}.api": {"Box", "CourseGate", "Go", "Halt", "Land", "Location", "Null", "Report", "Status", "Unreadable"},
    f"{ROOM}.cell": {"Counts", "Failed"},
    f"{ROOM}.stages": {"Answer", "Packet"},
    "gate_racer.vehicle.camera": {"Camera"},
    "gate_racer.vehicle.lens": {"Lens"},
}
ARRAYS = {"_reconstruct", "_frombuffer", "ndarray", "dtype", "scalar"}  # names in numpy of which arrays are made


class _Reader(pickle.Unpickler):
    """Unpickler that makes the messages' types and arrays only: a learner's process may send anything."""

    def find_class(self, module: str, name: str) -> Any:
        if name in MESSAGES.get(module, ()) or (module.split(".")[0] == "numpy" and name in ARRAYS):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no type of a message")


def unpacked(data: bytes) -> Any:
    """Return the message in these bytes. Raises UnpicklingError if they are none."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except Exception as error:
        raise pickle.UnpicklingError(f"no message ({type(error).__name__}: {error})") from None


@dataclass(frozen=True)
class Failed:
    """Message to main: an uncaught exception."""

    cause: str  # one line
    traceback: str = ""


@dataclass(frozen=True)
class Counts:
    """Last message to main: the worker's counters."""

    counters: dict[str, int]
    mistakes: dict[str, int]  # in boxes and places, by a text with {} for their number


def counts(told: object) -> Counter[str]:
    """Return the counters in a message of a learner's process, which may be anything."""
    items = told.items() if isinstance(told, dict) else ()
    return Counter({text: count for text, count in items if isinstance(text, str) and isinstance(count, int)})


@dataclass
class Desk:
    """Connection of a worker to main: main sends an item, and the next one after the worker's answer to it."""

    main: Connection
    counters: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Any]:
        """Yield the items up to the sentinel, or until main has ended."""
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while data := self.main.recv_bytes():
                yield unpacked(data)

    def answer(self, item: Any = None) -> None:
        """Answer the last item, or tell that the worker is ready for the first. Raises OSError without main."""
        self.main.send_bytes(pickle.dumps(item))


def work(main: Connection, program: Path, stage: Callable[..., None], *given: Any) -> None:
    """Run `stage(desk, program, *given)` in a worker; report any exception, and then the counters, to main."""
    desk = Desk(main)
    with contextlib.suppress(OSError):  # without main
        main.send_bytes(STARTED)
        try:
            stage(desk, program, *given)
        except BaseException as error:  # a program may well call exit()
            desk.answer(Failed(error_in_flight(error, program), traceback_text(error)))
        desk.answer(Counts(dict(desk.counters), dict(+desk.mistakes)))


def own_work(main: Connection, *arguments: Any) -> None:
    """Run a worker that runs nothing of the program."""
    confine()
    work(main, *arguments)
    leave(0)


def process_context() -> "SpawnContext | ForkServerContext":
    """Return a fork-server context with preloaded modules, for fast starts, where available, else a spawn context."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def confine(memory_bytes: int = MEMORY_BYTES) -> None:
    """Confine this process: ignore Ctrl-C, end with main, end what it starts, and limit memory and processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # main terminates this process
    process.end_with_parent()
    process.end_forked_copies()
    process.adopt_orphans()
    process.limit_memory(memory_bytes)


class Cell(Worker):
    """Confined process of a learner's program, behind a pipe."""

    def __init__(
        self,
        program: Path,
        stage: Callable[..., None],
        *given: object,
        name: str,
        tell: Callable[[str], None] = lambda line: None,
        memory_bytes: int = MEMORY_BYTES,
    ):
        """Start `work` with these arguments; `tell` receives the lines that it prints, in a thread."""
        context, self.program = process_context(), program
        self._trace, trace = context.Pipe(duplex=False)
        output, printed = context.Pipe(duplex=False)
        super().__init__(_confined, trace, printed, memory_bytes, program, stage, *given, name=name, context=context)
        trace.close()
        printed.close()
        self._reader = threading.Thread(target=_pass_on, args=(output, tell), name=f"output of {name}", daemon=True)
        self._reader.start()

    def stop_hung(self) -> str:
        """Kill the process, which does not answer; return where it hangs: "in `decide` at mine.py:17", or ""."""
        if hasattr(signal, "SIGUSR1") and self.process.is_alive() and self.process.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, signal.SIGUSR1)
            self._trace.poll(TRACE_S)
            time.sleep(0.1 * TRACE_S)  # until all of it is written
        self.kill()
        return self._place()

    def how_it_ended(self) -> str:
        """Return how the process, which has ended by itself, did."""
        self.process.join(TRACE_S)
        code, place = self.process.exitcode, self._place()
        name = signal.Signals(-code).name if code is not None and -code in set(signal.Signals) else ""
        if name == "SIGKILL":
            return "the program's process was killed (SIGKILL): by itself, or for want of memory"
        if name:
            return f"the program crashed its process ({name}){f' {place}' if place else ''}"
        return f"the program ended its process (exit code {code}): os._exit()?"

    def kill(self) -> None:
        """End the process and all that it has started at once."""
        if self.process.pid is not None and self.process.is_alive():
            end_descendants(self.process.pid)
            self.process.kill()
        self.process.join()

    def close(self, patience_s: float) -> None:
        self.process.join(patience_s)
        self.kill()
        super().close(0.0)
        self._reader.join(TRACE_S)
        self._trace.close()

    def _place(self) -> str:
        """Return the innermost line of the program in what `faulthandler` has written."""
        text = b""
        with contextlib.suppress(OSError, EOFError):
            while len(text) < 16 * TRACE_BYTES and self._trace.poll(0) and (piece := _read(self._trace)):
                text += piece
        for file, line, function in FRAME.findall(text.decode("ascii", "replace")):
            file = file.encode().decode("unicode_escape")  # as `faulthandler` writes what is not ASCII
            if own_file(file, self.program):
                within = "" if function == "<module>" else f"in `{function}` "
                return f"{within}at {Path(file).name}:{line}"
        return ""


def scenario_of(path: Path) -> str:
    """Load a program in a separate process and return the name of its scenario.
    Raises UserError as `load_program`, and where it does not end, or ends its own process."""
    cell = Cell(path, _load, name="load", tell=lambda line: say(line, sys.stderr))
    try:
        cell.pipe.recv_bytes()  # it has started
        if not cell.pipe.poll(LOAD_S):
            place = re.sub(r".*:(?=\d+$)", ":", cell.stop_hung())
            raise UserError(f"{path}{place}: still running after {LOAD_S:g} s: a loop outside of functions? {ENDLESS}")
        told = unpacked(cell.pipe.recv_bytes(TRACE_BYTES))
    except (EOFError, OSError, pickle.UnpicklingError):
        raise UserError(f"{path}: {cell.how_it_ended()} while it was loaded") from None
    finally:
        cell.close(0.0)
    if isinstance(told, Failed):
        raise UserError(told.cause)
    return str(told)


def _load(desk: Desk, path: Path) -> None:
    desk.answer(load_program(path).scenario)


def _read(pipe: Connection) -> bytes:
    return os.read(pipe.fileno(), TRACE_BYTES)


def _confined(main: Connection, trace: Connection, printed: Connection, memory_bytes: int, *arguments: Any) -> None:
    confine(memory_bytes)
    if sys.platform != "win32":
        os.setpgrp()  # a signal to its own group, such as os.kill(0, 9), reaches no other process
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(printed.fileno(), descriptor)
        printed.close()
        faulthandler.enable(trace.fileno())
        faulthandler.register(signal.SIGUSR1, trace.fileno(), all_threads=False)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.addaudithook(_refuse_more)
    work(main, *arguments)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    end_descendants(os.getpid())
    leave(0)


def _refuse_more(event: str, _: object) -> None:
    """Refuse to start more processes than PROCESSES_MAX at a time; an audit hook cannot be removed."""
    if event in STARTS and len(descendants(os.getpid())) >= PROCESSES_MAX:
        raise RuntimeError(f"a program may have at most {PROCESSES_MAX} processes at a time")


def _pass_on(output: Connection, tell: Callable[[str], None]) -> None:
    """Give the lines of a process's output to `tell`, at most LINES_PER_S in a second; count the others."""
    rest, since, told, dropped = b"", time.monotonic(), 0, 0
    while piece := _read(output):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[-TRACE_BYTES:]
        if time.monotonic() - since >= 1.0:
            since, told = time.monotonic(), 0
        for line in lines[: LINES_PER_S - told]:
            tell(one_line(line.decode(errors="replace"), LINE_MAX))
        passed = min(len(lines), LINES_PER_S - told)
        told, dropped = told + passed, dropped + len(lines) - passed
    if rest:
        tell(one_line(rest.decode(errors="replace"), LINE_MAX))
    if dropped:
        tell(f"({dropped} more lines, over {LINES_PER_S} in a second, are not shown)")
    output.close()
