"""The referee: times the run, measures gate margins, and ends it at the first contact. GO is the moment of arming.
A contact with a rival ends nothing by itself: whoever it throws off the course ends there.

Gates count in their order. A gate that is passed before its turn, or against its direction, is a miss at once, whatever lies
between; what was passed last, and the same frame used again, are not held against anyone. Breaches of the interface are
counted; a strict referee disqualifies for the first.

Margin is the distance from the vehicle's centre to the nearest edge of the opening as it crosses the gate's plane,
found on the straight line between two ticks, so that it is not quantised.
"""

import enum
from dataclasses import dataclass, field, replace

from sim.physics.contact import ColliderKind, Contact
from sim.physics.plant import Truth
from tracks.gate import Gate
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
    DISQUALIFIED = "disqualified"


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


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of the interface that the client has broken, as the first time, and how often."""

    rule: str
    t: float  # s of the simulator's clock
    reason: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}"


class Referee:
    """Watches the truth, one tick after the other."""

    def __init__(self, track: Track, laps: int, limit_s: float, strict: bool = False):
        """`strict`: whether a breach of the interface disqualifies."""
        self.course = track.course(laps)
        self.race = Race()
        self.violations: dict[str, Violation] = {}  # of this run and the wait before it, by rule
        self._limit_s, self._strict = limit_s, strict
        self._ahead = tuple(self._later(k, len(track.gates)) for k in range(len(self.course)))
        self._before: Truth | None = None

    def go(self, t: float) -> None:
        """Starts the clock."""
        self.race = Race(RunStatus.RUNNING, go_t=t)
        self._before = None

    def forget(self) -> None:
        """The vehicle was put elsewhere: the step to there is no flight."""
        self._before = None

    def prepare(self) -> None:
        """Another run is to come."""
        self.race.status = RunStatus.WAITING
        self.violations.clear()

    def note(self, rule: str, t: float, reason: str) -> None:
        """The client has broken a rule of the interface at t (s); once the run is over that does not matter."""
        if self.race.over:
            return
        known = self.violations.get(rule)
        self.violations[rule] = replace(known, count=known.count + 1) if known else Violation(rule, t, reason)
        if self._strict:
            self.race.status, self.race.cause = RunStatus.DISQUALIFIED, str(self.violations[rule])

    def abort(self, cause: str) -> None:
        """Ends the run for a reason of the pilot's or the operator's."""
        if self.race.status is RunStatus.RUNNING:
            self.race.status, self.race.cause = RunStatus.ABORTED, cause

    def watch(self, truth: Truth, contacts: tuple[Contact, ...]) -> None:
        """Judges the step from the last tick to this one, in which these things were hit."""
        race, before = self.race, self._before
        self._before = truth
        solid = [contact for contact in contacts if contact.kind is not ColliderKind.RIVAL]
        if race.status is not RunStatus.RUNNING or before is None or race.go_t is None:
            return
        self._gates(before, truth)
        if race.status is RunStatus.RUNNING and solid:
            race.status, race.cause = RunStatus.CRASHED, _cause(solid[0])
        elif race.status is RunStatus.RUNNING and truth.t - race.go_t > self._limit_s:
            self._timeout()

    def _gates(self, a: Truth, b: Truth) -> None:
        race = self.race
        passed = len(race.gate_times_s)
        if passed == len(self.course):  # a room without gates
            return
        due = self.course[passed]
        crossing = due.crossing(a.p_wb, b.p_wb)
        if crossing is not None and crossing.margin > 0:
            assert race.go_t is not None
            time = a.t + crossing.s * (b.t - a.t) - race.go_t
            if time > self._limit_s:
                self._timeout()
                return
            race.gate_times_s.append(time)
            race.gate_margins_m.append(crossing.margin)
            if passed + 1 == len(self.course):
                race.status = RunStatus.FINISHED
        elif not (due.is_ball or (passed and due.same_frame(self.course[passed - 1]))) and _through(due, b, a):
            self._miss(f"gate {passed} was passed in the wrong direction")
        else:
            early = next((k for k in self._ahead[passed] if _through(self.course[k], a, b)), None)
            if early is not None:
                self._miss(f"gate {early} was passed before gate {passed}")

    def _later(self, due: int, lap: int) -> tuple[int, ...]:
        """The gates that must not be passed while one is due: the lap ahead, but for its own frame and the one passed last."""
        near = [self.course[k] for k in (due - 1, due) if k >= 0]
        ahead = range(due + 1, min(due + lap, len(self.course)))
        return tuple(k for k in ahead if not any(self.course[k].same_frame(gate) for gate in near))

    def _miss(self, cause: str) -> None:
        self.race.status, self.race.cause = RunStatus.MISSED_GATE, cause

    def _timeout(self) -> None:
        self.race.status, self.race.cause = RunStatus.TIMEOUT, f"no finish within {self._limit_s:g} s"


def _through(gate: Gate, a: Truth, b: Truth) -> bool:
    """Whether the step from a to b passes the opening in the direction of flight."""
    crossing = gate.crossing(a.p_wb, b.p_wb)
    return crossing is not None and crossing.margin > 0


def _cause(contact: Contact) -> str:
    if contact.kind is ColliderKind.BOUNDS:
        return f"left the bounds along {'xyz'[contact.index]}"
    return f"hit {contact.kind} {contact.index}"
