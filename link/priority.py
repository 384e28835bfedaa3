"""Put what must not be late before everything else on this machine, as far as one is allowed to.

Linux allows it to root, or with `ulimit -e`; elsewhere nothing changes. Threads stay in the usual scheduling class: of two races
on two cores by SCHED_FIFO, the kernel's guard against endless real-time threads stopped both simulators for 0.9 s in every second
(0 of 2 finished); by niceness both finish.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

PERIODIC, BESIDE = -20, -10  # niceness of what is due at fixed times, and of images and logs, which come after it


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Let this thread go before all others, and keep the garbage collector from long collections.

    Its process' other threads are preferred as well, since one that holds the interpreter's lock holds up this one.
    """
    gc.collect()
    gc.freeze()  # a full collection of all that is loaded takes longer than a tick
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.native_id is not None:
            prefer(thread.native_id)
    try:
        with preferred(PERIODIC):
            yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def preferred(niceness: int = BESIDE) -> Iterator[None]:
    """Let this thread, and what it starts inside, go before usual ones."""
    before = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
    prefer(niceness=niceness)
    try:
        yield
    finally:
        prefer(niceness=before)


def prefer(thread: int = 0, niceness: int = BESIDE) -> None:
    """Let a thread of the system, or else this one and what it starts, go before usual ones."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
