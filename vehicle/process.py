"""Child processes and Ctrl-C: whose business it is, that none is lost, and ends for processes in any state."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import NoReturn

AGAIN_S = 2.0  # between two strikes of one Ctrl-C
TERMINATE_S = 0.5  # of patience with one that was told to end; a process that was stopped does not hear it


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Processes begun inside never see Ctrl-C, not even while they load: they inherit that it is blocked.

    Another thread may still take the signal for this process, so it is also held back until all of them have begun:
    one that is left half begun would read the end of its file.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # begun inside, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _held_back():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C that strikes inside is raised at the end. Outside of the main thread nothing is ever raised."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    struck: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: struck.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if struck:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def never_swallowed() -> Iterator[None]:
    """Ctrl-C ends what is inside, though CasADi and compilers drop an exception that strikes within them: it strikes until it is
    heard.

    Raises:
        KeyboardInterrupt: one struck inside.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    struck: list[int] = []

    def strike(number: int, _: object) -> None:
        struck.append(number)
        if again is not None:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        raise KeyboardInterrupt

    again = getattr(signal, "SIGALRM", None)  # Windows has none: there the end of what is inside tells
    handlers = {number: signal.signal(number, strike) for number in (signal.SIGINT, again) if number is not None}
    try:
        yield
    finally:
        if again is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if struck:
        raise KeyboardInterrupt


def end_with_parent() -> None:
    """From here on this process ends, at whatever it is, when the one that started it has: killed, it can tell nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent,), name="end with parent", daemon=True).start()


def leave(code: int) -> NoReturn:
    """Ends this process at once, its output flushed: threads and exit handlers that foreign code left behind hold nobody up."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()
    os._exit(code)


def end_forked_copies() -> None:
    """From here on a copy of this process that foreign code forks ends at once: it would read and write the same pipes."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(os._exit, 1))


def limit_memory(most_bytes: int) -> None:
    """From here on more than that is a MemoryError here, and no trouble for all others; on Windows nothing limits it."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    within = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (within, hard))


def _leave_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def end(process: BaseProcess, patience_s: float) -> None:
    """Waits for a process that has been asked to end, terminates it after patience_s, and at last kills it."""
    process.join(patience_s)
    if process.is_alive():
        process.terminate()
        process.join(TERMINATE_S)
    if process.is_alive():
        process.kill()
        process.join()
