"""Swift's reward (Kaufmann et al. 2023, Methods, eq. 7 to 9).

The weights are those of Extended Data Table 1a as quoted by secondary sources. Units are not published; chosen here: rad/s for
body rates, and the network's outputs, each in -1..1, for the change of the action.
"""

import math
from typing import NamedTuple

from gate_racer.sim.physics.jit import inlined


class Reward(NamedTuple):
    """Weights lambda_1 to lambda_5 and the crash penalty."""

    progress: float = 1.0  # per m towards the next gate
    perception: float = 0.02  # per step with the optical axis on the next gate's centre, its maximum
    sharpness_rad4: float = -10.0  # 1/rad^4, perception term exp(sharpness delta^4)
    rates: float = -2e-4  # per rad/s of the norm of the commanded body rates
    change: float = -1e-4  # per squared norm of the action's change
    crash: float = -5.0


@inlined
def rewarded(by, nearer_m, delta_rad, rates_rad_s, change, crashed):
    """Return the reward of a step from progress, angle of gate off the optical axis, |body rates| and |action change|^2."""
    seen = by.perception * math.exp(by.sharpness_rad4 * delta_rad**4)
    return by.progress * nearer_m + seen + by.rates * rates_rad_s + by.change * change + by.crash * crashed
