"""How fast a plan may be flown: slower while the next gate may be missed, and while commands go out too seldom.

A vehicle that flies slower needs less thrust against drag, so it pitches less and its camera sees more of the gates: doubt that
was earned by speed is lost by flying slowly (measured in worlds with 1.5 to 1.7 times the drag, see docs/worlds.md).
"""

import math

from tracks.gate import Gate
from vehicle.rotation import Array
from vehicle.statistics import greatest_sigma

BEGIN, FULL = 0.5, 1.0  # standard deviations over the room in a gate: two no longer fit, and one
UNSEEN = 0.2  # standard deviation across the opening over the room in it, from which a gate is looked for
SLOWEST = 0.4  # of the plan's pace, in full doubt: 0.35 to 0.5 finished alike
LATE = 1.3  # of the wanted period between commands: less is jitter, and telemetry that is no multiple of it
LATE_S = 0.5  # s, time constant of the mean period


def sigma_across(gate: Gate, cov: Array | None) -> float:
    """m, greatest across a gate's opening, of a place in doubt by (3, 3) m^2; 0 where the doubt is not known."""
    across = gate.R_wg[:, 1:]
    return 0.0 if cov is None else greatest_sigma(across.T @ cov @ across)


class Caution:
    """Asked for the most pace once per command."""

    def __init__(self, contact_radius_m: float, period_s: float):
        """`period_s`: wanted between two commands."""
        self._radius_m, self._wanted_s = contact_radius_m, period_s
        self._mean_s, self._last = period_s, math.nan

    def pace(self, t: float, gate: Gate, cov_to_gate: Array | None) -> float:
        """The most pace at time t (s), 1.0 as planned, towards a gate whose place is in doubt by (3, 3) m^2; inf: any."""
        return min(self._in_doubt(gate, cov_to_gate), self._in_haste(t))

    def looks(self, gate: Gate, cov: Array | None) -> bool:
        """Whether the next gate, whose place is in doubt by (3, 3) m^2, must be seen better before it is passed."""
        room = self._room(gate)
        if cov is None or room <= 0:
            return False
        return sigma_across(gate, cov) > UNSEEN * room

    def _room(self, gate: Gate) -> float:
        """m, from the middle of the opening to where the vehicle would touch its edge."""
        return gate.half - self._radius_m

    def _in_doubt(self, gate: Gate, cov: Array | None) -> float:
        room = self._room(gate)
        if cov is None or room <= 0:
            return math.inf
        share = (greatest_sigma(cov) / room - BEGIN) / (FULL - BEGIN)
        return math.inf if share <= 0 else max(1 - (1 - SLOWEST) * share, SLOWEST)

    def _in_haste(self, t: float) -> float:
        """A vehicle that is steered half as often flies half as fast."""
        passed = t - self._last if t > self._last else self._wanted_s
        self._last = t
        self._mean_s += min(passed / LATE_S, 1.0) * (passed - self._mean_s)
        late = self._mean_s / (LATE * self._wanted_s)
        return math.inf if late <= 1 else max(1 / late, SLOWEST)
