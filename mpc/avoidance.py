"""Avoidance of other vehicles: the reference is displaced at each stage, out of the tube around the other's predicted path."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gate_racer.mpc.terms import REFERENCE
from gate_racer.vehicle.rotation import Array

P, V, A, GATE, ACROSS, DOWN = (REFERENCE[name].at for name in ("p", "v", "a", "gate", "across", "down"))
UNBOUNDED: Array = np.array([[-np.inf] * 3, [np.inf] * 3])
SHORTEST, LONGEST = 0.6, 1.4  # bounds of the length ratio; with the bend's radius as step there is no parallel curve
SMOOTH_S = 0.15  # s, time constant of displacements: 0.8 m take about 12 m/s^2
BINDING = 30.0  # weight of a row in an opening, over that of others
OPEN = 0.01  # 1/m, scale of an opening's axes below which it is no constraint
ROUND = 4.0  # slope with which a step goes to none from the greatest, two radii


@dataclass(frozen=True, slots=True)
class AvoidanceTube:
    """Predicted path of another vehicle, kept clear by a bell of half width radius (1 - (s / length)^2)^2 at s m along the line.

    The bell has zero slope at both ends, and contains a ball of its radius if `length_m` is at least twice the radius.
    """

    times: Array  # (K,) s, rising
    p_w: Array  # (K, 3) m, centres at these times
    radius_m: float  # m, distance across the line that the own centre keeps
    length_m: float  # m, half length along the line
    side_w: Array  # (3,) unit vector, side on which to stay, given at the first reference row
    box_w: Array = field(default_factory=lambda: UNBOUNDED)  # (2, 3) m, bounds of the reference

    def at(self, times: Array) -> Array:
        """Return centres (M, 3) at times (M,), s, held constant before the first and after the last."""
        return np.stack([np.interp(times, self.times, p) for p in self.p_w.T], axis=1)


def transported(rows: Array, vector_w: Array) -> Array:
    """Transport a vector (3,) from the first reference row (M, NR) along the line, (M, 3), by `parallel_frames`."""
    frames = parallel_frames(rows)
    return np.asarray(frames @ (frames[0].T @ vector_w))


def parallel_frames(rows: Array) -> Array:
    """Return relatively parallel frames (M, 3, 3) (Bishop, 1975) along rows (M, NR): columns in NED, the first along v."""
    v = rows[:, V]
    along = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-6)
    if len(along) > 1 and not along[0].any():
        along[0] = along[1]  # at rest
    across = np.zeros_like(along)
    x, y, z = np.eye(3)[np.abs(along[0]).argmin()].tolist()
    for k, (u, v, w) in enumerate(along.tolist()):
        part = u * x + v * y + w * z
        x, y, z = x - part * u, y - part * v, z - part * w
        length = max(math.sqrt(x * x + y * y + z * z), 1e-9)
        x, y, z = x / length, y / length, z / length
        across[k] = x, y, z
    return np.stack([along, across, np.cross(along, across)], axis=2)


def aside(rows: Array, times: Array, tubes: Sequence[AvoidanceTube], frames: Array | None = None) -> Array:
    """Return displacements (M, 3) m that take reference rows (M, NR), due at times (M,) s, out of the tubes.

    They are perpendicular to the line and respect the tubes' boxes and, where one is a constraint, the opening or the floor.
    `frames` (M, 3, 3): `parallel_frames` of these rows or of nearby ones, if known.
    """
    steps = np.zeros((len(rows), 3))
    if not tubes:
        return steps
    speed = np.linalg.norm(rows[:, V], axis=1, keepdims=True)
    along = rows[:, V] / np.maximum(speed, 1.0)
    frames = parallel_frames(rows) if frames is None else frames
    for tube in tubes:
        side = frames @ (frames[0].T @ tube.side_w)
        side -= along * np.einsum("ij,ij->i", along, side)[:, None]
        side /= np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-6)
        off = rows[:, P] + steps - tube.at(times)
        before = np.einsum("ij,ij->i", off, along) / tube.length_m
        wide = tube.radius_m * np.maximum(1 - before**2, 0.0) ** 2
        clear = np.einsum("ij,ij->i", off, side)
        step = np.minimum(wide - clear, ROUND * (clear + 1.5 * wide))  # who is far out on that side is not gone round
        steps += np.maximum(step, 0.0)[:, None] * side
        low, high = np.minimum(tube.box_w[0], rows[:, P]), np.maximum(tube.box_w[1], rows[:, P])
        steps = np.clip(rows[:, P] + steps, low, high) - rows[:, P]
    for axis in (rows[:, ACROSS], rows[:, DOWN]):
        line = np.einsum("ij,ij->i", rows[:, P] - rows[:, GATE], axis)
        most = np.maximum(np.abs(line), 1.0)
        beyond = line + np.einsum("ij,ij->i", steps, axis)
        beyond -= np.clip(beyond, -most, most)
        steps -= beyond[:, None] * axis / np.einsum("ij,ij->i", axis, axis)[:, None]
    return steps


def smoothed(steps: Array, weights: Array, step_s: float) -> Array:
    """Smooth displacements (M, 3) m, step_s (s) apart, with weights (M,): the minimum y (M, 3) of

        sum w |y - steps|^2 + SMOOTH_S^4 |y''|^2

    (Whittaker, 1923), which bounds the lateral acceleration.
    """
    bending = (SMOOTH_S / step_s) ** 4 * _bending(len(steps))
    return np.asarray(np.linalg.solve(np.diag(weights) + bending, weights[:, None] * steps))


@functools.cache
def _bending(n: int) -> Array:
    """Return the sum of squared second differences of n numbers as a quadratic form (n, n)."""
    second = np.diff(np.eye(n), 2, axis=0)
    return np.asarray(second.T @ second)


def binding(rows: Array) -> Array:
    """Return the weights (M,) of reference rows (M, NR) in `smoothed`: large where an opening is a constraint."""
    return np.where(np.abs(rows[:, ACROSS]).max(axis=1) > OPEN, BINDING, 1.0)


def length_ratios(rows: Array, steps: Array) -> Array:
    """Return the length (M,) of the line displaced by steps (M, 3) m over that of the line of reference rows (M, NR).

    The curve parallel to a bend of curvature vector k has the ratio 1 - k . step: shorter inside, longer outside. At the plan's
    pace its velocities and accelerations have the same ratio to the plan's; the derivatives of the steps are neglected.
    """
    v, a = rows[:, V], rows[:, A]
    square = np.maximum(np.einsum("ij,ij->i", v, v), 1.0)
    bent = np.einsum("ij,ij->i", a, steps) - np.einsum("ij,ij->i", a, v) * np.einsum("ij,ij->i", v, steps) / square
    return np.minimum(np.maximum(1 - bent / square, SHORTEST), LONGEST)


def displace(rows: Array, times: Array, tubes: Sequence[AvoidanceTube]) -> Array:
    """Displace reference rows (M, NR), due at times (M,) s, out of the tubes in place, with the speeds of a parallel curve.

    Returns the ratio (M,) of `length_ratios`.
    """
    steps = smoothed(aside(rows, times, tubes), binding(rows), times[1] - times[0])
    ratios = length_ratios(rows, steps)
    rows[:, P] += steps
    rows[:, V] *= ratios[:, None]
    rows[:, A] *= ratios[:, None]
    return ratios
