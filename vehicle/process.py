"""Child processes: begun so that Ctrl-C is their parent's business alone, and ended whatever state they are in."""

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

TERMINATE_S = 0.5  # of patience with one that was told to end; a process that was stopped does not hear it


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


def end(process: BaseProcess, patience_s: float) -> None:
    """Waits for a process that has been asked to end, terminates it after patience_s, and at last kills it."""
    process.join(patience_s)
    if process.is_alive():
        process.terminate()
        process.join(TERMINATE_S)
    if process.is_alive():
        process.kill()
        process.join()
