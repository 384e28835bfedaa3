"""The referee: times the run, measures gate margins, and ends it at the first contact. GO is the moment of arming.

Margin is the distance from the vehicle's centre to the nearest edge of the opening as it crosses the gate's plane,
found on the straight line between two ticks, so that it is not quantised.
"""

import enum
from dataclasses import dataclass, field

from sim.physics.contact import ColliderKind, Contact
from sim.physics.plant import Truth
from tracks.track import Track


class RunStatus(enum.StrEnum):
    """How a run stands or ended."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CRASHED = "crashed"
    MISSED_GATE = "missed_gate"
    TIMEOUT = "timeout"
    ABORTED = "aborted"


@dataclass
class Race:
    """The result so far. Times in s since GO."""

    status: RunStatus = RunStatus.WAITING
    go_t: float | None = None
    gate_times_s: list[float] = field(default_factory=list)
    gate_margins_m: list[float] = field(default_factory=list)
    cause: str = ""

    @property
    def over(self) -> bool:
        return self.status not in (RunStatus.WAITING, RunStatus.RUNNING)


class Referee:
    """Watches the truth, one tick after the other."""

    def __init__(self, track: Track, laps: int, limit_s: float):
        self.course = track.course(laps)
        self.race = Race()
        self._limit_s = limit_s
        self._before: Truth | None = None

    def go(self, t: float) -> None:
        """Starts the clock."""
        self.race = Race(RunStatus.RUNNING, go_t=t)
        self._before = None

    def forget(self) -> None:
        """The vehicle was put elsewhere: the step to there is no flight."""
        self._before, self._clear = None, False

    def abort(self, cause: str) -> None:
        """Ends the run for a reason of the pilot's or the operator's."""
        if self.race.status is RunStatus.RUNNING:
            self.race.status, self.race.cause = RunStatus.ABORTED, cause

    def watch(self, truth: Truth, contacts: tuple[Contact, ...]) -> None:
        """Judges the step from the last tick to this one, in which these things were hit."""
        race, before = self.race, self._before
        self._before = truth
        if race.status is not RunStatus.RUNNING or before is None or race.go_t is None:
            return
        self._gates(before, truth)
        if race.status is RunStatus.RUNNING and contacts:
            race.status, race.cause = RunStatus.CRASHED, _cause(contacts[0])
        elif race.status is RunStatus.RUNNING and truth.t - race.go_t > self._limit_s:
            race.status, race.cause = RunStatus.TIMEOUT, f"no finish within {self._limit_s:g} s"

    def _gates(self, a: Truth, b: Truth) -> None:
        race = self.race
        passed = len(race.gate_times_s)
        if passed == len(self.course):  # a room without gates
            return
        crossing = self.course[passed].crossing(a.p_wb, b.p_wb)
        if crossing is not None and crossing.margin > 0:
            assert race.go_t is not None
            race.gate_times_s.append(a.t + crossing.s * (b.t - a.t) - race.go_t)
            race.gate_margins_m.append(crossing.margin)
            if passed + 1 == len(self.course):
                race.status = RunStatus.FINISHED
        elif passed + 1 < len(self.course) and self.course[passed + 1] is not self.course[passed]:
            later = self.course[passed + 1].crossing(a.p_wb, b.p_wb)
            if later is not None and later.margin > 0:
                race.status, race.cause = RunStatus.MISSED_GATE, f"gate {passed + 1} was passed before gate {passed}"


def _cause(contact: Contact) -> str:
    if contact.kind is ColliderKind.BOUNDS:
        return f"left the bounds along {'xyz'[contact.index]}"
    return f"hit {contact.kind} {contact.index}"
