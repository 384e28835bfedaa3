"""What VADR-TS-002 asks of a client (4.4 and 5.2), watched on the simulator's clock: rates of set-points and heartbeats,
set-points while disarmed, and all that had to be dropped. What is broken goes to the referee, who counts it.
"""

import math
from collections import deque

from link.profile import Profile
from link.setpoints import Refusal
from sim.referee import Referee, RunStatus

COMMAND_RATE, HEARTBEAT_RATE = "command rate", "heartbeat rate"
DISARMED, LINK_LOSS, DROPPED = "set-point while disarmed", "link loss", "dropped"
BEATS = 10  # gaps over which the rate of heartbeats is taken
BEAT_SLACK_S = 0.1  # of the network and the client's loop
UNAWARE_S = 0.5  # a client may still send after it was disarmed: it hears of that by the heartbeat


class Compliance:
    """Watches one client of a run. Times in s of the simulator's clock."""

    def __init__(self, profile: Profile, referee: Referee):
        self._referee, self._limit_hz, self._least_hz = referee, profile.command_limit_hz, profile.heartbeat_limit_hz
        many = math.ceil(self._limit_hz)
        self._setpoints: deque[float] = deque(maxlen=many)  # as many as one second may not hold
        self._span_s = (many - 1) / self._limit_hz
        self._beats: deque[float] = deque(maxlen=BEATS + 1)
        self._gap_told = False
        self._armed_t = -math.inf  # s, when the vehicle was armed last
        self._heard_t = 0.0  # s, of the last heartbeat or set-point

    def silent_s(self, t: float) -> float:
        """For how long neither heartbeat nor set-point has come."""
        return t - self._heard_t

    def heartbeat(self, t: float) -> None:
        """One has come."""
        self._heard_t, self._gap_told = t, False
        beats = self._beats
        beats.append(t)
        took, may = t - beats[0], (len(beats) - 1) / self._least_hz + BEAT_SLACK_S
        if len(beats) > BEATS and took > may:
            self._break(HEARTBEAT_RATE, t, f"{BEATS / took:.2f} Hz instead of {self._least_hz:g} Hz or more")

    def setpoint(self, t: float, armed: bool) -> None:
        """One that can be carried out has come."""
        self._heard_t = t
        self._setpoints.append(t)
        took = t - self._setpoints[0]
        if len(self._setpoints) == self._setpoints.maxlen and took <= self._span_s + 1e-9:
            self._break(
                COMMAND_RATE, t, f"{len(self._setpoints)} set-points in {took:.3f} s: not under {self._limit_hz:g} Hz"
            )
        if not armed and t - self._armed_t > UNAWARE_S:
            self._break(DISARMED, t, "nothing acts on it: arm first")

    def dropped(self, t: float, refusal: Refusal) -> None:
        """A set-point or an arm command was."""
        self._break(f"{DROPPED}: {refusal.fault}", t, refusal.reason)

    def link_lost(self, t: float) -> None:
        """The failsafe acts."""
        self._break(LINK_LOSS, t, f"neither heartbeat nor set-point for {self.silent_s(t):.2f} s: the failsafe flies")

    def tick(self, t: float, armed: bool) -> None:
        """Time has passed."""
        if armed:
            self._armed_t = t
        race = self._referee.race
        if race.status is not RunStatus.RUNNING or race.go_t is None or self._gap_told:
            return
        since = max(race.go_t, self._beats[-1] if self._beats else -math.inf)
        if t - since > 1 / self._least_hz + BEAT_SLACK_S:
            self._gap_told = True
            self._break(HEARTBEAT_RATE, t, f"no heartbeat for {t - since:.2f} s: {self._least_hz:g} Hz are the least")

    def _break(self, rule: str, t: float, reason: str) -> None:
        self._referee.note(rule, t, reason)
