"""stderr, written by its own thread: a closed or blocked stream neither delays nor ends a flight.

The status line is rewritten on a terminal; elsewhere it is a line for each change of phase.
"""

import contextlib
import os
import queue
import sys
import threading

from gate_racer.common.errors import escaped
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.pilot import AnyPilot

LINES_KEPT = 100  # lines buffered while the stream is blocked
CLOSE_S = 1.0  # s to write the remaining lines at the end
CLEAR = "\r\x1b[K"


def _write(text: str) -> None:
    """Write without Python's buffer, whose lock would outlive a thread that hangs."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never open
        os.write(sys.stderr.fileno(), text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))


class Console:
    """Writer of stderr; `say` and `show` never wait and never raise."""

    def __init__(self) -> None:
        # Text, and whether it is a status line, which the next one replaces; None ends the thread.
        self._queue: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        if self._queue.qsize() < LINES_KEPT:
            self._queue.put((line, False))

    def show(self, status: str) -> None:
        """Replace the status line, on a terminal."""
        if self._queue.empty():
            self._queue.put((status, True))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        shown = False  # a status line is on the screen
        while (item := self._queue.get()) is not None:
            text, passing = item
            clear, end = CLEAR if shown or passing else "", "" if passing else "\n"
            _write(f"{clear}{escaped(text)}{end}")
            shown = passing
        if shown:
            _write("\n")


LINE_S = 0.2  # s of the simulator clock between two updates


class StatusLine:
    """Status display; call it with the pilot at any rate, it writes when an update is due."""

    def __init__(self, console: Console):
        self._console, self._live, self._due, self._phase = console, sys.stderr.isatty(), -1.0, ""
        self.command_hz = 0.0

    def __call__(self, pilot: AnyPilot) -> None:
        t = pilot.estimator.t
        changed = pilot.phase != self._phase
        if self._live and (changed or t >= self._due):
            self._console.show(self.text(pilot))
            self._due = t + LINE_S
        elif changed and not self._live:
            self._console.say(self.text(pilot))
        self._phase = pilot.phase

    def text(self, pilot: AnyPilot) -> str:
        """Return phase, time, gate, speed, drift, solve time and command rate as a line."""
        t = pilot.estimator.t
        if pilot.phase is Phase.WAIT_LINK:
            return f"wait_link: {', '.join(pilot.handshake.missing) or 'ready'}"
        text = pilot.phase.value + (f": {pilot.cause}" if pilot.cause else "")
        if pilot.last_command is None or pilot.go_t is None:
            return text
        state, control = pilot.last_command.state, pilot.last_command.control
        of = f"/{len(pilot.guidance.course)}" if pilot.guidance.course else ""
        where = f"gate {len(pilot.guidance.passages.times_s)}{of}  {float(state.v_w @ state.v_w) ** 0.5:4.1f} m/s"
        loop = f"drift {state.drift:.2f} m  solve {control.solve_s * 1e3:.1f} ms  {self.command_hz:.0f} Hz"
        return f"{text}  {t - pilot.go_t:6.2f} s  {where}  {loop}"
