"""Room for others on the line: the reference is led aside, at each stage by as much as where the other will be asks for."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpc.problem.stage import REFERENCE
from vehicle.rotation import Array

P, V, A, GATE, ACROSS, DOWN = (REFERENCE[name].at for name in ("p", "v", "a", "gate", "across", "down"))
UNBOUNDED: Array = np.array([[-np.inf] * 3, [np.inf] * 3])
SHORTEST, LONGEST = (
    0.6,
    1.4,
)  # of a parallel line beside the line: where its bend is as narrow as the step, there is none
SMOOTH_S = 0.15  # time constant of steps: 0.8 m aside by about 12 m/s^2
BINDING = 30.0  # weight of a row in an opening, beside one out of it
OPEN = 0.01  # 1/m, of the axes of an opening, below which none binds
ROUND = 4.0  # slope with which a step goes to none from the greatest, two radii


@dataclass(frozen=True, slots=True)
class Tube:
    """Where somebody else will be: a moving bell, radius (1 - (s / length)^2)^2 wide at s m along one's own line.

    It is left and come back to without a bend, and holds a ball of its radius where it is twice as long.
    """

    times: Array  # (K,) s, rising
    p_w: Array  # (K, 3) m, centres then
    radius_m: float  # across the line, to keep one's centre out of
    length_m: float  # half of it, along the line
    side_w: Array  # (3,) unit vector: the side on which to stay, at the first of the rows that are led
    box_w: Array = field(default_factory=lambda: UNBOUNDED)  # (2, 3) m, least and greatest: out of which nothing is led

    def at(self, times: Array) -> Array:
        """Centres (M, 3) at times (M,) s; before the first and after the last it stands."""
        return np.stack([np.interp(times, self.times, p) for p in self.p_w.T], axis=1)


def carried(rows: Array, vector_w: Array) -> Array:
    """A vector (3,) at the first of reference rows (M, NR), as it goes along with them (M, 3): see `parallel_frames`."""
    frames = parallel_frames(rows)
    return np.asarray(frames @ (frames[0].T @ vector_w))


def parallel_frames(rows: Array) -> Array:
    """Axes (M, 3, 3), in columns, that go along with reference rows (M, NR), the first of them ahead.

    They turn with the line, and never about it (the relatively parallel frame of Bishop, 1975): a side of the line stays the same
    one through bends, and upside down.
    """
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


def aside(rows: Array, times: Array, tubes: Sequence[Tube], frames: Array | None = None) -> Array:
    """Steps (M, 3) m that lead reference rows (M, NR), due at times (M,) s, out of the tubes.

    They run across the line, and never out of the tubes' boxes, nor out of an opening or into the floor, where one binds.
    `frames` (M, 3, 3): `parallel_frames` of these rows or of ones near them, where they are known.
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
    """Steps (M, 3) m, step_s apart in time, that can be flown: near to `steps` (M, 3), by weights (M,), with little acceleration.

    Minimises sum w |y - steps|^2 + SMOOTH_S^4 |y''|^2 (Whittaker, 1923).
    """
    bending = (SMOOTH_S / step_s) ** 4 * _bending(len(steps))
    return np.asarray(np.linalg.solve(np.diag(weights) + bending, weights[:, None] * steps))


@functools.cache
def _bending(n: int) -> Array:
    """Sum of squared second differences of n numbers, as a quadratic form (n, n)."""
    second = np.diff(np.eye(n), 2, axis=0)
    return np.asarray(second.T @ second)


def binding(rows: Array) -> Array:
    """Weights (M,) of reference rows (M, NR) in `smoothed`."""
    return np.where(np.abs(rows[:, ACROSS]).max(axis=1) > OPEN, BINDING, 1.0)


def stretch(rows: Array, steps: Array) -> Array:
    """How long the line through reference rows (M, NR), led aside by steps (M, 3) m, is beside the line itself, (M,).

    The parallel line of a bend of curvature k is by 1 - k . step as long: shorter inside, longer outside. So much of the plan's
    velocities and accelerations does it ask for, at the plan's pace; that steps grow and shrink is left out.
    """
    v, a = rows[:, V], rows[:, A]
    square = np.maximum(np.einsum("ij,ij->i", v, v), 1.0)
    bent = np.einsum("ij,ij->i", a, steps) - np.einsum("ij,ij->i", a, v) * np.einsum("ij,ij->i", v, steps) / square
    return np.minimum(np.maximum(1 - bent / square, SHORTEST), LONGEST)


def lead(rows: Array, times: Array, tubes: Sequence[Tube]) -> Array:
    """Lead reference rows (M, NR), due at times (M,) s, out of the tubes, at the speeds of the line that this makes.

    Returns how long that is beside the line itself (M,).
    """
    steps = smoothed(aside(rows, times, tubes), binding(rows), times[1] - times[0])
    long = stretch(rows, steps)
    rows[:, P] += steps
    rows[:, V] *= long[:, None]
    rows[:, A] *= long[:, None]
    return long
