"""Monitor of a client's compliance with VADR-TS-002 (4.4 and 5.2): rates of set-points and heartbeats on the simulator's
clock, set-points while disarmed, and dropped messages. Violations are reported to the referee.
"""

import math
from collections import deque

from gate_racer.link.profile import Profile
from gate_racer.link.setpoints import Refusal
from gate_racer.sim.referee import Referee, RunStatus

COMMAND_RATE, HEARTBEAT_RATE = "command rate", "heartbeat rate"
DISARMED, LINK_LOSS, DROPPED = "set-point while disarmed", "link loss", "dropped"
BEATS = 10  # intervals over which the heartbeat rate is averaged (chosen)
BEAT_SLACK_S = 0.1  # s, tolerance for jitter of the network and of the client's loop (chosen)
UNAWARE_S = 0.5  # s, grace time after disarming, which a client learns by the heartbeat (chosen)


class Compliance:
    """Monitor of one client. Times in s, simulator clock."""

    def __init__(self, profile: Profile, referee: Referee):
        self._referee, self._limit_hz, self._least_hz = referee, profile.command_limit_hz, profile.heartbeat_limit_hz
        many = math.ceil(self._limit_hz)
        self._setpoints: deque[float] = deque(maxlen=many)  # one more than a second may hold
        self._span_s = (many - 1) / self._limit_hz
        self._beats: deque[float] = deque(maxlen=BEATS + 1)
        self._gap_reported = False
        self._armed_t = -math.inf  # s, last time at which the vehicle was armed
        self._received_t = 0.0  # s, time of the last heartbeat or set-point

    def silent_s(self, t: float) -> float:
        """Return the time in s since the last heartbeat or set-point."""
        return t - self._received_t

    def heartbeat(self, t: float) -> None:
        """Register a heartbeat received at t."""
        self._received_t, self._gap_reported = t, False
        beats = self._beats
        beats.append(t)
        took, may = t - beats[0], (len(beats) - 1) / self._least_hz + BEAT_SLACK_S
        if len(beats) > BEATS and took > may:
            self._break(HEARTBEAT_RATE, t, f"{BEATS / took:.2f} Hz instead of {self._least_hz:g} Hz or more")

    def setpoint(self, t: float, armed: bool) -> None:
        """Register a valid set-point received at t."""
        self._received_t = t
        self._setpoints.append(t)
        took = t - self._setpoints[0]
        if len(self._setpoints) == self._setpoints.maxlen and took <= self._span_s + 1e-9:
            self._break(
                COMMAND_RATE,
                t,
                f"{len(self._setpoints)} set-points in {took:.3f} s: must be below {self._limit_hz:g} Hz",
            )
        if not armed and t - self._armed_t > UNAWARE_S:
            self._break(DISARMED, t, "it is ignored: arm first")

    def dropped(self, t: float, refusal: Refusal) -> None:
        """Register a set-point or arm command that was dropped at t."""
        self._break(f"{DROPPED}: {refusal.fault}", t, refusal.reason)

    def link_lost(self, t: float) -> None:
        """Register that the failsafe has taken over at t."""
        self._break(LINK_LOSS, t, f"neither heartbeat nor set-point for {self.silent_s(t):.2f} s: failsafe engaged")

    def tick(self, t: float, armed: bool) -> None:
        """Check for missing heartbeats at t; call at every tick."""
        if armed:
            self._armed_t = t
        race = self._referee.race
        if race.status is not RunStatus.RUNNING or race.go_t is None or self._gap_reported:
            return
        since = max(race.go_t, self._beats[-1] if self._beats else -math.inf)
        if t - since > 1 / self._least_hz + BEAT_SLACK_S:
            self._gap_reported = True
            self._break(
                HEARTBEAT_RATE, t, f"no heartbeat for {t - since:.2f} s: at least {self._least_hz:g} Hz are required"
            )

    def _break(self, rule: str, t: float, reason: str) -> None:
        self._referee.note(rule, t, reason)
