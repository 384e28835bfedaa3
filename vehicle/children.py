"""Processes beside the main one: Ctrl-C in a terminal goes to all of them, and is the parent's business alone."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Processes begun inside never see Ctrl-C, not even while they load: they inherit that it is blocked."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
