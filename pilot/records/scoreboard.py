"""The simulator's own report of the race (ENCAPSULATED_DATA type 1): gates counted, their times and the finish. Where it exists,
it is the verdict on a live flight, whatever the pilot's estimate.

The fields are updated apart: the count lags by up to 0.75 s, and may not include the last gate when the finish is reported.
"""

from collections import deque
from dataclasses import dataclass, field

from gate_racer.link.messages import RaceStatus

RACES_KEPT = 16  # the previous race, the current one and later ones; the bound is for foreign senders
SAME_START_S = 1.0  # s, largest difference between starts, or a start and GO, of one race; clock corrections are less


SAME_TIME_S = 0.01  # s, tolerance of a gate's time against the stamp of the status that counts it


@dataclass
class ReportedRace:
    """One race according to its statuses. Times in s since GO, but for `start` and `newest`."""

    start: float  # s, simulator clock
    newest: float  # s, simulator clock, stamp of the last status
    gates: int = 0  # count of gates passed
    finished: bool = False
    finish_s: float | None = None  # None where the finish is reported without a possible time
    _counted: list[tuple[float, int]] = field(default_factory=list)  # times of statuses and the counts that they raised
    _passed: dict[int, float] = field(default_factory=dict)  # time of each gate, by its number from 1
    _gate_s: float = -1.0  # newest time of a last gate

    def receive(self, status: RaceStatus) -> None:
        """Process a status of this race."""
        self.newest = max(self.newest, status.t)
        now_s = status.t - self.start
        if status.gate > self.gates:
            self.gates = status.gate
            self._counted.append((now_s, status.gate))
        gate_s = status.gate_time
        if gate_s is not None and self._gate_s < gate_s <= now_s + SAME_TIME_S:
            self._passed[self._number(gate_s, status.gate)] = self._gate_s = gate_s
        if status.finish is not None and not self.finished:
            self.finished = True
            finish_s = status.finish - self.start
            if self._gate_s - SAME_TIME_S <= finish_s <= now_s + SAME_TIME_S:
                self.finish_s = finish_s

    def _number(self, gate_s: float, count: int) -> int:
        """Return the number, from 1, of the gate passed at gate_s, as first seen beside a count.

        The count may lag, so it is a lower bound; so are the gates counted before gate_s, and those that have a time.
        """
        before = max((n for t, n in self._counted if t < gate_s - SAME_TIME_S), default=0)
        return max(count, before + 1, max(self._passed, default=0) + 1)

    def gate_times_s(self, total: int) -> list[float | None]:
        """Return the times of the gates passed of a course of `total` gates; None where the race status never had one."""
        count = total if self.finished else min(max(self.gates, *self._passed, 0), total)
        times = [self._passed.get(number) for number in range(1, count + 1)]
        if self.finish_s is not None and times:
            times[-1] = self.finish_s
        return times

    def counted_s(self, number: int) -> float:
        """Return the latest time at which a gate, numbered from 1, was passed: that of the status that counts it."""
        return next((t for t, count in self._counted if count >= number), self.newest - self.start)


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
