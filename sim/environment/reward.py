"""Swift's reward (Kaufmann et al. 2023, Methods, eq. 7 to 9), for many vehicles at once.

The weights are those that secondary sources give of Extended Data Table 1a. Not published, and chosen here: body rates count in
rad/s, while the change of an action is that of the network's own outputs, each in -1..1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vehicle.rotation import Array


@dataclass(frozen=True)
class Reward:
    """Weights; lambda_1 to lambda_5 and the penalty of a crash."""

    progress: float = 1.0  # per m towards the next gate
    perception: float = 0.02  # at most, each step, for a camera that looks at the next gate's centre
    sharpness_rad4: float = -10.0  # of that: exp(sharpness delta^4)
    rates: float = -2e-4  # per rad/s of commanded body rates
    change: float = -1e-4  # per squared change of the action
    crash: float = -5.0

    def __call__(
        self, nearer_m: Array, delta_rad: Array, omega: Array, change: Array, crashed: NDArray[np.bool_]
    ) -> Array:
        """(N,) of progress (N,), camera angle (N,), commanded rates (N, 3), change of the action (N, 4) and crashes (N,)."""
        seen = self.perception * np.exp(self.sharpness_rad4 * delta_rad**4)
        smooth = self.rates * np.sqrt((omega**2).sum(1)) + self.change * (change**2).sum(1)
        return np.asarray(self.progress * nearer_m + seen + smooth + self.crash * crashed)
