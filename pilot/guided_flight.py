"""The flight proper: from a state to a command, by its guidance, with progress, launch, fall-backs and the end.

It asks for no message, link or clock, and is the one way from a state to a command, for `Pilot` and for `Racer`.
"""

from collections.abc import Collection
from typing import Generic, TypeVar

import numpy as np

from gate_racer.estimation.estimator import Estimator, State
from gate_racer.mpc.control import Control, Source
from gate_racer.pilot.flight import End, EndReason, FlightCounters
from gate_racer.pilot.guidance.protocol import FlightGuidance

AIRBORNE_M_S, AIRBORNE_M = 0.5, 0.3  # m/s, estimated speed, or m from the pad, at which the launch has succeeded
LAUNCH_LIMIT_S = 3.0  # s from the first command to take-off
LEVEL_LIMIT_S = 2.0  # s of flight without any solution

E = TypeVar("E", bound=Estimator)


class GuidedFlight(Generic[E]):
    """Flight of one guidance. For each command call `judge`, until there is an end, then `command`."""

    def __init__(
        self, guidance: FlightGuidance[E], period_s: float, limit_s: float, ignored: Collection[EndReason] = frozenset()
    ):
        """Create it on the pad.

        Args:
            period_s: time between two commands, s.
            limit_s: longest flight since GO, s.
            ignored: reasons that do not end this flight.
        """
        self.guidance, self.counters = guidance, FlightCounters()
        self.end: End | None = None
        self.end_t = 0.0  # s
        self._period_s, self._limit_s, self._ignored = period_s, limit_s, ignored
        self.rest()

    def rest(self) -> None:
        """Return to before the launch."""
        self.airborne = False
        self.launch: State | None = None  # state at the first command
        self._level_since: float | None = None

    def judge(self, state: State, t: float, go_t: float, estimator: E) -> None:
        """Update launch, progress and limits from the state at t (s); GO was at go_t (s)."""
        self.launch = self.launch or state
        if not self.airborne:
            moved = state.p_wb - self.launch.p_wb
            self.airborne = bool(np.linalg.norm(state.v_w) > AIRBORNE_M_S or np.linalg.norm(moved) > AIRBORNE_M)
            if not self.airborne and t - self.launch.t > LAUNCH_LIMIT_S:
                cause = f"the vehicle did not move within {LAUNCH_LIMIT_S:g} s of the first command"
                self.conclude(End(EndReason.NOT_AIRBORNE, cause), state.t)
        self.conclude(self.guidance.judge(state, t, go_t, estimator), state.t)
        if t - go_t > self._limit_s:
            self.conclude(End(EndReason.TIME_LIMIT, f"no finish within {self._limit_s:g} s"), state.t)

    def command(self, state: State, t: float, dt: float, estimator: E) -> Control:
        """Return the command at t (s); the next one follows dt (s) later."""
        control = self.guidance.step(state, t, dt, estimator)
        self.count(control, t)
        return control

    def count(self, control: Control, t: float) -> None:
        """Count a command at t (s), and end a flight that has had no solution for too long."""
        self.counters.fallbacks += control.source is not Source.SOLVED
        self.counters.late += control.step_s > self._period_s
        if control.reason:
            reasons = self.counters.fallback_reasons
            reasons[control.reason] = reasons.get(control.reason, 0) + 1
        if control.source is not Source.LEVEL:
            self._level_since = None
        elif self._level_since is None:
            self._level_since = t
        elif t - self._level_since > LEVEL_LIMIT_S:
            cause = f"no solution for {LEVEL_LIMIT_S:g} s (solver status {control.status})"
            self.conclude(End(EndReason.NO_SOLUTION, cause), t)

    def conclude(self, end: End | None, t: float) -> None:
        """Record the first end, at t (s), unless it is ignored."""
        if end is not None and self.end is None and end.reason not in self._ignored:
            self.end, self.end_t = self.guidance.conclude(end), t
