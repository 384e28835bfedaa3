"""One gate: a square opening in a frame, a convex polygon (a prism, when it is a tunnel), or a ball that has to be touched.

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
SAME_PLACE_M = 0.05  # gates nearer than that are one gate that the course uses again
SAME_AXIS = 0.996  # cosine of 5 deg, within which their axes agree


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
    polygon_m: tuple[tuple[float, float], ...] | None = None  # corners (y, z) of a convex opening around the origin
    tunnel_m: float = 0.0  # length of the opening along x: with it the opening is a prism
    stand_m: float = 0.0  # width of the post that carries the frame; 0: none

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
    def has_frame(self) -> bool:
        """Whether a solid surrounds the opening."""
        return not self.is_ball and self.polygon_m is None and self.outer_m > self.opening_m

    def same_frame(self, other: "Gate") -> bool:
        """Whether both are one thing in the world, passed in the same direction or in the opposite one."""
        near = bool(np.linalg.norm(self.p_wg - other.p_wg) <= SAME_PLACE_M)
        if self.is_ball or other.is_ball:
            return near and self.is_ball and other.is_ball
        return near and abs(float(self.R_wg[:, 0] @ other.R_wg[:, 0])) > SAME_AXIS

    @cached_property
    def half(self) -> float:
        """m, from the centre to the nearest edge of the opening, or the radius of the ball."""
        return float(self.edges[:, 2].min()) if self.radius_m is None else self.radius_m

    @cached_property
    def outline_m(self) -> Array:
        """(E, 2) corners of the opening, right and down of its centre; of a square from top-left on, as the pilot sees it."""
        h = self.opening_m / 2
        return np.array(self.polygon_m or ((-h, -h), (h, -h), (h, h), (-h, h)))

    @cached_property
    def edges(self) -> Array:
        """(E, 3) edges of the opening, n_y, n_z, h: a point (y, z) lies h - n_y y - n_z z inside an edge, m."""
        corners = self.outline_m
        along = np.roll(corners, -1, axis=0) - corners
        turn = np.sign(along[0, 0] * along[1, 1] - along[0, 1] * along[1, 0])  # either sense of rotation will do
        outward = turn * np.column_stack([along[:, 1], -along[:, 0]]) / np.linalg.norm(along, axis=1)[:, None]
        return np.column_stack([outward, (outward * corners).sum(axis=1)])

    def local(self, p_w: ArrayLike) -> Array:
        """World points (..., 3) in gate axes."""
        return (np.asarray(p_w, float) - self.p_wg) @ self.R_wg

    def margin(self, p_w: ArrayLike) -> float:
        """m, from a point at the gate to the nearest edge of the opening; negative outside."""
        p_g = self.local(p_w)
        if self.is_ball:
            return float(self.half - np.linalg.norm(p_g))
        return float((self.edges[:, 2] - self.edges[:, :2] @ p_g[1:]).min())

    def crossing(self, a_w: ArrayLike, b_w: ArrayLike) -> Crossing | None:
        """How the step from a to b (world, m) crosses the gate's plane in the direction of flight, or None.

        The plane is half-open, so that a point on it belongs to exactly one of two successive steps. For a ball the
        plane is the one through its centre across the step. In a tunnel the step's line counts from end to end.
        """
        a, b = self.local(a_w), self.local(b_w)
        n = b - a if self.is_ball else np.array([1.0, 0.0, 0.0])
        before, after = float(a @ n), float(b @ n)
        if not before < 0 <= after:
            return None
        s = before / (before - after)
        p = a + s * (b - a)
        if self.is_ball:
            return Crossing(s, float(self.half - np.linalg.norm(p)))
        drift = np.abs(self.edges[:, :2] @ (b - a)[1:]) / (b - a)[0]  # towards each edge, per length of the tunnel
        inside = self.edges[:, 2] - self.edges[:, :2] @ p[1:] - self.tunnel_m / 2 * drift
        return Crossing(s, float(inside.min()))

    def corners(self, side_m: float | None = None) -> Array:
        """World corners (4, 3) of the opening, or of a concentric square of that side.

        Top-left, top-right, bottom-right, bottom-left as the arriving camera sees them.
        """
        h = (self.opening_m if side_m is None else side_m) / 2
        return self.p_wg + np.array([[0, -h, -h], [0, h, -h], [0, h, h], [0, -h, h]]) @ self.R_wg.T
