"""Missed gates flown again: conditions, number of attempts, and control. Afterwards the plan is resumed, slowly at first."""

from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.estimation.estimator import State
from gate_racer.link.messages import RaceStatus
from gate_racer.mpc.control import Control
from gate_racer.mpc.controller import Controller
from gate_racer.pilot.flight import End, EndReason, Passages, Retry
from gate_racer.pilot.guidance.incidents import IncidentConfig, LostWatch, StatusWatch, brakes, missed_margin
from gate_racer.pilot.guidance.recovery import Recovery, RecoveryConfig
from gate_racer.pilot.guidance.velocity_controller import VelocityController, control
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import greatest_sigma
from gate_racer.vehicle.vehicle import Vehicle

P = RATES_X["p"].at
DENIED = "the race status does not count it"


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """Parameters of retries. Paces of the plan set by hand."""

    incident: IncidentConfig = field(default_factory=IncidentConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    rejoin_pace: float = 0.4  # of the plan, behind a gate that was flown again,
    quicken_1_s: float = 0.3  # ... and by how much it rises each second


class NoRetries:
    """No gate is flown again: every crossing of an opening's plane counts, and the plan is followed to its end."""

    searches = False
    recovery: None = None

    def __init__(self, gates: int):
        self._gates = gates

    def receive(self, status: RaceStatus) -> None:
        """Ignore the race status."""

    def record_sighting(self, t: float) -> None:
        """Ignore a sighting."""

    def misses(self, gate: Gate, margin_m: float) -> bool:
        """Return False: a crossing with any margin counts."""
        return False

    def judge(self, number: int, outside: bool, passages: Passages, state: State, t: float, go_t: float) -> End | None:
        """Finish with the last gate."""
        return End(EndReason.FINISHED) if len(passages.times_s) == self._gates else None

    def passed(self, number: int, t: float) -> None:
        """Continue along the plan."""

    def resume(self, number: int, t: float) -> None:
        """Continue along the plan."""

    def pace(self, t: float) -> float:
        """Return inf: no limit."""
        return np.inf

    def step(self, x: Array, state: State, t: float, dt: float) -> Control:
        """Never called, as there is no attempt."""
        raise AssertionError("no attempt without retries")


class GateRetries:
    """Retries of one flight; gates are numbered as in its course."""

    searches = True  # gates may be displaced, and a lost estimate is recovered

    def __init__(
        self,
        track: Track,
        course: tuple[Gate, ...],
        controller: Controller,
        vehicle: Vehicle,
        config: RetryConfig | None = None,
    ):
        self._track, self._course, self._controller, self._vehicle = track, course, controller, vehicle
        self._config = config or RetryConfig()
        self._status, self._lost = StatusWatch(self._config.incident), LostWatch(self._config.incident)
        self._recovery: Recovery | None = None
        self._velocity = self._new_controller()
        self._rejoined_t: float | None = None

    @property
    def recovery(self) -> Recovery | None:
        """The current attempt; None while the plan is followed."""
        return self._recovery

    def receive(self, status: RaceStatus) -> None:
        """Process the simulator's race status."""
        self._status.receive(status)

    def record_sighting(self, t: float) -> None:
        """Record that an image showed the next gate at t (s)."""
        if self._recovery is not None:
            self._recovery.record_sighting(t)

    def misses(self, gate: Gate, margin_m: float) -> bool:
        """Return whether a crossing of a gate's plane by the estimate, with this margin, was no passage."""
        return margin_m < missed_margin(gate)

    def judge(self, number: int, outside: bool, passages: Passages, state: State, t: float, go_t: float) -> End | None:
        """Begin an attempt if one is due; finish with the last gate. A gate is flown at until the run's time is over.

        Args:
            number: number of the next gate.
            outside: its plane was just crossed outside of its opening.
            passages: by the estimate; passages that the race status denies are removed, one that it credits is added.
            t: s, now; GO was at go_t.
        """
        if len(passages.times_s) == len(self._course):
            return self._await_finish(number, passages, t, go_t)
        if self._recovery is not None:
            counted = self._status.counted(go_t)
            if counted is not None and counted > number and len(passages.times_s) == number:
                passages.times_s.append(t - go_t)
                passages.margins_m.append(0.0)  # it was passed within, by an unknown margin
                if number + 1 == len(self._course):
                    return End(EndReason.FINISHED)
                self._recovery = self._try(number + 1, t)
            elif self._recovery.failed(t):
                self._begin(number, "a try took too long", passages, t, go_t)
            return None
        number, why = self._incident(number, outside, passages, state, t, go_t)
        if why:
            self._begin(number, why, passages, t, go_t)
        return None

    def _incident(
        self, number: int, outside: bool, passages: Passages, state: State, t: float, go_t: float
    ) -> tuple[int, str]:
        """Return the gate to be flown at again, and why; no reason if there is none. Arguments as in `judge`."""
        if (denied := self._take_back(passages, go_t)) is not None:
            return denied, DENIED
        overdue_s = self._controller.theta - (t - state.t) - self._controller.reference.gate_time(number)
        if outside:
            return number, "passed outside of its opening"
        if overdue_s > self._config.incident.overdue_s:
            return number, "its plane was not crossed near it"
        gate = self._course[number]
        if brakes(gate, state, gate.half - self._vehicle.contact_radius_m, self._config.incident):
            return number, "the estimate is too uncertain for it"
        return number, "the estimate is lost" if self._lost.lost(state.lost, t) else ""

    def passed(self, number: int, t: float) -> None:
        """Record the passage of a gate; after an attempt the plan is resumed from there."""
        if self._recovery is not None:
            self.resume(number, t)

    def resume(self, number: int, t: float) -> None:
        """Resume the plan behind a gate that was passed by another control, slowly at first."""
        self._recovery, self._rejoined_t = None, t
        self._controller.rejoin(self._controller.reference.gate_time(number), self._config.rejoin_pace)

    def pace(self, t: float) -> float:
        """Return the greatest pace at t (s); inf: no limit."""
        if self._rejoined_t is None:
            return np.inf
        return self._config.rejoin_pace + self._config.quicken_1_s * (t - self._rejoined_t)

    def step(self, x: Array, state: State, t: float, dt: float) -> Control:
        """Return the command of an attempt for the state x (14,), with the position in the frame of the plan."""
        assert self._recovery is not None
        sigma_m = greatest_sigma(state.cov_p if state.cov_to_gate is None else state.cov_to_gate)
        aim = self._recovery.aim(x[P], state.v_w, sigma_m, state.lost, t)
        stopping = self._recovery.accel_share
        most = stopping * self._vehicle.thrust_max or self._config.recovery.accel_m_s2
        u, q_wb = self._velocity.input(x, aim, dt, most, learn=not stopping)  # the integral would wind up
        self._controller.sent(t, u)
        return replace(control(x, u, q_wb, aim), theta=self._controller.theta)

    def _await_finish(self, number: int, passages: Passages, t: float, go_t: float) -> End | None:
        """Finish unless the race status contradicts; brake until it confirms."""
        waited_s = t - go_t - passages.times_s[-1]
        if self._status.confirms(number, go_t) or waited_s > self._config.incident.finish_s:
            return End(EndReason.FINISHED)
        if (denied := self._take_back(passages, go_t)) is not None:
            self._begin(denied, DENIED, passages, t, go_t)
        self._recovery = self._recovery or self._try(number, t)
        return None

    def _take_back(self, passages: Passages, go_t: float) -> int | None:
        """Remove the passages that the race status denies; return the number of the first such gate, None if there is none."""
        denied = self._status.missed(passages.times_s, go_t)
        if denied is not None:
            del passages.times_s[denied:], passages.margins_m[denied:]
        return denied

    def _begin(self, number: int, why: str, passages: Passages, t: float, go_t: float) -> None:
        passages.retries.append(Retry(number, t - go_t, why))
        self._recovery = self._try(number, t)

    def _try(self, number: int, t: float) -> Recovery:
        self._velocity = self._new_controller()
        return Recovery(self._course[number], self._track, t, self._config.recovery)

    def _new_controller(self) -> VelocityController:
        return VelocityController(self._vehicle, self._config.recovery.turn_rad_s)
