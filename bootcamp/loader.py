"""A program's first run, in a process of its own: whatever its statements do, they do not do it to main."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from bootcamp.program import LOAD_S, STRIKES, TOLD_CODE, load_program, told
from vehicle.errors import UserError
from vehicle.process import end_forked_copies, end_with_parent, leave, limit_memory, shielded

if TYPE_CHECKING:  # Windows has no fork server
    from multiprocessing.context import ForkServerContext, SpawnContext

MEMORY_BYTES = 4 << 30  # of one worker; with images of 4096 x 4096 the display takes the most, 1.4 GiB
PRELOADED = f"{__package__}.crew"  # brings all that workers need
LONGEST_S = LOAD_S * (STRIKES + 1) + 60.0  # for the process to begin and the file to run; the latter is limited itself


def process_context() -> "SpawnContext | ForkServerContext":
    """Where processes can be forked from a server that has loaded what all workers need, they start at once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def scenario_of(path: Path) -> str:
    """The scenario that a program names, once it has proved that it can be loaded.

    Raises:
        UserError: it cannot, as of `load_program`, or it ends its own process.
        SystemExit: it never ends, as its process has said itself.
    """
    context = process_context()
    line, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_load, args=(path, theirs), name="load", daemon=True)
    with shielded():
        process.start()
    theirs.close()
    try:
        problem, scenario = line.recv() if line.poll(LONGEST_S) else (f"{path}: does not end", "")
    except (EOFError, OSError):
        process.join(1.0)
        if process.exitcode == TOLD_CODE:
            raise SystemExit(2) from None
        problem, scenario = f"{path}: ends its own process (exit code {process.exitcode}) while it is loaded", ""
    finally:
        line.close()
        process.kill()
        process.join()
    if problem:
        raise UserError(problem)
    return str(scenario)


def confine() -> None:
    """In a process that runs a learner's program, before anything else: it ends as main says, and takes nobody with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # main ends this process
    end_with_parent()
    end_forked_copies()
    limit_memory(MEMORY_BYTES)


def _load(path: Path, line: Connection) -> None:
    confine()
    try:
        answer = "", load_program(path).scenario
    except UserError as error:
        answer = str(error), ""
    except BaseException as error:  # such as a KeyboardInterrupt, which nobody's Ctrl-C is here
        answer = f"{path}: {told(error)}", ""
    line.send(answer)
    leave(0)
