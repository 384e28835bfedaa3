"""Limits on the pace of a plan: slower while the next gate may be missed, and while commands are too infrequent.

A vehicle that flies slower needs less thrust against drag, so it pitches less and its camera sees more of the gates:
uncertainty caused by speed is reduced by flying slowly (measured in worlds with 1.5 to 1.7 times the drag, see
docs/worlds.md).
"""

import math

from gate_racer.tracks.corridor import sigma_across
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import greatest_sigma

BEGIN, FULL = 0.5, 1.0  # standard deviation over the room in a gate, where slowing begins and is full: two and one fit
UNSEEN = 0.2  # standard deviation across the opening over the free room, above which the controller looks at the gate
SLOWEST = 0.4  # fraction of the plan's pace at full uncertainty: 0.35 to 0.5 finished equally often
LATE = 1.3  # ratio to the requested command period: less is jitter, or telemetry at no multiple of it
LATE_S = 0.5  # s, time constant of the mean period


class Caution:
    """Pace limiter; call `pace` once per command."""

    def __init__(self, contact_radius_m: float, period_s: float):
        """Create it; `period_s`: requested command period."""
        self._radius_m, self._wanted_s = contact_radius_m, period_s
        self._mean_s, self._last = period_s, math.nan

    def pace(self, t: float, gate: Gate, cov_to_gate: Array | None) -> float:
        """Return the greatest pace at time t (s), 1.0 as planned, for a covariance (3, 3) m^2 of the position to the gate;
        inf: no limit.
        """
        return min(self._in_doubt(gate, cov_to_gate), self._in_haste(t))

    def looks(self, gate: Gate, cov: Array | None) -> bool:
        """Return whether the next gate, with covariance (3, 3) m^2, must be seen better before it is passed."""
        room = self._room(gate)
        if cov is None or room <= 0:
            return False
        return sigma_across(gate, cov) > UNSEEN * room

    def _room(self, gate: Gate) -> float:
        """Return the distance (m) from the centre of the opening to where the vehicle would touch its edge."""
        return gate.half - self._radius_m

    def _in_doubt(self, gate: Gate, cov: Array | None) -> float:
        room = self._room(gate)
        if cov is None or room <= 0:
            return math.inf
        share = (greatest_sigma(cov) / room - BEGIN) / (FULL - BEGIN)
        return math.inf if share <= 0 else max(1 - (1 - SLOWEST) * share, SLOWEST)

    def _in_haste(self, t: float) -> float:
        """Reduce the pace in proportion to the command rate."""
        passed = t - self._last if t > self._last else self._wanted_s
        self._last = t
        self._mean_s += min(passed / LATE_S, 1.0) * (passed - self._mean_s)
        late = self._mean_s / (LATE * self._wanted_s)
        return math.inf if late <= 1 else max(1 / late, SLOWEST)
