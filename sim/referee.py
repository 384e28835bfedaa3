"""Referee: times the run, measures gate margins, and ends the run at the first contact. GO is the time of arming.
A contact with a rival does not end the run by itself; a later contact or miss that it causes does.

Gates count in their order. Passing a later gate of the lap ahead, or the due gate in the wrong direction, is a miss. Exempt
are the gate passed last and further gates of the same frame. Violations of the interface are counted; a strict referee
disqualifies at the first.

Margin is the distance from the vehicle's centre to the nearest edge of the opening where it crosses the gate's plane,
interpolated linearly between two ticks, so that it is not quantised.

With a `RaceSchedule` in the profile there is a countdown instead, during which the real simulator sends its map, and disqualifies
a client that commands thrust.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.common.strenum import StrEnum
from gate_racer.link.messages import AttitudeTarget, Command, MapGate, PositionTarget, RaceStatus, TrackMap
from gate_racer.link.profile import RaceSchedule
from gate_racer.sim.physics.contact import ColliderKind, Contact
from gate_racer.sim.physics.plant import Truth
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import from_euler, product

NEAR_M = 1e-3  # m, beyond an opening's reach, from where a step comes near enough to be looked at


class RunStatus(StrEnum):
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
    """Result of the run so far. `go_t`: s, simulator clock. Gate times in s since GO."""

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
    """Violated rule of the interface, or a lawful message that is not flown as sent: time and reason of the first, and number."""

    rule: str
    t: float  # s, simulator clock
    reason: str
    count: int = 1
    lawful: bool = False  # it breaks no rule, and never disqualifies

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}"


class Referee:
    """Judge of a run, from the true state at every tick."""

    def __init__(self, track: Track, laps: int, limit_s: float, strict: bool = False):
        """Set up for `laps` laps and a time limit, s. `strict`: a violation of the interface disqualifies."""
        self.track, self.course = track, track.course(laps)
        self.race = Race()
        self.violations: dict[str, Violation] = {}  # by rule, in this run and the wait before it
        self._limit_s, self._strict, self._too_late = limit_s, strict, f"no finish within {limit_s:g} s"
        # By the gate that is due: gates of the lap ahead whose passing is a miss, of other frames than it and the last.
        self._ahead: list[list[int]] = []
        for due in range(len(self.course)):
            near, end = self.course[max(due - 1, 0) : due + 1], min(due + len(track.gates), len(self.course))
            others = [k for k in range(due + 1, end) if not any(self.course[k].same_frame(gate) for gate in near)]
            self._ahead.append(others)
        self._centres = np.array([gate.p_wg for gate in self.course]).reshape(-1, 3)
        self._reach_m = np.array([gate.reach_m for gate in self.course]) + NEAR_M
        self._before: Truth | None = None

    @property
    def elapsed_s(self) -> float | None:
        """Time of the race up to the last gate passed, s, by the track's clock; None before the first gate."""
        return self.track.elapsed(self.race.gate_times_s) if self.race.gate_times_s else None

    def go(self, t: float) -> None:
        self.race = Race(RunStatus.RUNNING, go_t=t)
        self._before = None

    def forget(self) -> None:
        """Discard the last state after the vehicle was moved, so that the displacement is not judged as flight."""
        self._before = None

    def prepare(self) -> None:
        """Wait for another run; clears the violations."""
        self.race.status = RunStatus.WAITING
        self.violations.clear()

    def note(self, rule: str, t: float, reason: str, lawful: bool = False) -> None:
        """Count a violation of `rule` at time t, s; ignored once the run is over."""
        if self.race.over:
            return
        known = self.violations.get(rule, Violation(rule, t, reason, 0, lawful))
        self.violations[rule] = replace(known, count=known.count + 1)
        if self._strict and not lawful:
            self._end(RunStatus.DISQUALIFIED, str(known))

    def abort(self, cause: str) -> None:
        """End the run on behalf of the pilot or the operator."""
        if self.race.status is RunStatus.RUNNING:
            self._end(RunStatus.ABORTED, cause)

    def watch(self, truth: Truth, contacts: tuple[Contact, ...]) -> None:
        """Judge the step from the last tick to this one, with its contacts."""
        race, before = self.race, self._before
        self._before = truth
        solid = [contact for contact in contacts if contact.kind is not ColliderKind.RIVAL]
        if race.status is not RunStatus.RUNNING or before is None or race.go_t is None:
            return
        self._gates(before, truth, race.go_t)
        if race.status is not RunStatus.RUNNING:
            return
        if solid and solid[0].kind is ColliderKind.BOUNDS:
            self._end(RunStatus.CRASHED, f"left the bounds along {'xyz'[solid[0].index]}")
        elif solid:
            self._end(RunStatus.CRASHED, f"hit {solid[0].kind} {solid[0].index}")
        elif truth.t - race.go_t > self._limit_s:
            self._end(RunStatus.TIMEOUT, self._too_late)

    def _gates(self, a: Truth, b: Truth, go_t: float) -> None:
        race = self.race
        passed = len(race.gate_times_s)
        to_gates_m = np.linalg.norm(self._centres - a.p_wb, axis=1)
        if not (to_gates_m < self._reach_m + np.linalg.norm(b.p_wb - a.p_wb)).any():
            return
        due = self.course[passed]
        crossing = due.crossing(a.p_wb, b.p_wb, a.v_w, b.v_w)
        if crossing is not None and crossing.margin > 0:
            time = a.t + crossing.s * (b.t - a.t) - go_t
            if time > self._limit_s:
                self._end(RunStatus.TIMEOUT, self._too_late)
                return
            race.gate_times_s.append(time)
            race.gate_margins_m.append(crossing.margin)
            if passed + 1 == len(self.course):
                race.status = RunStatus.FINISHED
        elif not (due.is_ball or (passed and due.same_frame(self.course[passed - 1]))) and _through(due, b, a):
            self._end(RunStatus.MISSED_GATE, f"gate {passed} was passed in the wrong direction")
        else:
            early = next((k for k in self._ahead[passed] if _through(self.course[k], a, b)), None)
            if early is not None:
                self._end(RunStatus.MISSED_GATE, f"gate {early} was passed before gate {passed}")

    def _end(self, status: RunStatus, cause: str) -> None:
        self.race.status, self.race.cause = status, cause


