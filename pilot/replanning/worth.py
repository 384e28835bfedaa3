"""Criterion for replanning: the vehicle performs better than its plan assumed, by more than the controller can exploit.

For thrust against drag, v^2 = thrust / drag: the square of the speed is proportional to

    r = (thrust now / thrust planned with) / (drag now / drag planned with)

A controller flies a plan faster by up to its greatest pace; where r exceeds the square of that, a new plan gains the
difference. A weaker vehicle needs none: it flies the same line slower, as its thrust allows, and loses 0.2 % of time by it at
15 % less thrust. With more drag a new plan is even slower, since it keeps the gates in view from a body that tilts further.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

BETTER = 1.1  # r above which a plan is requested: `mpcc` flies a plan at up to 1.05 of its pace, the square root
DRAG_LEAST = 0.2  # least drag relative to the file's: smaller values are an estimation error


@dataclass(frozen=True, slots=True)
class VehicleEstimate:
    """Thrust and drag estimated in flight, relative to the vehicle's file."""

    thrust: float = 1.0
    drag: float = 1.0
    sigma: float = 0.0  # standard deviation of the logarithm of thrust over drag

    @staticmethod
    def of(scales: Array, cov: Array) -> "VehicleEstimate":
        """Create from the scales (2,) of thrust and drag and their covariance (2, 2); only their ratio affects the speed."""
        thrust, drag = float(scales[0]), max(float(scales[1]), DRAG_LEAST)
        slope = np.array([1 / thrust, -1 / drag])
        return VehicleEstimate(thrust, drag, math.sqrt(max(float(slope @ cov @ slope), 0.0)))

    def over(self, planned: "VehicleEstimate") -> float:
        """Return r relative to the planned values, less one standard deviation; 1 as planned."""
        return (self.thrust / planned.thrust) / (self.drag / planned.drag) * math.exp(-self.sigma)

    def worth_a_plan(self, planned: "VehicleEstimate") -> bool:
        """Return whether the vehicle surely outperforms the planned one, by more than a controller can exploit."""
        return self.over(planned) > BETTER

    def vehicle(self, of: Vehicle) -> Vehicle:
        """Return the vehicle of a file with the estimated thrust and drag, as far as the `rates` model has them."""
        x, y, z = of.drag_linear_1_s
        return replace(
            of,
            throttle=replace(of.throttle, thrust_m_s2=tuple(c * self.thrust for c in of.throttle.thrust_m_s2)),
            drag_linear_1_s=(x * self.drag, y * self.drag, z * self.drag),
            drag_quadratic_1_m=of.drag_quadratic_1_m * self.drag,
        )
