"""The way into PX4's OFFBOARD: a stream of set-points, then the mode, then arming; and whether it stays.

PX4 user guide, "Offboard Mode".
"""

from link.messages import (
    ARM_COMMAND,
    MODE_COMMAND,
    WARNING,
    Ack,
    Arm,
    AttitudeTarget,
    Command,
    EnterOffboard,
    Heartbeat,
    StatusText,
    Telemetry,
)
from link.profile import OffboardRules

OFFBOARD = "OFFBOARD"
IDLE = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0)
IDLE_S = 0.05  # between two of them: well within the gap after which the mode is left
RETRY_S = 0.5
STALE_BEATS = 2  # heartbeats of another mode in a row, which the one after a switch may still be
NAMES = {ARM_COMMAND: "arming", MODE_COMMAND: "OFFBOARD"}


class OffboardEntry:
    """Hears what PX4 says of modes; `commands` asks for what comes next."""

    def __init__(self, rules: OffboardRules):
        self._stream_s = rules.stream_s
        self.entered = False  # as far as PX4 has said
        self._confirmed, self._other_beats = False, 0  # by a heartbeat
        self._streaming_since: float | None = None  # s
        self._next_idle = self._next_ask = float("-inf")  # s
        self._mode = self._said = ""
        self._refused: dict[int, str] = {}  # result by command

    @property
    def refusal(self) -> str:
        """What PX4 has refused last, and why as far as it says; empty if nothing."""
        words = ", ".join(f"{NAMES[command]} is refused ({result})" for command, result in self._refused.items())
        return f"{words}{self._reason}" if words else ""

    @property
    def departure(self) -> str:
        """That PX4 has left OFFBOARD, for what and why."""
        return f"the autopilot left OFFBOARD for {self._mode}{self._reason}"

    @property
    def _reason(self) -> str:
        return f": {self._said}" if self._said else ""

    def hear(self, message: Telemetry) -> None:
        """Take one message."""
        if isinstance(message, Heartbeat):
            self._hear_mode(message.mode)
        elif isinstance(message, Ack) and message.command in NAMES:
            if message.accepted:
                self._refused.pop(message.command, None)
                if message.command == MODE_COMMAND:
                    self.entered, self._other_beats = True, 0
            else:
                self._refused[message.command] = message.result
        elif isinstance(message, StatusText) and message.severity <= WARNING:
            self._said = message.text

    def _hear_mode(self, mode: str) -> None:
        self._mode = mode
        if mode == OFFBOARD:
            self.entered = self._confirmed = True
            self._other_beats = 0
            self._refused.pop(MODE_COMMAND, None)
            return
        self._other_beats += 1
        if self._confirmed or self._other_beats >= STALE_BEATS:
            self.entered = self._confirmed = False

    def commands(self, t: float) -> list[Command]:
        """Before the flight, at time t (s): idle set-points, then the mode, then arming."""
        idle = self.idle(t)
        if self._streaming_since is None:
            self._streaming_since = t
        if t < max(self._next_ask, self._streaming_since + self._stream_s + RETRY_S):
            return idle
        self._next_ask = t + RETRY_S
        return [*idle, Arm(True) if self.entered else EnterOffboard()]

    def idle(self, t: float) -> list[Command]:
        """A set-point without thrust, when one is due to keep the stream alive."""
        if t < self._next_idle:
            return []
        self._next_idle = t + IDLE_S
        return [IDLE]
