"""Dots on stderr while a command works without output."""

import contextlib
import os
import sys
import threading
import time
from typing import Any, TextIO

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
        """Stop printing dots, and end a line of dots."""
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
