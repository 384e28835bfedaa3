"""What the simulator itself tells of the race (ENCAPSULATED_DATA type 1): gates credited and the finish. Where it tells, this
is the verdict on a live flight, whatever the pilot believes.
"""

from collections import deque
from dataclasses import dataclass, field

from link.messages import RaceStatus

RACES_KEPT = 16  # the one before, the one flown and those that follow; the rest is for foreign speakers
SAME_START_S = 1.0  # s, between two starts, or a start and GO, of one race: a clock that was set shifts them by less


@dataclass
class ToldRace:
    """One race, as its statuses tell."""

    start: float  # s
    newest: float  # s, stamp of the last status
    credited: dict[int, float] = field(default_factory=dict)  # count of gates to s since GO: when the last was passed
    gates: int = 0
    finished: bool = False

    def hear(self, status: RaceStatus) -> None:
        """Take a status of this race."""
        self.newest = max(self.newest, status.t)
        self.finished |= status.finish is not None
        if status.gate > self.gates:
            self.gates = status.gate
            # A status comes some times a second: where it does not tell the gate's own time, it came at most that much later.
            self.credited[status.gate] = status.t - self.start if status.gate_time is None else status.gate_time

    def gate_times_s(self, total: int) -> list[float]:
        """Of the gates credited, s since GO: as told, or else as told of the next one, which came before the next status."""
        count = total if self.finished else min(self.gates, total)
        times, later = [0.0] * count, max(self.credited.values(), default=0.0)
        for k in range(count, 0, -1):
            later = times[k - 1] = self.credited.get(k, later)
        return times


class Scoreboard:
    """Hears every status, of earlier and later races too."""

    def __init__(self) -> None:
        self._races: deque[ToldRace] = deque(maxlen=RACES_KEPT)

    def hear(self, status: RaceStatus) -> None:
        """Take a status of a race that has started; before GO there is nothing to count."""
        if not status.go or status.start is None:
            return
        race = self.race(status.start)
        if race is None:
            race = ToldRace(status.start, status.t)
            self._races.append(race)
        race.hear(status)

    def race(self, go_t: float | None) -> ToldRace | None:
        """The race that began at go_t (s); None where it is not told of."""
        if go_t is None:
            return None
        near = [race for race in self._races if abs(race.start - go_t) < SAME_START_S]
        return min(near, key=lambda race: abs(race.start - go_t), default=None)
