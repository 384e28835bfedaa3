"""Child processes: their start, Ctrl-C in parent and children, their end in any state, and the priority of threads.

Linux permits priority to root, or with `ulimit -e`; elsewhere nothing changes. Threads stay in the default scheduling class:
with two races on two cores under SCHED_FIFO, the kernel's guard stopped both simulators for 0.9 s in every second.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Container, Iterator
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gate_racer.common.errors import UserError

if TYPE_CHECKING:  # Windows has no fork server
    from multiprocessing.context import ForkServerContext, SpawnContext

AGAIN_S = 2.0  # s, interval at which an interrupt is repeated (chosen)
TERMINATE_S = 0.5  # s, wait after SIGTERM before SIGKILL (chosen); a stopped process does not receive SIGTERM


def command_line(code: str, *arguments: str, tied: bool = False) -> list[str]:
    """Return the command line of a process that runs code with the search path of this process.

    `python -m` would search the working directory first, which may contain another `gate_racer` or a `random.py`.
    If `tied`, it ends with its standard input, a pipe that the starting process holds open as long as it lives.
    """
    tie = f"from {__name__} import end_with_input; end_with_input(); " if tied else ""
    return [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path}; {tie}{code}", *arguments]


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Context in which started processes inherit a blocked SIGINT, so that Ctrl-C never reaches them.

    Another thread may still receive the signal for this process, so it is also deferred until all of them have started;
    an interrupted start would leave a child that reads an unexpected end of file.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started inside, it would unblock the signal
    struck: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # only there handlers can be set
    handler = signal.signal(signal.SIGINT, lambda number, _: struck.append(number)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if struck:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def never_swallowed() -> Iterator[None]:
    """Context that Ctrl-C ends reliably: CasADi and compilers may drop the exception, so it is raised until it takes effect."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if not main or handler in (signal.SIG_IGN, None):  # None: not Python's
        yield
        return
    struck: list[int] = []
    alarm = getattr(signal, "SIGALRM", None)  # Windows has none: raised at the end instead
    alarmed = signal.getsignal(alarm) if alarm is not None else None

    def strike(number: int, _: object) -> None:
        struck.append(number)
        if alarm is not None:
            signal.signal(alarm, strike)
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, strike)
    try:
        yield
    finally:
        if struck and alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(alarm, alarmed or signal.SIG_DFL)
        signal.signal(signal.SIGINT, handler)
    if struck:
        raise KeyboardInterrupt


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, since a killed parent cannot notify it."""
    parent = multiprocessing.parent_process()

    def watch(parent: BaseProcess) -> None:
        parent.join()
        end_descendants(os.getpid())
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, args=(parent,), name="end with parent", daemon=True).start()


def end_with_input() -> None:
    """End this process as soon as its standard input ends, since a killed parent cannot notify it."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="end with input", daemon=True).start()


def leave(code: int) -> NoReturn:
    """Flush the output and exit at once, without waiting for threads and exit handlers of foreign code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the stream is closed, or None
            stream.flush()
    os._exit(code)


def end_forked_copies() -> None:
    """Make forks of this process by foreign code exit at once, since they would share its pipes."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(os._exit, 1))


def limit_memory(most_bytes: int) -> None:
    """Limit the memory of this process, bytes; beyond it MemoryError is raised. Without effect on Windows."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    within = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (within, hard))


PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl(2)
ROUNDS_MAX = 500  # greatest number of searches for processes that start others while they are ended (chosen)


def adopt_orphans(wanted: bool = True) -> None:
    """Make this process the parent of its descendants' orphans, so that it can find and end them. Only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def descendants(of: int) -> set[int]:
    """Return the process numbers of all living processes below one; empty without /proc."""
    children = dict[int, list[int]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    found, rest = set[int](), [of]
    while rest:
        below = [pid for pid in children.get(rest.pop(), []) if pid not in found]
        found.update(below)
        rest += below
    return found


def end_descendants(of: int, keep: Container[int] = ()) -> None:
    """Kill all processes below one except those to keep, also those that start others meanwhile."""
    for _ in range(ROUNDS_MAX):
        left = [pid for pid in descendants(of) if pid not in keep]
        if not left:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):  # a stopped process starts no other
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        for pid in left:
            with contextlib.suppress(ChildProcessError):  # not a child of this process
                os.waitpid(pid, 0)


