"""The end of a child process, whatever state it is in."""

from multiprocessing.process import BaseProcess

TERMINATE_S = 0.5  # of patience with one that was told to end; a process that was stopped does not hear it


def end(process: BaseProcess, patience_s: float) -> None:
    """Waits for a process that has been asked to end, terminates it after patience_s, and at last kills it."""
    process.join(patience_s)
    if process.is_alive():
        process.terminate()
        process.join(TERMINATE_S)
    if process.is_alive():
        process.kill()
        process.join()
