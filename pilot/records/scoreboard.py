"""The simulator's own report of the race (ENCAPSULATED_DATA type 1): gates credited and the finish. Where it exists, it is
the verdict on a live flight, whatever the pilot's estimate.
"""

from collections import deque
from dataclasses import dataclass, field

from gate_racer.link.messages import RaceStatus

RACES_KEPT = 16  # the previous race, the current one and later ones; the bound is for foreign senders
SAME_START_S = 1.0  # s, largest difference between starts, or a start and GO, of one race; clock corrections are less


@dataclass
class ReportedRace:
    """One race according to its statuses."""

    start: float  # s
    newest: float  # s, stamp of the last status
    credited: dict[int, float] = field(default_factory=dict)  # s since GO, last passage by count of gates
    gates: int = 0
    finished: bool = False

    def receive(self, status: RaceStatus) -> None:
        """Process a status of this race."""
        self.newest = max(self.newest, status.t)
        self.finished |= status.finish is not None
        if status.gate > self.gates:
            self.gates = status.gate
            # Statuses come a few times a second: without the gate's own time, it was passed at most one period earlier.
            self.credited[status.gate] = status.t - self.start if status.gate_time is None else status.gate_time

    def gate_times_s(self, total: int) -> list[float]:
        """Return the times of the gates credited, s since GO: as reported, or that of the next gate reported."""
        count = total if self.finished else min(self.gates, total)
        times, later = [0.0] * count, max(self.credited.values(), default=0.0)
        for k in range(count, 0, -1):
            later = times[k - 1] = self.credited.get(k, later)
        return times


class Scoreboard:
    """Record of all statuses, of earlier and later races too."""

    def __init__(self) -> None:
        self._races: deque[ReportedRace] = deque(maxlen=RACES_KEPT)

    def receive(self, status: RaceStatus) -> None:
        """Process a status of a race that has started; before GO there is nothing to count."""
        if not status.go or status.start is None:
            return
        race = self.race(status.start)
        if race is None:
            race = ReportedRace(status.start, status.t)
            self._races.append(race)
        race.receive(status)

    def race(self, go_t: float | None) -> ReportedRace | None:
        """Return the race that began at go_t (s); None where none is reported."""
        if go_t is None:
            return None
        near = [race for race in self._races if abs(race.start - go_t) < SAME_START_S]
        return min(near, key=lambda race: abs(race.start - go_t), default=None)
