"""stderr, written by a thread of its own: neither a closed one nor one that nobody reads holds up or ends a flight."""

import contextlib
import os
import sys
import threading
from collections import deque

LINES_KEPT = 100  # while nobody reads
CLOSE_S = 1.0  # for what is left at the end
CLEAR = "\r\x1b[K"


def warn(sentence: str) -> None:
    """A line on stderr, if there is one; it may wait, so not in flight."""
    _write(f"warning: {sentence}\n")


def _write(text: str) -> None:
    """Past Python's buffer, whose lock would outlive a thread that hangs."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never open
        os.write(sys.stderr.fileno(), text.encode(errors="replace"))


class Console:
    """`say` and `show` never wait and never raise."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._status: str | None = None  # newest, to be shown in place of the last
        self._shown = False  # whether the cursor is behind one
        self._news, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """A line of its own."""
        self._lines.append(line)
        self._news.set()

    def show(self, status: str) -> None:
        """The line that is rewritten, on a terminal."""
        self._status = status
        self._news.set()

    def close(self) -> None:
        """Writes what is left, if anybody reads."""
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
