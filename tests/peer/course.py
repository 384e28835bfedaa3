"""The first qualifier's course and its referee: openings in order, frames as solids."""

from dataclasses import dataclass, field

import numpy as np

from tests.peer.craft import Array, from_euler

OUTER, INNER, DEPTH, FOOT = 2.72, 1.5, 0.26, 1.36  # m; outer side as in the transmitted map, the document says 2.70
# Feet of the gates as broadcast by the builds 3364 to 3391, crossed towards -x.
FEET = np.array([
    [-23.298, -0.400, -0.032], [-46.894, -2.500, 5.068], [-74.594, 1.200, 13.668],
    [-111.494, -5.100, 24.568], [-135.494, -0.800, 25.356], [-159.194, -4.400, 25.968],
])  # fmt: skip
PAD = np.array([0.0, 0.0, 0.0205]), from_euler(0, np.deg2rad(-17.8), np.pi)  # the ramp points its nose down


@dataclass(frozen=True)
class Gate:
    """A frame; local axes: x in the direction of flight, y right, z down."""

    foot: Array
    axes: Array = field(default_factory=lambda: np.diag([-1.0, -1.0, 1.0]))  # local to world

    @property
    def p(self) -> Array:
        """Centre of the opening, m."""
        return self.foot - [0, 0, FOOT]

    def local(self, p: Array) -> Array:
        """Express a world point in local axes."""
        return (p - self.p) @ self.axes

    def world(self, local: Array) -> Array:
        """Express local points in world axes."""
        return self.p + local @ self.axes.T

    def distance(self, p: Array) -> float:
        """Return the distance of a point from the four bars, m."""
        local, beam = self.local(p), (OUTER - INNER) / 4
        found = []
        for axis in (1, 2):
            for side in (-1, 1):
                middle, half = np.zeros(3), np.array([DEPTH, OUTER, OUTER]) / 2
                middle[axis], half[axis] = side * (INNER / 2 + beam), beam
                found.append(np.linalg.norm(local - middle - np.clip(local - middle, -half, half)))
        return float(min(found))


@dataclass
class Referee:
    """Credits gates in order; `margins` are distances to the nearest edge of the opening, m."""

    gates: list[Gate]
    radius: float
    times: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    struck: str = ""

    @property
    def finished(self) -> bool:
        """Whether all gates are passed."""
        return len(self.times) == len(self.gates)

    def watch(self, before: Array, after: Array, t: float) -> None:
        """Judge one step that ends at t (s)."""
        if not self.finished:
            gate = self.gates[len(self.times)]
            a, b = gate.local(before), gate.local(after)
            if a[0] < 0 <= b[0]:
                crossing = a + a[0] / (a[0] - b[0]) * (b - a)
                margin = INNER / 2 - float(np.abs(crossing[1:]).max())
                if margin > 0:
                    self.times.append(t)
                    self.margins.append(margin)
        for i, gate in enumerate(self.gates):
            if np.abs(after - gate.p).max() < 2 and gate.distance(after) < self.radius:
                self.struck = self.struck or f"gate {i} at {t:.2f} s"