@contextlib.contextmanager
def no_survivors() -> Iterator[None]:
    """Context at whose end all processes that foreign code has started inside have ended, orphans too. Only on Linux."""
    if sys.platform != "linux":
        yield
        return
    from multiprocessing import forkserver  # Windows has none

    with shielded():  # it is inherited by all that the server forks
        forkserver.ensure_running()  # it and its like are not inside
    keep = descendants(os.getpid())
    adopt_orphans()
    try:
        yield
    finally:
        end_descendants(os.getpid(), keep)
        adopt_orphans(False)


def end(process: BaseProcess, patience_s: float) -> None:
    """Wait patience_s, s, for a process that was requested to end, then terminate it, then kill it."""
    process.join(patience_s)
    if process.is_alive():
        process.terminate()
        process.join(TERMINATE_S)
    if process.is_alive():
        process.kill()
        process.join()


def _work(work: Callable[..., None], pipe: Any, *arguments: object) -> None:
    """Run a worker, which ends in silence where nobody reads its pipe any more, and with a message where it cannot start."""
    with contextlib.suppress(BrokenPipeError):
        try:
            work(pipe, *arguments)
        except UserError as error:
            pipe.send(error)


class Worker:
    """Child process behind a pipe. Ctrl-C does not reach it; it is to end once its pipe is closed."""

    def __init__(
        self,
        work: Callable[..., None],
        *arguments: object,
        name: str,
        daemon: bool = True,
        context: "SpawnContext | ForkServerContext | None" = None,
    ):
        """Start `work(pipe, *arguments)`, in a new interpreter unless the context says otherwise."""
        context = context or multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        given = (work, theirs, *arguments)
        self.process: BaseProcess = context.Process(target=_work, args=given, name=name, daemon=daemon)
        with shielded():
            self.process.start()
        theirs.close()

    def started(self, within_s: float, error: type[UserError] = UserError) -> Any:
        """Return the worker's first message. A worker that cannot start sends the error in its place. Raises UserError."""
        name, said = self.process.name, None
        try:
            said = self.pipe.recv() if self.pipe.poll(within_s) else None
        except (EOFError, OSError):
            said = error(f"the {name} process ended while it started")
        if said is None:
            said = error(f"the {name} process did not start within {within_s:g} s")
        if isinstance(said, UserError):
            self.close(0.0)
            raise said
        return said

    def close(self, patience_s: float) -> None:
        """Close the pipe, and end the process, by force after patience_s (s)."""
        self.pipe.close()
        end(self.process, patience_s)


def ignore_signals() -> None:
    """Ignore the signals that a terminal sends to all processes: the parent ends this one through its pipe."""
    for name in {"SIGINT", "SIGTERM", "SIGHUP"} & set(dir(signal)):
        signal.signal(getattr(signal, name), signal.SIG_IGN)


TIMER_MS = 1  # ms, step of Windows' timer in real time; else its waits end at multiples of 15.6 ms
PERIODIC, BESIDE = -20, -10  # niceness of periodic work, and of images and logs, which rank below


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Run this thread before all others, with a fine timer, and prevent long garbage collections.

    The other threads of the process get priority as well, since one that holds the interpreter lock blocks this one.
    """
    frozen = gc.get_freeze_count() > 0  # by somebody else, who wants it to stay so
    gc.collect()
    gc.freeze()  # a full collection of all loaded objects takes longer than a tick
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.native_id is not None:
            prefer(thread.native_id)
    before = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
    with contextlib.ExitStack() as at_end:
        if not frozen:
            at_end.callback(gc.unfreeze)
        at_end.callback(prefer, niceness=before)
        prefer(niceness=PERIODIC)
        if sys.platform == "win32":
            timer = ctypes.WinDLL("winmm")
            timer.timeBeginPeriod(TIMER_MS)
            at_end.callback(timer.timeEndPeriod, TIMER_MS)
        yield


def prefer(thread: int = 0, niceness: int = BESIDE) -> None:
    """Give a system thread, or else this one and those it starts, priority over default ones."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
