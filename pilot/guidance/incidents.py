"""Detection of a missed gate or a lost estimate without the simulator's truth.

- The estimate has crossed the gate's plane outside of its opening: beyond the middle of the frame, since a vehicle that
  flies on has not hit it.
- The race status does not count a gate that was passed some time before it was sent.
- The plan has advanced past the gate, and the gate's plane was not crossed near the gate.
- The position to the gates has been too uncertain to fly through one for some time, or the next gate has to be braked for now
  and its opening is more likely missed than hit.
"""

from math import inf

import numpy as np

from gate_racer.estimation.estimator import State
from gate_racer.link.messages import RaceStatus
from gate_racer.pilot.records.recorder import SAME_START_S
from gate_racer.tracks.gate import Gate, sigma_across

# Thresholds of the detection, set by hand unless stated otherwise.

# s, delay after a passage from which a status without it contradicts. Real builds count up to a quarter of a second late, by
# other accounts three quarters. Once passages were counted, the delay is the longest seen, plus a status period, plus
# SLACK_S; once COUNTS were counted with what may be one delay, that one plus SLACK_S.
STATUS_S = 1.0
SLACK_S = 0.15
COUNTS = 5
OVERDUE_S = 0.5  # s of plan time beyond a gate
BLIND = 1.0  # standard deviation across the opening over the room in it, above which a gate is braked for
BRAKE_S = 0.25  # s until the thrust has turned against the flight, before such a gate
BRAKE_M_S2 = 25.0  # deceleration assumed then, of the 53 m/s^2 used
BRAKE_M = 2.0  # m, distance at which the vehicle comes to rest before it
LOST_S = 1.5  # s without a position accurate enough for a gate
BLIND_S = 30.0  # s on end without one that end the flight: longer than an attempt, or a restart of perception
FINISH_S = 5.0  # s after the last gate, beyond which no status is awaited any more


def missed_margin(gate: Gate) -> float:
    """Return the margin (m) below which a passage by the estimate has missed the gate."""
    return -(gate.outer_m - gate.opening_m) / 4 if gate.has_frame else 0.0


def room_in(gate: Gate, contact_radius_m: float) -> float:
    """Return the distance (m) from the middle of an opening to where the vehicle would touch its edge.

    It is infinite in a ball, which has no edge, and which no image makes surer, and negative in a slot, through which the body is
    tilted.
    """
    return inf if gate.is_ball else gate.half - contact_radius_m


def brakes(gate: Gate, state: State, room_m: float) -> bool:
    """Return whether a gate is more likely missed than hit, and the vehicle has to brake now, and can, to stop before it.

    Args:
        room_m: from the middle of the opening to where the vehicle would touch its edge; a slot is passed at the plan's pace.
    """
    speed = float(np.linalg.norm(state.v_w))
    rest_m = -float(gate.local(state.p_wb)[0]) - speed * BRAKE_S - speed**2 / (2 * BRAKE_M_S2)
    return 0 < rest_m < BRAKE_M and 0 < BLIND * room_m < sigma_across(gate, state.cov_to_gate)


class StatusWatch:
    """Comparison of the gates counted by the race status with those passed by the estimate.

    The status that first counts a gate bounds the delay of the count from above, the one before it from below.
    """

    def __init__(self) -> None:
        self._before: RaceStatus | None = None
        self._status: RaceStatus | None = None
        self._delays_s: list[tuple[float, float]] = []  # s, bounds of the delay, of each gate counted so far

    def receive(self, status: RaceStatus) -> None:
        """Process a status; the newest counts."""
        self._before, self._status = self._status, status

    def counted(self, go_t: float) -> int | None:
        """Return the number of gates counted by the newest status of the race that began at go_t (s); None without one."""
        status = self._status
        if status is None or status.start is None or abs(status.start - go_t) > SAME_START_S:
            return None
        return status.gate

    def confirms(self, number: int, go_t: float) -> bool:
        """Return whether gate `number` is counted or the race finished; True without a status of the race begun at go_t (s)."""
        counted = self.counted(go_t)
        return counted is None or counted > number or (self._status is not None and self._status.finish is not None)

    def missed(self, passed_s: list[float], go_t: float) -> int | None:
        """Return the first gate passed by the estimate, times in s since GO, that should be counted but is not; else None."""
        counted, status = self.counted(go_t), self._status
        if counted is None or status is None:
            return None
        for k in range(len(self._delays_s), min(counted, len(passed_s))):
            since = self._before.t if self._before is not None and self._before.gate <= k else -inf
            self._delays_s.append((since - go_t - passed_s[k], status.t - go_t - passed_s[k]))
        if counted >= len(passed_s):
            return None
        return counted if status.t > go_t + passed_s[counted] + self._patience_s else None

    @property
    def _patience_s(self) -> float:
        """Delay after a passage from which a status without it contradicts, s: as the gates counted so far were delayed."""
        if not self._delays_s:
            return STATUS_S
        lows, highs = zip(*self._delays_s, strict=True)
        if len(highs) >= COUNTS and max(lows) <= min(highs):  # one delay explains them all
            return max(min(highs), 0.0) + SLACK_S
        return max(*highs, 0.0) + self._period_s + SLACK_S

    @property
    def _period_s(self) -> float:
        """Time between the last two status, s."""
        return max(self._status.t - self._before.t, 0.0) if self._status and self._before else 0.0


class LostWatch:
    """Timer of a lost estimate."""

    def __init__(self) -> None:
        self._since = -1.0

    def seconds(self, lost: bool, t: float) -> float:
        """Return for how long the estimate has been lost on end at t (s), s."""
        if not lost:
            self._since = -1.0
        elif self._since < 0:
            self._since = t
        return t - self._since if lost else 0.0
