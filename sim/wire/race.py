"""Start procedure of a run and its messages. Without a `RaceSchedule` in the profile arming is GO; with one there is a
countdown, during which the real simulator sends its map, disarms, and disqualifies early commands.
"""

from gate_racer.link.messages import MapGate, RaceStatus, TrackMap
from gate_racer.link.profile import RaceSchedule
from gate_racer.sim.referee import Referee
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import from_euler, product

QUARTER_LEFT = from_euler(0.0, 0.0, -1.5707963267948966)  # the protocol's gate axes have y along the flight


class RaceClock:
    """Countdown of one race. Times in s, simulator clock."""

    def __init__(self, race: RaceSchedule | None):
        self._race = race
        self.go_t: float | None = None  # scheduled GO
        self._map_due = False

    @property
    def counts_down(self) -> bool:
        """Whether GO follows a countdown instead of arming."""
        return self._race is not None

    def schedule(self, t: float, after_reset: bool = False) -> None:
        """Schedule GO for a client present at t, unless it is already scheduled; with `after_reset` schedule it again."""
        if self._race is not None and (self.go_t is None or after_reset):
            self.go_t = t + (self._race.settle_s if after_reset else self._race.lobby_s) + self._race.countdown_s
            self._map_due = self._race.map_lead_s > 0

    def wait(self, t: float) -> None:
        """Postpone a scheduled GO as if the client had appeared at t, while other clients of the heat are missing."""
        if self._race is not None and self.go_t is not None:
            self.go_t = t + self._race.lobby_s + self._race.countdown_s

    def cancel(self) -> None:
        """Cancel the schedule until the next message of a client."""
        self.go_t, self._map_due = None, False

    def false_start(self, t: float) -> bool:
        """Check whether a control command at t falls into the countdown and disqualifies."""
        return self._race is not None and self._race.false_start and self._published(t) is not None and not self.gone(t)

    def gone(self, t: float) -> bool:
        """Check whether GO has passed at t."""
        return self.go_t is not None and t >= self.go_t

    def map_due(self, t: float) -> bool:
        """Return True once per race, when the map is due at t."""
        if not self._map_due or self._race is None or self.go_t is None or t < self.go_t - self._race.map_lead_s:
            return False
        self._map_due = False
        return True

    def status(self, t: float, referee: Referee) -> RaceStatus:
        """Return the race status message at t; its gate index is the number of gates passed."""
        race, times = referee.race, referee.race.gate_times_s
        finished = race.go_t is not None and len(times) == len(referee.course)
        finish = race.go_t + times[-1] if finished and race.go_t is not None else None
        return RaceStatus(t, self._published(t), finish, len(times), times[-1] if times else None)

    def _published(self, t: float) -> float | None:
        assert self._race is not None
        return self.go_t if self.go_t is not None and t >= self.go_t - self._race.countdown_s else None


def track_map(t: float, track: Track, at_foot: bool) -> TrackMap:
    """Return the map message of a track's gates, balls excluded, in the protocol's convention."""
    return TrackMap(t, tuple(_map_gate(n, gate, at_foot) for n, gate in enumerate(track.gates) if not gate.is_ball))


def _map_gate(number: int, gate: Gate, at_foot: bool) -> MapGate:
    x, y, z = gate.centre_m
    foot = gate.outer_m / 2 if at_foot else 0.0
    w, i, j, k = product(gate.q_wg.tolist(), QUARTER_LEFT.tolist())
    return MapGate(number, (x, y, z + foot), (w, i, j, k), gate.outer_m, gate.outer_m)
