"""Start procedure of a run, and the monitor of a client's compliance with VADR-TS-002.

Without a `RaceSchedule` in the profile arming is GO; with one there is a countdown, during which the real simulator sends its
map, and disqualifies a client that commands thrust.

Compliance (4.4 and 5.2): rates of set-points and heartbeats on the simulator's clock, set-points while disarmed, and dropped
messages. Violations are reported to the referee.
"""

import math
from collections import deque
from collections.abc import Mapping

from gate_racer.link.messages import AttitudeTarget, Command, MapGate, PositionTarget, RaceStatus, TrackMap
from gate_racer.link.profile import Profile, RaceSchedule
from gate_racer.link.server import Refusal
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import from_euler, product

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


COMMAND_RATE, HEARTBEAT_RATE = "command rate", "heartbeat rate"
DISARMED, LINK_LOSS, DROPPED = "set-point while disarmed", "link loss", "dropped"
ALTERED, REFUSED = "not flown as sent", "refused"
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
        self._disarmed_t = 0.0  # s, last time at which it was not

    def silent_s(self, t: float) -> float:  # since the last heartbeat or set-point, at most since arming
        return t - max(self._received_t, self._disarmed_t)

    def heartbeat(self, t: float) -> None:
        """Register a heartbeat received at t. The rate counts from GO."""
        self._received_t, self._gap_reported = t, False
        beats, race = self._beats, self._referee.race
        if race.status is not RunStatus.RUNNING or race.go_t is None:
            beats.clear()
            return
        beats.append(t)
        took, may = t - beats[0], (len(beats) - 1) / self._least_hz + BEAT_SLACK_S
        if len(beats) > BEATS and took > may:
            self._referee.note(HEARTBEAT_RATE, t, f"{BEATS / took:.2f} Hz instead of {self._least_hz:g} Hz or more")

    def setpoint(self, t: float, armed: bool) -> None:
        """Register a valid set-point received at t."""
        self._received_t = t
        self._setpoints.append(t)
        took = t - self._setpoints[0]
        if len(self._setpoints) == self._setpoints.maxlen and took <= self._span_s + 1e-9:
            many = f"{len(self._setpoints)} set-points in {took:.3f} s"
            self._referee.note(COMMAND_RATE, t, f"{many}: must be below {self._limit_hz:g} Hz")
        if not armed and t - self._armed_t > UNAWARE_S:
            self._referee.note(DISARMED, t, "it is ignored: arm first")

    def dropped(self, t: float, refusal: Refusal) -> None:
        self._referee.note(f"{DROPPED}: {refusal.fault}", t, refusal.reason)

    def lawful(self, t: float, what: str, reasons: Mapping[str, str]) -> None:
        """Register what breaks no rule: fields that are ALTERED, or REFUSED datagrams, which anyone may have sent."""
        for one, reason in reasons.items():
            self._referee.note(f"{what}: {one}", t, reason, lawful=True)

    def link_lost(self, t: float) -> None:
        why = f"neither heartbeat nor set-point for {self.silent_s(t):.2f} s: failsafe engaged"
        self._referee.note(LINK_LOSS, t, why)

    def tick(self, t: float, armed: bool) -> None:
        """Check for missing heartbeats at t; call at every tick."""
        if armed:
            self._armed_t = t
        else:
            self._disarmed_t = t
        race = self._referee.race
        if race.status is not RunStatus.RUNNING or race.go_t is None or self._gap_reported:
            return
        since = max(race.go_t, self._beats[-1] if self._beats else -math.inf)
        if t - since > 1 / self._least_hz + BEAT_SLACK_S:
            self._gap_reported = True
            why = f"no heartbeat for {t - since:.2f} s: at least {self._least_hz:g} Hz are required"
            self._referee.note(HEARTBEAT_RATE, t, why)
