"""Gates: a square opening in a frame, a convex polygon (a prism, for a tunnel), or a ball that has to be touched.

Gate axes: origin at the centre of the opening, x through the gate in the direction of flight, y right, z down.

The corridor is the middle of an opening, in which the controller keeps the vehicle's centre, less two standard deviations of
the gate's position. The prediction of crossings (`planner.uncertainty`) follows the same rule.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.vehicle.rotation import Array, Vector, from_euler, matrix
from gate_racer.vehicle.statistics import greatest_sigma

SAME_PLACE_M = 0.05  # m, distance up to which two gates of a course are the same physical gate (chosen)
SAME_AXIS = 0.996  # -, least |cosine| between their axes, of 5 deg (chosen)


class Crossing(NamedTuple):
    """Crossing of a gate by a straight step."""

    s: float  # fraction of the step, in (0, 1]
    margin: float  # m, from the vehicle's centre to the nearest edge of the opening; negative outside


@dataclass(frozen=True)
class Gate:
    """Gate in world NED. With `radius_m` it is a ball, whose crossing is the point of closest approach."""

    centre_m: Vector  # m
    yaw_deg: float = 0.0  # deg, direction of flight, positive to the right
    pitch_deg: float = 0.0  # deg, direction of flight, positive up
    opening_m: float = 0.0  # m, side of the square opening
    outer_m: float = 0.0  # m, outer side of the frame
    depth_m: float = 0.0  # m, depth of the frame
    radius_m: float | None = None  # m, of a ball
    visible: bool = True  # whether the camera can see it
    polygon_m: tuple[tuple[float, float], ...] | None = None  # m, corners (y, z) of a convex opening around the origin
    tunnel_m: float = 0.0  # m, length of a prism-shaped opening along x
    stand_m: float = 0.0  # m, width of the post that carries the frame; 0 without one

    @cached_property
    def p_wg(self) -> Array:
        """Centre of the opening (3,) m, world."""
        return np.array(self.centre_m)

    @cached_property
    def q_wg(self) -> Array:
        """Rotation (4,), gate to world, wxyz."""
        return from_euler(0.0, math.radians(self.pitch_deg), math.radians(self.yaw_deg))

    @cached_property
    def R_wg(self) -> Array:
        """Rotation (3, 3), gate to world."""
        return matrix(self.q_wg)

    @property
    def is_ball(self) -> bool:
        return self.radius_m is not None

    @property
    def has_frame(self) -> bool:
        """Whether a solid surrounds the opening."""
        return not self.is_ball and self.polygon_m is None and self.outer_m > self.opening_m

    def same_frame(self, other: "Gate") -> bool:
        """Check whether both are the same physical gate, passed in the same or the opposite direction."""
        near = bool(np.linalg.norm(self.p_wg - other.p_wg) <= SAME_PLACE_M)
        if self.is_ball or other.is_ball:
            return near and self.is_ball and other.is_ball
        return near and abs(float(self.R_wg[:, 0] @ other.R_wg[:, 0])) > SAME_AXIS

    @cached_property
    def half(self) -> float:
        """Distance from the centre to the nearest edge of the opening, or the radius of the ball, m."""
        return float(self.edges[:, 2].min()) if self.radius_m is None else self.radius_m

    @cached_property
    def reach_m(self) -> float:
        """Distance from the centre to the farthest point of the opening, or the radius of the ball, m."""
        return float(np.linalg.norm(self.outline_m, axis=1).max()) if self.radius_m is None else self.radius_m

    @cached_property
    def outline_m(self) -> Array:
        """Corners (E, 2), m, of the opening, right and down of its centre; for a square clockwise from the top left."""
        h = self.opening_m / 2
        return np.array(self.polygon_m or ((-h, -h), (h, -h), (h, h), (-h, h)))

    @cached_property
    def edges(self) -> Array:
        """Edges (E, 3) of the opening, n_y, n_z, h: a point (y, z) lies h - n_y y - n_z z inside an edge, m; a ball has none."""
        if self.is_ball:
            return np.zeros((0, 3))
        corners = self.outline_m
        along = np.roll(corners, -1, axis=0) - corners
        turn = np.sign(along[0, 0] * along[1, 1] - along[0, 1] * along[1, 0])  # either orientation is accepted
        outward = turn * np.column_stack([along[:, 1], -along[:, 0]]) / np.linalg.norm(along, axis=1)[:, None]
        return np.column_stack([outward, (outward * corners).sum(axis=1)])

    def local(self, p_w: ArrayLike) -> Array:
        """Transform world points (..., 3), m, into gate axes."""
        return (np.asarray(p_w, float) - self.p_wg) @ self.R_wg

    def margin(self, p_w: ArrayLike) -> float:
        """Return the distance, m, from a world point (3,) at the gate to the nearest edge of the opening; negative outside."""
        p_g = self.local(p_w)
        if self.is_ball:
            return float(self.half - np.linalg.norm(p_g))
        return float((self.edges[:, 2] - self.edges[:, :2] @ p_g[1:]).min())

    def crossing(
        self, a_w: ArrayLike, b_w: ArrayLike, v_a: ArrayLike | None = None, v_b: ArrayLike | None = None
    ) -> Crossing | None:
        """Return the crossing of the gate's plane by the step from a to b (world, m) in the direction of flight, or None.

        The plane is half-open, so that a point on it belongs to exactly one of two successive steps. A ball is crossed where the
        distance to its centre ceases to fall, by the velocities v_a and v_b (world, m/s), else by the step. In a tunnel the
        margin is the least over its length.
        """
        a, b = self.local(a_w), self.local(b_w)
        if self.is_ball:
            along = [b - a if v is None else np.asarray(v, float) @ self.R_wg for v in (v_a, v_b)]
            before, after = float(a @ along[0]), float(b @ along[1])
        else:
            before, after = float(a[0]), float(b[0])
        if not before < 0 <= after:
            return None
        s = before / (before - after)
        p = a + s * (b - a)
        if self.is_ball:
            return Crossing(s, float(self.half - np.linalg.norm(p)))
        drift = np.abs(self.edges[:, :2] @ (b - a)[1:]) / (b - a)[0]  # towards each edge, per unit length along x
        inside = self.edges[:, 2] - self.edges[:, :2] @ p[1:] - self.tunnel_m / 2 * drift
        return Crossing(s, float(inside.min()))

    def corners(self, side_m: float | None = None) -> Array:
        """Return the world corners (4, 3), m, of the opening, or of a concentric square of side side_m.

        Top-left, top-right, bottom-right, bottom-left as seen in flight direction.
        """
        h = (self.opening_m if side_m is None else side_m) / 2
        return self.p_wg + np.array([[0, -h, -h], [0, h, -h], [0, h, h], [0, -h, h]]) @ self.R_wg.T


TIGHT_M = 0.15  # m, margin of courses that leave no more; a frameless opening with less room is passed tilted (chosen)
CLEAR_M = 0.1  # m, clearance of the vehicle's body from the edge of an opening, in addition to
SURE = 2.0  # standard deviations of the gate's position
ROOM_M = 0.1  # m, least half width left to the vehicle's centre, for openings hardly wider than the vehicle, and
NARROW_SHARE = 0.25  # ... largest share of it in half of the opening's width


def is_tight(gate: Gate, radius_m: float, margin_m: float = TIGHT_M) -> bool:
    """Whether a frameless opening is too narrow for the sphere around a body with a margin, so that only tilt lets it pass."""
    return gate.polygon_m is not None and gate.half <= radius_m + margin_m


def has_slot(gates: Iterable[Gate], radius_m: float) -> bool:
    """Whether an opening is passed tilted by a vehicle within a sphere."""
    return any(is_tight(gate, radius_m) for gate in gates)


def room(gate: Gate, contact_radius_m: float) -> float:
    """Return the half width, m, of the corridor of a gate whose position is known."""
    return max(gate.half - contact_radius_m - CLEAR_M, min(ROOM_M, NARROW_SHARE * gate.half))


def narrowed(room_m: Array, sigma_m: Array) -> Array:
    """Return half widths (...), m, for standard deviations of the gates' positions across their openings, (...) m."""
    return np.maximum(room_m - SURE * sigma_m, np.minimum(room_m, ROOM_M))


def sigma_across(gate: Gate, cov: Array | None) -> float:
    """Return the greatest standard deviation (m) across a gate's opening for a covariance (3, 3) m^2; 0 if unknown."""
    across = gate.R_wg[:, 1:]
    return 0.0 if cov is None else greatest_sigma(across.T @ cov @ across)
