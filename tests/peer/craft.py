"""The vehicle: a rigid body with delayed and lagged thrust and rates and quadratic drag; RK4 on x = (p, v, q, w, c).

World NED, body FRD, q wxyz body to world, c the thrust in m/s^2. Figures: fits of the real builds, from public flight logs.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
G = np.array([0.0, 0.0, 9.81])
# Thrust in m/s^2 over throttle, with the drag in 1/m that was fitted together with it: three fits of three teams.
FITS = {
    "logs": ([0, 0.1, 0.265, 0.4, 0.6, 0.665, 0.8, 1], [0, 2.6, 9.75, 17.8, 33.8, 39.1, 49.1, 59.5], 0.047),
    "steep": ([0, 0.15, 0.2, 0.265, 0.32, 0.4, 0.55, 0.6, 0.8, 1], [0, 2.1, 4.7, 9.6, 13.6, 21.7, 38.7, 42.4, 58.4, 78.3], 0.076),
    "square": ([i / 9 for i in range(10)], [14.05 * i / 9 + 64.86 * (i / 9) ** 2 for i in range(10)], 0.034),
}  # fmt: skip


def rotation(q: Array) -> Array:
    """Return the matrix from body to world axes of a unit quaternion."""
    w, x, y, z = q
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def product(a: Array, b: Array) -> Array:
    """Multiply two quaternions (Hamilton)."""
    return np.concatenate([[a[0] * b[0] - a[1:] @ b[1:]], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])])


def from_euler(roll: float, pitch: float, yaw: float) -> Array:
    """Return the quaternion of yaw, then pitch, then roll, rad."""
    q = np.array([1.0, 0, 0, 0])
    for axis, angle in ((3, yaw), (2, pitch), (1, roll)):
        turn = np.zeros(4)
        turn[0], turn[axis] = np.cos(angle / 2), np.sin(angle / 2)
        q = product(q, turn)
    return q


def euler(q: Array) -> Array:
    """Return roll, pitch and yaw, rad."""
    r = rotation(q)
    return np.array([np.arctan2(r[2, 1], r[2, 2]), -np.arcsin(np.clip(r[2, 0], -1, 1)), np.arctan2(r[1, 0], r[0, 0])])


@dataclass(frozen=True)
class Craft:
    """What flies; the ranges in `draw` are those of the public fits."""

    fit: str
    delay_s: float  # command to onset
    thrust_lag_s: float
    rate_lag_s: Array
    slew: Array  # rad/s^2, greatest angular acceleration
    mixing: float = 0.25  # throttle that the greatest angular acceleration takes from the range that both share
    radius: float = 0.213  # m, half the diagonal of 280 x 280 x 160 mm

    @classmethod
    def draw(cls, rng: np.random.Generator, fit: str) -> "Craft":
        """Draw delay and lags."""
        level, lag = rng.uniform(0.020, 0.030), rng.uniform(0.045, 0.076)
        lags = np.array([level, level, lag])
        return cls(fit, rng.uniform(0.035, 0.040), rng.uniform(0.020, 0.040), lags, np.array([260.0, 260.0, 80.0]))


class Body:
    """One vehicle, held by its pad until the thrust lifts it off."""

    def __init__(self, craft: Craft, p: Array, q: Array) -> None:
        """Stand still on the pad."""
        self.craft, self.x = craft, np.concatenate([p, np.zeros(3), q, np.zeros(4)])
        self.t, self.on_pad = 0.0, True
        self.throttle, self.rates = 0.0, np.zeros(3)
        self._coming: deque[tuple[float, float, Array]] = deque()

    def command(self, throttle: float, rates: Array) -> None:
        """Accept a throttle of 0..1 and body rates in rad/s, which act after the delay."""
        self._coming.append((self.t + self.craft.delay_s, float(np.clip(throttle, 0, 1)), rates))

    def _rate(self, x: Array) -> Array:
        """Return dx/dt. Near full throttle turning lacks authority, near none it adds thrust."""
        v, q, w, c = x[3:6], x[6:10], x[10:13], x[13]
        throttles, thrusts, drag = FITS[self.craft.fit]
        turn = np.clip((self.rates - w) / self.craft.rate_lag_s, -self.craft.slew, self.craft.slew)
        share = self.craft.mixing * np.max(np.abs(turn) / self.craft.slew)
        u = max(self.throttle, share)
        if u + share > 1:
            turn *= (1 - u) / share
        a = rotation(q) @ [0, 0, -c] - drag * np.sqrt(v @ v) * v + G
        dc = (np.interp(u, throttles, thrusts) - c) / self.craft.thrust_lag_s
        return np.concatenate([v, a, product(q, np.array([0, *w])) / 2, turn, [dc]])

    def step(self, dt: float) -> None:
        """Advance by dt (s)."""
        if self.on_pad and not self.throttle and not self._coming:
            self.t += dt
            return
        while self._coming and self._coming[0][0] <= self.t:
            _, self.throttle, self.rates = self._coming.popleft()
        x = self.x
        a = self._rate(x)
        b = self._rate(x + dt / 2 * a)
        c = self._rate(x + dt / 2 * b)
        d = self._rate(x + dt * c)
        new = x + dt / 6 * (a + 2 * b + 2 * c + d)
        new[6:10] /= np.sqrt(new[6:10] @ new[6:10])
        self.t += dt
        self.on_pad &= bool(new[13] < G[2] * rotation(x[6:10])[2, 2])
        self.x = np.concatenate([x[:10], np.zeros(3), new[13:]]) if self.on_pad else new

    def specific_force(self) -> Array:
        """Return what an accelerometer reads, body axes."""
        r = rotation(self.x[6:10])
        return -r.T @ G if self.on_pad else r.T @ (self._rate(self.x)[3:6] - G)
