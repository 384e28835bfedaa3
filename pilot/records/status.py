"""The status line: rewritten on a terminal; elsewhere a line for each change of phase."""

import sys

from gate_racer.pilot.flight import Phase
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.console import Console

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
        gates = f"{len(pilot.guidance.passages.times_s)}" + (
            f"/{len(pilot.guidance.course)}" if pilot.guidance.course else ""
        )
        speed = float(state.v_w @ state.v_w) ** 0.5
        return (
            f"{text}  {t - pilot.go_t:6.2f} s  gate {gates}  {speed:4.1f} m/s"
            f"  drift {state.drift:.2f} m  solve {control.solve_s * 1e3:.1f} ms  {self.command_hz:.0f} Hz"
        )
