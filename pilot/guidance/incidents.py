"""What tells, without the simulator's truth, that a gate was missed or that the estimate is lost.

- The estimate has crossed the gate's plane outside of its opening: beyond the middle of the frame, since who flies on has not
  touched it.
- The race status still counts no gate that was passed some time before it was sent.
- The plan has gone on, and the gate's plane was not crossed near the gate.
- The position to the gates has been too doubtful to fly through one for some time.
"""

from dataclasses import dataclass

from link.messages import RaceStatus
from pilot.records.scoreboard import SAME_START_S
from tracks.gate import Gate


@dataclass(frozen=True, slots=True)
class IncidentConfig:
    """When it is believed. Set by hand, unless named otherwise."""

    # After a passage, from when a status that does not count it contradicts. Real builds count up to a quarter of a second late,
    # by other accounts three quarters; once passages were counted: later than any of them, by a status' period and this slack.
    status_s: float = 1.0
    slack_s: float = 0.1
    overdue_s: float = 0.5  # of plan time beyond a gate
    lost_s: float = 1.5  # without a position that fits into a gate
    tries: int = 3  # at one gate


def missed_margin(gate: Gate) -> float:
    """m: a passage with less margin than that by the estimate has missed the gate."""
    return -(gate.outer_m - gate.opening_m) / 4 if gate.has_frame else 0.0


class StatusWatch:
    """Compares what the race status counts with what was passed by the estimate, and learns how late it counts."""

    def __init__(self, config: IncidentConfig):
        self._config = config
        self._status: RaceStatus | None = None
        self._period_s = 0.0  # between the last two
        self._seen = 0  # gates counted so far
        self._latest_s: float | None = None  # the most by which a passage was counted late

    def hear(self, status: RaceStatus) -> None:
        """Take a status; the newest counts."""
        if self._status is not None:
            self._period_s = max(status.t - self._status.t, 0.0)
        self._status = status

    def counted(self, go_t: float) -> int | None:
        """Gates that the newest status of the race that began at go_t (s) counts; None without one."""
        status = self._status
        if status is None or status.start is None or abs(status.start - go_t) > SAME_START_S:
            return None
        return status.gate

    def missed(self, passed_s: list[float], go_t: float) -> int | None:
        """The first gate of those passed by the estimate, s since GO, that is not counted although it should be."""
        counted, status = self.counted(go_t), self._status
        if counted is None or status is None:
            return None
        for k in range(self._seen, min(counted, len(passed_s))):
            late = status.t - go_t - passed_s[k]
            self._latest_s = late if self._latest_s is None else max(self._latest_s, late)
        self._seen = max(self._seen, counted)
        if counted >= len(passed_s):
            return None
        return counted if status.t > go_t + passed_s[counted] + self._patience_s else None

    @property
    def _patience_s(self) -> float:
        """After a passage, from when a status that does not count it contradicts."""
        if self._latest_s is None:
            return self._config.status_s
        return max(self._latest_s, 0.0) + self._period_s + self._config.slack_s


class LostWatch:
    """For how long the estimate has been lost."""

    def __init__(self, config: IncidentConfig):
        self._config, self._since = config, -1.0

    def lost(self, lost: bool, t: float) -> bool:
        """Whether it has been for too long at t (s)."""
        if not lost:
            self._since = -1.0
        elif self._since < 0:
            self._since = t
        return lost and t - self._since > self._config.lost_s
