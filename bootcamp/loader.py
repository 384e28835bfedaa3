"""First run of a program, in a separate process, so that its statements cannot affect main."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from gate_racer.bootcamp.program import LOAD_S, TIMEOUTS_MAX, TOLD_CODE, error_line, load_program
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.process import end_forked_copies, end_with_parent, leave, limit_memory, shielded

if TYPE_CHECKING:  # Windows has no fork server
    from multiprocessing.context import ForkServerContext, SpawnContext

MEMORY_BYTES = 4 << 30  # limit of one worker; with images of 4096 x 4096 the display needs the most, 1.4 GiB
PRELOADED = f"{__package__}.crew"  # imports all modules that workers need
LONGEST_S = LOAD_S * (TIMEOUTS_MAX + 1) + 60.0  # s to start the process and run the file


def process_context() -> "SpawnContext | ForkServerContext":
    """Return a fork-server context with preloaded modules, for fast starts, where available, else a spawn context."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def scenario_of(path: Path) -> str:
    """Load a program in a separate process and return the name of its scenario.

    Raises:
        UserError: it cannot be loaded, see `load_program`, or it ends its own process.
        SystemExit: it does not end; its process has printed the error.
    """
    context = process_context()
    line, far_end = context.Pipe(duplex=False)
    process = context.Process(target=_load, args=(path, far_end), name="load", daemon=True)
    with shielded():
        process.start()
    far_end.close()
    try:
        problem, scenario = line.recv() if line.poll(LONGEST_S) else (f"{path}: does not end when it is loaded", "")
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
    """Confine a process before it runs a learner's program: ignore Ctrl-C, end with main, and limit memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # main terminates this process
    end_with_parent()
    end_forked_copies()
    limit_memory(MEMORY_BYTES)


def _load(path: Path, line: Connection) -> None:
    confine()
    try:
        answer = "", load_program(path).scenario
    except UserError as error:
        answer = str(error), ""
    except BaseException as error:  # such as a KeyboardInterrupt raised by the program itself
        answer = f"{path}: {error_line(error)}", ""
    line.send(answer)
    leave(0)
