"""Swift's reward (Kaufmann et al. 2023, Methods, eq. 7 to 9).

The weights are those that secondary sources give of Extended Data Table 1a. Not published, and chosen here: body rates count in
rad/s, while the change of an action is that of the network's own outputs, each in -1..1.
"""

import math
from typing import NamedTuple

from sim.physics.jit import inlined


class Reward(NamedTuple):
    """Weights; lambda_1 to lambda_5 and the penalty of a crash."""

    progress: float = 1.0  # per m towards the next gate
    perception: float = 0.02  # at most, each step, for a camera that looks at the next gate's centre
    sharpness_rad4: float = -10.0  # of that: exp(sharpness delta^4)
    rates: float = -2e-4  # per rad/s of commanded body rates
    change: float = -1e-4  # per squared change of the action
    crash: float = -5.0


@inlined
def rewarded(by, nearer_m, delta_rad, rates_rad_s, change, crashed):
    """Of a step by `Reward`: way towards the gate, angle between camera and gate, |body rates|, |change of the action|^2."""
    seen = by.perception * math.exp(by.sharpness_rad4 * delta_rad**4)
    return by.progress * nearer_m + seen + by.rates * rates_rad_s + by.change * change + by.crash * crashed
