"""stderr, written by its own thread: a closed or blocked stream neither delays nor ends a flight."""

import contextlib
import os
import sys
import threading
from collections import deque

LINES_KEPT = 100  # lines buffered while the stream is blocked
CLOSE_S = 1.0  # s to write the remaining lines at the end
CLEAR = "\r\x1b[K"


def warn(sentence: str) -> None:
    """Write a line to stderr, if there is one; may block, so not for use in flight."""
    _write(f"warning: {sentence}\n")


def _write(text: str) -> None:
    """Write without Python's buffer, whose lock would outlive a thread that hangs."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never open
        os.write(sys.stderr.fileno(), text.encode(errors="replace"))


class Console:
    """Writer of stderr; `say` and `show` never wait and never raise."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._status: str | None = None  # newest status line, to replace the one shown
        self._shown = False  # a status line is on the screen
        self._news, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Write a line."""
        self._lines.append(line)
        self._news.set()

    def show(self, status: str) -> None:
        """Replace the status line, on a terminal."""
        self._status = status
        self._news.set()

    def close(self) -> None:
        """Write the remaining lines, unless the stream is blocked."""
        self._closed = True
        self._news.set()
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while not self._closed or self._lines:
            self._news.wait()
            self._news.clear()
            while self._lines:
                _write(f"{CLEAR if self._shown else ''}{self._lines.popleft()}\n")
                self._shown = False
            status, self._status = self._status, None
            if status is not None:
                _write(f"{CLEAR}{status}")
                self._shown = True
        if self._shown:
            _write("\n")
