"""The referee: times the run, measures gate margins, and sees every collision. GO is the moment of arming.

Margin is the distance from the vehicle's centre to the nearest edge of the opening as it crosses the gate's plane,
found on the straight line between two ticks, so that it is not quantised.
"""

import enum
from dataclasses import dataclass, field

import numpy as np

from sim.plant import Truth
from tracks.gate import Gate
from tracks.track import Track
from vehicle.rotation import Array, matrix
from vehicle.vehicle import Vehicle

CLEAR_M = 0.05  # of the ground before touching it counts


class Status(enum.StrEnum):
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

    status: Status = Status.WAITING
    go_t: float | None = None
    gate_times_s: list[float] = field(default_factory=list)
    gate_margins_m: list[float] = field(default_factory=list)
    cause: str = ""

    @property
    def over(self) -> bool:
        return self.status not in (Status.WAITING, Status.RUNNING)


class Referee:
    """Watches the truth, one tick after the other."""

    def __init__(self, track: Track, vehicle: Vehicle, laps: int, limit_s: float):
        self.course = track.course(laps)
        self.race = Race()
        self._track, self._limit_s = track, limit_s
        self._low, self._high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        signs = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)])
        self._body = signs * np.array(vehicle.body_m) / 2  # (8, 3) corners, body FRD
        self._before: Truth | None = None
        self._clear = False  # of the ground

    def go(self, t: float) -> None:
        """Starts the clock."""
        self.race = Race(Status.RUNNING, go_t=t)
        self._before, self._clear = None, False

    def forget(self) -> None:
        """The vehicle was put elsewhere: the step to there is no flight."""
        self._before, self._clear = None, False

    def abort(self, cause: str) -> None:
        """Ends the run for a reason of the pilot's or the operator's."""
        if self.race.status is Status.RUNNING:
            self.race.status, self.race.cause = Status.ABORTED, cause

    def watch(self, truth: Truth) -> None:
        """Judges the step from the last tick to this one."""
        race, before = self.race, self._before
        self._before = truth
        if race.status is not Status.RUNNING or before is None or race.go_t is None:
            return
        self._gates(before, truth)
        if race.status is Status.RUNNING and (hit := self._collision(before, truth)):
            race.status, race.cause = Status.CRASHED, hit
        elif race.status is Status.RUNNING and truth.t - race.go_t > self._limit_s:
            race.status, race.cause = Status.TIMEOUT, f"no finish within {self._limit_s:g} s"

    def _gates(self, a: Truth, b: Truth) -> None:
        race = self.race
        passed = len(race.gate_times_s)
        crossing = self.course[passed].crossing(a.p_wb, b.p_wb)
        if crossing is not None and crossing.margin > 0:
            assert race.go_t is not None
            race.gate_times_s.append(a.t + crossing.s * (b.t - a.t) - race.go_t)
            race.gate_margins_m.append(crossing.margin)
            if passed + 1 == len(self.course):
                race.status = Status.FINISHED
        elif passed + 1 < len(self.course) and self.course[passed + 1] is not self.course[passed]:
            later = self.course[passed + 1].crossing(a.p_wb, b.p_wb)
            if later is not None and later.margin > 0:
                race.status, race.cause = Status.MISSED_GATE, f"gate {passed + 1} was passed before gate {passed}"

    def _collision(self, a: Truth, b: Truth) -> str:
        """What was hit, or nothing. The body is tried at the tick and half-way to it."""
        for p, q in ((0.5 * (a.p_wb + b.p_wb), b.q_wb), (b.p_wb, b.q_wb)):
            corners = p + self._body @ matrix(q).T
            outside = np.maximum(self._low - corners, corners - self._high).max(axis=0)
            self._clear |= bool((outside < -CLEAR_M).all())  # a tilted body touches the ground as it leaves its pad
            if self._clear and (outside > 0).any():
                return f"left the bounds along {'xyz'[int(np.argmax(outside))]}"
            for i, gate in enumerate(self._track.gates):
                if not gate.is_ball and _inside_frame(gate, corners):
                    return f"hit gate {i}"
        return ""


def _inside_frame(gate: Gate, points: Array) -> bool:
    """Whether any world point (n, 3) lies in the solid of the gate's frame."""
    g = np.abs(gate.local(points))
    reach = g[:, 1:].max(axis=1)
    return bool(((g[:, 0] < gate.depth_m / 2) & (reach > gate.opening_m / 2) & (reach < gate.outer_m / 2)).any())
