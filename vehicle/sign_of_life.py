"""Dots on stderr while a command works and has nothing to say."""

import contextlib
import os
import sys
import threading
import time
from typing import Any, TextIO

SILENT_S, LOOK_S = 1.5, 0.25  # after which a dot is due; between two looks at the clock


class SignOfLife:
    """Stands between the program and its two outputs; writes dots to stderr while both are silent."""

    def __init__(self, name: str):
        self._name, self._err = name, sys.stderr
        self._begin = self._last = time.monotonic()
        self._dots, self._closed = False, threading.Event()
        sys.stdout, sys.stderr = _Noted(sys.stdout, self), _Noted(sys.stderr, self)
        threading.Thread(target=self._watch, name="sign of life", daemon=True).start()

    def wrote(self) -> None:
        """The program has something to say: on a line of its own."""
        self._last = time.monotonic()
        if self._dots:
            self._dots = False
            self._say("\n")

    def close(self) -> None:
        """No more dots; what follows begins on a line of its own."""
        self._closed.set()
        self.wrote()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            now = time.monotonic()
            if now - self._last >= SILENT_S:
                self._last = now
                self._say("." if self._dots else f"{self._name}: at work, {now - self._begin:.0f} s ")
                self._dots = True

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed: nobody listens
            os.write(self._err.fileno(), text.encode())  # past the buffer, whose lock is not ours to hold


class _Noted:
    """A text stream that tells when it is written to."""

    def __init__(self, stream: TextIO, told: SignOfLife):
        self._stream, self._told = stream, told

    def write(self, text: str) -> int:
        self._told.wrote()
        return self._stream.write(text)

    def fileno(self) -> int:
        """The descriptor; who asks for it is about to write there."""
        self._told.wrote()
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
