"""Entry point of all commands, which loads modules late, so that Ctrl-C works from the start, and dots tell that it works."""

import _signal  # what `signal` wraps, without the twenty modules that it imports first
import _thread
import contextlib
import os
import sys
import threading
import time
from typing import Any, TextIO

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
    """Load the module of a command and run it. Returns the exit code; 130 after Ctrl-C at any time."""
    _signal.signal(_signal.SIGINT, _leave)
    for variable in (*ONE_THREAD, SAFE_PATH):
        os.environ.setdefault(variable, "1")
    os.environ[BACKEND] = "agg"
    from gate_racer.common.errors import exit_code, say

    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        say(f"{name} {version(DISTRIBUTION)}")
        return 0

    tell = sys.unraisablehook
    sys.unraisablehook = lambda told: _strike_again() if told.exc_type is KeyboardInterrupt else tell(told)
    silent = QUIET in sys.argv or sys.stdout is None or sys.stderr is None or not sys.stderr.isatty()
    sign = None if silent else ProgressDots(name)

    def run() -> int | None:
        from gate_racer.common.command import main

        load(module)
        _signal.signal(_signal.SIGINT, _interrupt)
        try:
            main(module)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    try:
        return exit_code(run)
    finally:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the answer stands; what is left is the interpreter's end
        if sign is not None:
            sign.close()


def load(module: str) -> Any:
    """Return a module. While a command loads it, Ctrl-C ends the process at once, and no garbage is collected."""
    import gc
    import importlib

    handler = _signal.getsignal(_signal.SIGINT)
    if handler not in (_leave, _interrupt):  # of a command that runs in another program
        return importlib.import_module(module)
    _signal.signal(_signal.SIGINT, _leave)
    gc.disable()  # collections took a seventh of the loading, and found nothing
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()
        _signal.signal(_signal.SIGINT, handler)


def _leave(*_: object) -> None:
    """Exit at once: nothing has started yet, and extension modules do not handle an exception reliably while they load."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _interrupt(number: int, frame: Any) -> None:
    """Raise KeyboardInterrupt; what its constructor had not finished fails in its finalizer, of which nobody is to be told."""
    sys.unraisablehook = lambda told: _strike_again() if told.exc_type is KeyboardInterrupt else None
    _signal.default_int_handler(number, frame)


def _strike_again() -> None:
    """Interrupt again after a moment: Python drops exceptions raised in its internal callbacks, such as those of imports."""

    def strike() -> None:
        time.sleep(AGAIN_S)
        if os.name == "posix":
            os.kill(os.getpid(), _signal.SIGINT)  # which also ends a wait of the main thread
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(strike, ())


SILENT_S, LOOK_S = 1.5, 0.25  # s without output before a dot is printed; s, polling interval (chosen)


class ProgressDots:
    """Wrapper of stdout and stderr that prints dots to stderr while both are silent."""

    def __init__(self, name: str):
        self._name, self._err = name, sys.stderr
        self._begin = self._last = time.monotonic()
        self._dots, self._closed = False, threading.Event()
        sys.stdout, sys.stderr = _Noted(sys.stdout, self), _Noted(sys.stderr, self)
        threading.Thread(target=self._watch, name="sign of life", daemon=True).start()

    def wrote(self) -> None:
        """Note output of the program, and end a line of dots before it."""
        self._last = time.monotonic()
        if self._dots:
            self._dots = False
            self._say("\n")

    def close(self) -> None:
        self._closed.set()
        self.wrote()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            now = time.monotonic()
            if now - self._last >= SILENT_S:
                self._last = now
                self._say("." if self._dots else f"{self._name}: running for {now - self._begin:.0f} s ")
                self._dots = True

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # stream is closed
            os.write(self._err.fileno(), text.encode())  # bypasses the buffer, whose lock another thread may hold


class _Noted:
    """Text stream that reports each write."""

    def __init__(self, stream: TextIO, dots: ProgressDots):
        self._stream, self._dots = stream, dots

    def write(self, text: str) -> int:
        self._dots.wrote()
        return self._stream.write(text)

    def fileno(self) -> int:
        """Return the descriptor, and report a write, since the caller is about to make one."""
        self._dots.wrote()
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
