"""Where the gates of a plan are believed to stand, off their map, and how surely; and where that leads the plan's line.

Between two gates, at the share s of the plan's time from one to the next, the line is moved by

    d(s) = o_k + (o_k+1 - o_k) (3 s^2 - 2 s^3)

so that the second gate is headed for before the first one is passed. The course begins on the pad, unmoved unless that is said.
"""

import numpy as np

from vehicle.rotation import Array


class CourseBelief:
    """Offsets and standard deviations of the gates, by their number in the plan. At first they stand on the map for sure."""

    def __init__(self, gates_s: Array):
        """`gates_s` (G,): s of plan time at which they are passed."""
        self._knots_s = np.concatenate([[0.0], gates_s])
        self._offsets = np.zeros((len(gates_s) + 1, 3))  # of the pad, and of the gates
        self._sigmas_m = np.zeros(len(gates_s) + 1)

    def believe(self, number: int, offset_w: Array, sigma_m: float) -> None:
        """Gate `number` stands offset_w (3,) m off the map, in doubt by sigma_m across its opening."""
        self._offsets[number + 1], self._sigmas_m[number + 1] = offset_w, sigma_m

    def begin(self, offset_w: Array) -> None:
        """The course begins offset_w (3,) m off the plan's start."""
        self._offsets[0] = offset_w

    def take(self, other: "CourseBelief") -> None:
        """What another plan's belief says of the same gates."""
        self._offsets[:], self._sigmas_m[:] = other._offsets, other._sigmas_m

    def line(self, theta: Array) -> tuple[Array, Array]:
        """By how much the line is moved at theta (M,), s of plan time: m and m per s of plan time (M, 3)."""
        knots_s, offsets = self._knots_s, self._offsets
        if len(knots_s) == 1:
            return np.zeros((len(theta), 3)), np.zeros((len(theta), 3))
        k = np.minimum(np.maximum(knots_s.searchsorted(theta, side="right") - 1, 0), len(knots_s) - 2)
        span_s = (knots_s[k + 1] - knots_s[k])[:, None]
        s = np.minimum(np.maximum((theta - knots_s[k])[:, None] / span_s, 0.0), 1.0)
        step = offsets[k + 1] - offsets[k]
        return offsets[k] + step * (s * s * (3 - 2 * s)), step * (6 * s * (1 - s) / span_s)

    def gates(self, numbers: np.ndarray) -> tuple[Array, Array]:
        """(M, 3) m and (M,) m of gates (M,), beyond the last one of that."""
        k = np.minimum(numbers + 1, len(self._offsets) - 1)
        return self._offsets[k], self._sigmas_m[k]
