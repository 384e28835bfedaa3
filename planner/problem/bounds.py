"""Bounds on the nodes of a flight, and where it leaves them in between."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.course.course import Course
from planner.models import P, Q
from planner.problem.clearance import STRAY_M
from planner.problem.mesh import Mesh, intervals
from planner.problem.nlp import Rows
from planner.problem.terms import Nodes, Term
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array

DOWN = P.start + 2
# A vehicle on its pad may at first be as near to the floor as that is, and climbs, wherever the first gate lies: for LIFT_OFF_S,
# with at least this share of the acceleration that its thrust allows, after so many lags of the thrust.
LIFT_OFF_S, LIFT_OFF_SHARE, SPOOL_UP = 0.3, 0.25, 2.0
LEAN_M = 0.05  # lower than level by that much a rim may be at once, as it is on an uneven pad
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
        upright = _upright(*x0[Q][1:3])  # of its thrust
        climb = max(reserve * vehicle.thrust_max * upright - GRAVITY, 0.0)
        late = np.maximum(t - SPOOL_UP * vehicle.thrust_lag_s, 0.0)
        return x0[DOWN] - LIFT_OFF_SHARE * climb / 2 * late**2


class LevelLiftOff(Term):
    """A vehicle that stands on the floor leans, while it leaves it, no more than its height leaves room for its rim.

        rim sin(lean) <= height + LEAN_M + rim sin(lean at first)

    Without it, plans lean within 0.2 m of the floor, and a vehicle that is weaker or later than believed comes down there.
    """

    def __init__(self, course: Course):
        self._rim, self._x0 = course.task.vehicle.contact_radius_m, course.x0
        floor = course.task.track.bounds.high_m[2]
        self._holds = course.x0 is not None and course.from_pad and floor - course.x0[DOWN] < course.space.keep_m

    def rows(self, nodes: Nodes) -> list[Rows]:
        early = np.flatnonzero(np.cumsum(intervals(nodes.mesh, nodes.durations)) < LIFT_OFF_S).tolist()
        if self._x0 is None or not self._holds or not early:
            return []
        at_first = LEAN_M + self._rim * np.sqrt(1 - _upright(*self._x0[Q][1:3]) ** 2)
        after = nodes.after[:, early]
        room = (self._x0[DOWN] - after[DOWN, :] + at_first) / self._rim
        return [Rows.not_negative(room**2 - 1 + _upright(after[Q.start + 1, :], after[Q.start + 2, :]) ** 2)]


def _upright(q_x: Any, q_y: Any) -> Any:
    """The cosine of the lean of an attitude."""
    return 1 - 2 * (q_x**2 + q_y**2)
