"""Put what must not be late before everything else on this machine, as far as one is allowed to.

Linux allows it to root, or with `ulimit -r` and `ulimit -e`; elsewhere nothing changes.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

NICENESS = -10  # of pictures and logs: after what runs in real time, before usual work


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Schedule this thread in real time, and keep the garbage collector from long collections.

    Its process' other threads are preferred as well, since one that holds the interpreter's lock holds up this one.
    """
    gc.collect()
    gc.freeze()  # a full collection of all that is loaded takes longer than a tick
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.native_id is not None:
            prefer(thread.native_id)
    allowed = False
    with contextlib.suppress(AttributeError, PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
        allowed = True
    try:
        yield
    finally:
        gc.unfreeze()
        if allowed:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def prefer(thread: int = 0) -> None:
    """Let a thread of the system, or else this one and what it starts, go before usual ones."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
