"""Bounds on the nodes of a flight, and where it leaves them in between."""

from dataclasses import dataclass

import numpy as np

from planner.course.course import Course
from planner.models import P, Q
from planner.problem.clearance import STRAY_M
from planner.problem.mesh import Mesh, intervals
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array

DOWN = P.start + 2
# A vehicle on its pad may at first be as near to the floor as that is, and climbs, wherever the first gate lies: for LIFT_OFF_S,
# with at least this share of the acceleration that its thrust allows, after so many lags of the thrust.
LIFT_OFF_S, LIFT_OFF_SHARE, SPOOL_UP = 0.3, 0.25, 2.0
SHORTEST, LONGEST = 0.3, 4.0  # of a leg's guessed duration
SHORTEST_INSIDE, LONGEST_INSIDE = 0.05, 20.0  # the same of a leg within a gate, whose guess is poor


@dataclass(frozen=True, eq=False)
class NodeBounds:
    """Of one course."""

    course: Course

    def states(self, mesh: Mesh, durations: Array) -> tuple[Array, Array]:
        """(NX, N) of the nodes. The body stays inside the track's box, except while it leaves its pad."""
        task, space = self.course.task, self.course.space
        t = np.cumsum(intervals(mesh, durations))
        high = np.repeat(task.model.x_high[:, None], len(t), axis=1)
        high[Q] = 1.1  # never active: it only keeps the search away from absurd steps
        low = -high
        low[P], high[P] = space.low[:, None], space.high[:, None]
        x0 = self.course.x0
        if x0 is None:
            return low, high
        early, p0 = t < LIFT_OFF_S, x0[P, None]
        low[P] = np.where(early, np.minimum(low[P], p0), low[P])
        high[P] = np.where(early, np.maximum(high[P], p0), high[P])
        if self.course.from_pad:
            high[DOWN] = np.where(early, np.minimum(high[DOWN], self._lifted(x0, t)), high[DOWN])
        return low, high

    def durations(self, guessed: Array) -> tuple[Array, Array]:
        """(L,) s, of legs with these guessed durations."""
        inside = np.array([leg.inside for leg in self.course.legs])
        shortest, longest = np.where(inside, SHORTEST_INSIDE, SHORTEST), np.where(inside, LONGEST_INSIDE, LONGEST)
        return shortest * guessed, longest * guessed

    def strays(self, path: Array) -> np.ndarray:
        """(N,) whether intervals with places (S, N, 3) leave the box between their nodes."""
        space, ends = self.course.space, path[[0, -1]]
        low, high = np.minimum(space.low, ends.min(axis=0)), np.maximum(space.high, ends.max(axis=0))
        return ((path < low - STRAY_M) | (path > high + STRAY_M)).any(axis=(0, 2))

    def _lifted(self, x0: Array, t: Array) -> Array:
        """The lowest that the vehicle, which stands on something at first, may be at these times."""
        vehicle, reserve = self.course.task.vehicle, self.course.task.options.reserve
        upright = 1 - 2 * (x0[Q][1] ** 2 + x0[Q][2] ** 2)  # of its thrust
        climb = max(reserve * vehicle.thrust_max * upright - GRAVITY, 0.0)
        late = np.maximum(t - SPOOL_UP * vehicle.thrust_lag_s, 0.0)
        return x0[DOWN] - LIFT_OFF_SHARE * climb / 2 * late**2
