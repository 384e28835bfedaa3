"""Put what must not be late before everything else on this machine, as far as one is allowed to.

Linux allows it to root, or with `ulimit -r` and `ulimit -e`; elsewhere nothing changes.
"""

import contextlib
import gc
import os
from collections.abc import Iterator

NICENESS = -10  # of pictures: after what runs in real time, before usual work


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Schedule this thread in real time, with what it starts, and keep the garbage collector from long collections."""
    gc.collect()
    gc.freeze()  # a full collection of all that is loaded takes longer than a tick
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


def prefer() -> None:
    """Let this process go before usual ones."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
