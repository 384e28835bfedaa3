"""Scheduling priority for time-critical threads, as far as the system permits.

Linux permits it to root, or with `ulimit -e`; elsewhere nothing changes. Threads stay in the default scheduling class: with
two races on two cores under SCHED_FIFO, the kernel's guard against endless real-time threads stopped both simulators for 0.9
s in every second (0 of 2 finished); with niceness both finish.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

PERIODIC, BESIDE = -20, -10  # niceness of periodic work, and of images and logs, which rank below


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Run this thread before all others, and prevent long garbage collections.

    The other threads of the process get priority as well, since one that holds the interpreter lock blocks this one.
    """
    frozen = gc.get_freeze_count() > 0  # by somebody else, who wants it to stay so
    gc.collect()
    gc.freeze()  # a full collection of all loaded objects takes longer than a tick
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.native_id is not None:
            prefer(thread.native_id)
    try:
        with preferred(PERIODIC):
            yield
    finally:
        if not frozen:
            gc.unfreeze()


@contextlib.contextmanager
def preferred(niceness: int = BESIDE) -> Iterator[None]:
    """Run this thread, and threads started inside, before default ones."""
    before = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
    prefer(niceness=niceness)
    try:
        yield
    finally:
        prefer(niceness=before)


def prefer(thread: int = 0, niceness: int = BESIDE) -> None:
    """Give a system thread, or else this one and those it starts, priority over default ones."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
