"""One gate: a square opening in a frame, or a ball that has to be touched.

Gate axes: origin at the centre of the opening, x through the gate in the direction of flight, y right, z down.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vehicle.rotation import Array, from_euler, matrix

Vector = tuple[float, float, float]


class Crossing(NamedTuple):
    """Where a straight step passes a gate."""

    s: float  # fraction of the step, in (0, 1]
    margin: float  # m, from the vehicle's centre to the nearest edge of the opening; negative outside


@dataclass(frozen=True)
class Gate:
    """A gate in world NED. With `radius_m` it is a ball, whose crossing is the point of closest approach."""

    centre_m: Vector
    yaw_deg: float = 0.0  # direction of flight, positive to the right
    pitch_deg: float = 0.0  # of the direction of flight, positive up
    opening_m: float = 0.0  # side of the square opening
    outer_m: float = 0.0  # side of the frame
    depth_m: float = 0.0
    radius_m: float | None = None
    visible: bool = True

    @cached_property
    def p_wg(self) -> Array:
        return np.array(self.centre_m)

    @cached_property
    def q_wg(self) -> Array:
        return from_euler(0.0, math.radians(self.pitch_deg), math.radians(self.yaw_deg))

    @cached_property
    def R_wg(self) -> Array:
        return matrix(self.q_wg)

    @property
    def is_ball(self) -> bool:
        return self.radius_m is not None

    @property
    def half(self) -> float:
        """m: half the opening, or the radius of the ball."""
        return self.opening_m / 2 if self.radius_m is None else self.radius_m

    def local(self, p_w: ArrayLike) -> Array:
        """World points (..., 3) in gate axes."""
        return (np.asarray(p_w, float) - self.p_wg) @ self.R_wg

    def margin(self, p_w: ArrayLike) -> float:
        """m, from a point at the gate to the nearest edge of the opening; negative outside."""
        p_g = self.local(p_w)
        if self.is_ball:
            return float(self.half - np.linalg.norm(p_g))
        return float(self.half - np.abs(p_g[1:]).max())

    def crossing(self, a_w: ArrayLike, b_w: ArrayLike) -> Crossing | None:
        """How the step from a to b (world, m) crosses the gate's plane in the direction of flight, or None.

        The plane is half-open, so that a point on it belongs to exactly one of two successive steps. For a ball the
        plane is the one through its centre across the step.
        """
        a, b = self.local(a_w), self.local(b_w)
        n = b - a if self.is_ball else np.array([1.0, 0.0, 0.0])
        before, after = float(a @ n), float(b @ n)
        if not before < 0 <= after:
            return None
        s = before / (before - after)
        p = a + s * (b - a)
        reach = np.linalg.norm(p) if self.is_ball else np.abs(p[1:]).max()
        return Crossing(s, float(self.half - reach))

    def corners(self, side_m: float | None = None) -> Array:
        """World corners (4, 3) of the opening, or of a concentric square of that side.

        Top-left, top-right, bottom-right, bottom-left as the arriving camera sees them.
        """
        h = (self.opening_m if side_m is None else side_m) / 2
        return self.p_wg + np.array([[0, -h, -h], [0, h, -h], [0, h, h], [0, -h, h]]) @ self.R_wg.T
