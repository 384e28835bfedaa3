"""What the simulator itself tells of the race (ENCAPSULATED_DATA type 1): gates credited and the finish. Where it tells, this
is the verdict on a live flight, whatever the pilot believes.
"""

from link.messages import RaceStatus

SAME_START_S = (
    1.0  # between two starts, or a start and GO, that are of one race: a clock that was set shifts them by less
)


class Scoreboard:
    """Hears every status; that of an earlier race is forgotten when the next has started."""

    def __init__(self) -> None:
        self._start: float | None = None  # s, of the simulator's clock
        self._credited: dict[int, float] = {}  # count of gates to s since GO: when the last of them was passed
        self.newest = -1.0  # s, stamp of the last status
        self.gates = 0
        self.finished = False

    def hear(self, status: RaceStatus) -> None:
        """Takes a status of a race that has started; before GO there is nothing to count."""
        if not status.go or status.start is None:
            return
        if self._start is None or abs(status.start - self._start) > SAME_START_S:
            self._start, self._credited, self.gates, self.finished = status.start, {}, 0, False
        self.newest = max(self.newest, status.t)
        self.finished = self.finished or status.finish is not None
        if status.gate > self.gates:
            self.gates = status.gate
            # A status comes some times a second: where it does not tell the gate's own time, it came at most that much later.
            self._credited[status.gate] = status.t - status.start if status.gate_time is None else status.gate_time

    def tells_of(self, go_t: float | None) -> bool:
        """Whether the race that began at go_t (s) is told of."""
        return self._start is not None and go_t is not None and abs(self._start - go_t) < SAME_START_S

    def gate_times_s(self, total: int) -> list[float]:
        """Of the gates credited, s since GO: as told, or else as told of the next one, which came before the next status."""
        count = total if self.finished else min(self.gates, total)
        times, later = [0.0] * count, max(self._credited.values(), default=0.0)
        for k in range(count, 0, -1):
            later = times[k - 1] = self._credited.get(k, later)
        return times
