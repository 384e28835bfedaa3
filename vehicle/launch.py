"""Entry point of all commands, which loads other modules late, so that Ctrl-C works and progress is shown from the start."""

import _signal  # what `signal` wraps, without the twenty modules that it imports first
import _thread
import os
import time

INTERRUPTED = 130  # exit code after SIGINT: 128 + 2
AGAIN_S = 0.1  # from an interrupt that was dropped to the next
DISTRIBUTION = "gate-racer"
# Matrices here are small. NumPy's threads would gain nothing, and the loop that flies would wait for them: by CasADi on two cores
# commands went out at 25 Hz instead of 57.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Without it Python's child processes, such as its fork server, search the working directory before they receive this process's
# search path.
SAFE_PATH = "PYTHONSAFEPATH"
# Figures are files. Matplotlib would not load with what a notebook sets for its own process, if this environment lacks it.
BACKEND = "MPLBACKEND"
QUIET = "--quiet"  # an option of every command: no progress and no remarks


def launch(module: str, name: str) -> int:
    """Load a module and run its `main`. Returns the exit code; 130 after Ctrl-C at any time."""
    _signal.signal(_signal.SIGINT, _leave)
    for variable in (*ONE_THREAD, SAFE_PATH):
        os.environ.setdefault(variable, "1")
    os.environ[BACKEND] = "agg"
    import gc
    import importlib
    import sys

    from gate_racer.vehicle.errors import exit_code, say
    from gate_racer.vehicle.progress_dots import ProgressDots

    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        say(f"{name} {version(DISTRIBUTION)}")
        return 0

    tell = sys.unraisablehook
    sys.unraisablehook = lambda told: _strike_again() if told.exc_type is KeyboardInterrupt else tell(told)
    silent = QUIET in sys.argv or sys.stdout is None or sys.stderr is None or not sys.stderr.isatty()
    sign = None if silent else ProgressDots(name)

    def run() -> int | None:
        gc.disable()  # collections took a seventh of the loading, and found nothing
        main = importlib.import_module(module).main
        gc.freeze()
        gc.enable()
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    try:
        return exit_code(run)
    finally:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the answer stands; what is left is the interpreter's end
        if sign is not None:
            sign.close()


def _leave(*_: object) -> None:
    """Exit at once: nothing has started yet, and extension modules do not handle an exception reliably while they load."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _strike_again() -> None:
    """Interrupt again after a moment: Python drops exceptions raised in its internal callbacks, such as those of imports."""

    def strike() -> None:
        time.sleep(AGAIN_S)
        if os.name == "posix":
            os.kill(os.getpid(), _signal.SIGINT)  # which also ends a wait of the main thread
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(strike, ())
