"""When a new plan is worth asking for: the vehicle flies better than its plan believed, by more than the controller makes of it.

Where thrust carries a vehicle against its drag, v^2 = thrust / drag: the square of its speed grows with

    r = (thrust now / thrust planned with) / (drag now / drag planned with)

A controller flies a plan faster by its own greatest pace; where r is more than the square of that, a plan gains the rest.
A weaker vehicle needs none: it flies the same line slower, as its thrust allows, and loses 0.2 % of time by it at 15 % less
thrust. With more drag a new plan is even slower, as it keeps on looking at gates from a body that leans further.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

BETTER = 1.1  # r, from which on a plan is asked for: `mpcc` flies a plan by up to 1.05 of its pace, the square root
DRAG_LEAST = 0.2  # of the file's: less is no vehicle, but an estimate gone astray


@dataclass(frozen=True, slots=True)
class Shown:
    """Thrust and drag against the vehicle's file, as a flight has shown them."""

    thrust: float = 1.0
    drag: float = 1.0
    sigma: float = 0.0  # standard deviation of the logarithm of thrust over drag

    @staticmethod
    def of(scales: Array, cov: Array) -> "Shown":
        """By the scales (2,) of thrust and drag and their covariance (2, 2): what both have in common moves no vehicle."""
        thrust, drag = float(scales[0]), max(float(scales[1]), DRAG_LEAST)
        slope = np.array([1 / thrust, -1 / drag])
        return Shown(thrust, drag, math.sqrt(max(float(slope @ cov @ slope), 0.0)))

    def over(self, planned: "Shown") -> float:
        """r, less one standard deviation; 1 as planned."""
        return (self.thrust / planned.thrust) / (self.drag / planned.drag) * math.exp(-self.sigma)

    def worth_a_plan(self, planned: "Shown") -> bool:
        """Whether it surely flies better than planned with, by more than a controller makes of it."""
        return self.over(planned) > BETTER

    def vehicle(self, of: Vehicle) -> Vehicle:
        """The vehicle of a file as it was shown to be, as far as the `rates` model knows it."""
        x, y, z = of.drag_linear_1_s
        return replace(
            of,
            throttle=replace(of.throttle, thrust_m_s2=tuple(c * self.thrust for c in of.throttle.thrust_m_s2)),
            drag_linear_1_s=(x * self.drag, y * self.drag, z * self.drag),
            drag_quadratic_1_m=of.drag_quadratic_1_m * self.drag,
        )
