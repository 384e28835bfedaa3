"""Entry into PX4's OFFBOARD mode: a stream of set-points, then the mode, then arming; and detection of leaving it.

PX4 user guide, "Offboard Mode".
"""

from gate_racer.link.messages import (
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
from gate_racer.link.profile import OffboardRules

OFFBOARD = "OFFBOARD"
IDLE = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0)
IDLE_S = 0.05  # s between idle set-points: well within the time-out after which PX4 leaves the mode
RETRY_S = 0.5  # s between requests
STALE_BEATS = 2  # consecutive heartbeats of another mode; the first after a switch may be stale
NAMES = {ARM_COMMAND: "arming", MODE_COMMAND: "OFFBOARD"}


class OffboardEntry:
    """State machine of the OFFBOARD entry: tracks PX4's mode, and `commands` returns the next request."""

    def __init__(self, rules: OffboardRules):
        self._stream_s = rules.stream_s
        self.entered = False  # according to PX4's last report
        self._confirmed, self._other_beats = False, 0  # confirmed by a heartbeat
        self._streaming_since: float | None = None  # s
        self._next_idle = self._next_ask = float("-inf")  # s
        self._mode = self._said = ""
        self._refused: dict[int, str] = {}  # result by refused command

    @property
    def refusal(self) -> str:
        """Return what PX4 has refused last, with its reason if given; empty if nothing."""
        words = ", ".join(f"{NAMES[command]} is refused ({result})" for command, result in self._refused.items())
        return f"{words}{self._reason}" if words else ""

    @property
    def departure(self) -> str:
        """Return the message for a departure from OFFBOARD, with the new mode and PX4's reason."""
        return f"the autopilot left OFFBOARD for {self._mode}{self._reason}"

    @property
    def _reason(self) -> str:
        return f": {self._said}" if self._said else ""

    def receive(self, message: Telemetry) -> None:
        """Process one message."""
        if isinstance(message, Heartbeat):
            self._receive_mode(message.mode)
        elif isinstance(message, Ack) and message.command in NAMES:
            if message.accepted:
                self._refused.pop(message.command, None)
                if message.command == MODE_COMMAND:
                    self.entered, self._other_beats = True, 0
            else:
                self._refused[message.command] = message.result
        elif isinstance(message, StatusText) and message.severity <= WARNING:
            self._said = message.text

    def _receive_mode(self, mode: str) -> None:
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
        """Return the commands before the flight at time t (s): idle set-points, then the mode, then arming."""
        idle = self.idle(t)
        if self._streaming_since is None:
            self._streaming_since = t
        if t < max(self._next_ask, self._streaming_since + self._stream_s + RETRY_S):
            return idle
        self._next_ask = t + RETRY_S
        return [*idle, Arm(True) if self.entered else EnterOffboard()]

    def idle(self, t: float) -> list[Command]:
        """Return a set-point without thrust when one is due to keep the stream alive."""
        if t < self._next_idle:
            return []
        self._next_idle = t + IDLE_S
        return [IDLE]