def _through(gate: Gate, a: Truth, b: Truth) -> bool:
    """Check whether the step from a to b passes the opening in the direction of flight."""
    crossing = gate.crossing(a.p_wb, b.p_wb, a.v_w, b.v_w)
    return crossing is not None and crossing.margin > 0


QUARTER_LEFT = from_euler(0.0, 0.0, -1.5707963267948966)  # the protocol's gate axes have y along the flight


class RaceClock:
    """Countdown of one race. Times in s, simulator clock."""

    def __init__(self, race: RaceSchedule | None):
        self._race = race
        self.go_t: float | None = None  # scheduled GO
        self._map_due = False

    def schedule(self, t: float, after_reset: bool = False) -> None:
        """Schedule GO for a client present at t, unless it is already scheduled; with `after_reset` schedule it again."""
        if self._race is not None and (self.go_t is None or after_reset):
            self.go_t = t + (self._race.settle_s if after_reset else self._race.lobby_s) + self._race.countdown_s
            self._map_due = self._race.map_lead_s > 0

    def wait(self, t: float) -> None:
        """Postpone a scheduled GO as if the client had appeared at t, while other clients of the race are missing."""
        if self._race is not None and self.go_t is not None:
            self.go_t = t + self._race.lobby_s + self._race.countdown_s

    def cancel(self) -> None:
        self.go_t, self._map_due = None, False

    def false_start(self, t: float, command: Command) -> bool:
        """Check whether a command at t is for motion and falls into the countdown, which disqualifies; idling does not."""
        moves = isinstance(command, PositionTarget) or (isinstance(command, AttitudeTarget) and command.throttle > 0)
        counting = self._race is not None and self._race.false_start and self._published(t) is not None
        return moves and counting and not self.gone(t)

    def gone(self, t: float) -> bool:  # whether GO has passed
        return self.go_t is not None and t >= self.go_t

    def map_due(self, t: float) -> bool:
        """Return True once per race, when the map is due at t."""
        race, go_t = self._race, self.go_t
        due = self._map_due and race is not None and go_t is not None and t >= go_t - race.map_lead_s
        self._map_due = self._map_due and not due
        return due

    def status(self, t: float, referee: Referee) -> RaceStatus:
        """Return the race status message at t; its gate index is the number of gates passed."""
        go_t, times = referee.race.go_t, referee.race.gate_times_s
        finish = go_t + times[-1] if go_t is not None and len(times) == len(referee.course) else None
        return RaceStatus(t, self._published(t), finish, len(times), times[-1] if times else None)

    def _published(self, t: float) -> float | None:
        assert self._race is not None
        return self.go_t if self.go_t is not None and t >= self.go_t - self._race.countdown_s else None


def track_map(t: float, track: Track, at_foot: bool) -> TrackMap:
    """Return the map message of a track's gates, balls excluded, in the protocol's convention."""
    gates = []
    for number, gate in enumerate(track.gates):
        if not gate.is_ball:
            x, y, z = gate.centre_m
            w, i, j, k = product(gate.q_wg.tolist(), QUARTER_LEFT.tolist())
            place = x, y, z + (gate.outer_m / 2 if at_foot else 0.0)
            gates.append(MapGate(number, place, (w, i, j, k), gate.outer_m, gate.outer_m))
    return TrackMap(t, tuple(gates))
