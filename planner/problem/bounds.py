"""Bounds on the nodes of a trajectory, and checks of them between nodes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gate_racer.planner.course.course import Course
from gate_racer.planner.models import P, Q
from gate_racer.planner.problem.clearance import STRAY_M
from gate_racer.planner.problem.mesh import Mesh, intervals
from gate_racer.planner.problem.nlp import Rows
from gate_racer.planner.problem.terms import Nodes, Term
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

DOWN = P.start + 2
# Lift-off: for LIFT_OFF_S, s, the vehicle may be as low as its pad, and climbs, wherever the first gate lies, with at least the
# fraction LIFT_OFF_SHARE of the acceleration that its thrust allows, after SPOOL_UP thrust lags (chosen).
LIFT_OFF_S, LIFT_OFF_SHARE, SPOOL_UP = 0.3, 0.25, 2.0
LEAN_M = 0.05  # m, further drop of the body's rim by tilt that is allowed at the pad, as on uneven ground
SHORTEST, LONGEST = 0.3, 4.0  # -, bounds of a leg's duration over the guessed one
SHORTEST_INSIDE, LONGEST_INSIDE = 0.05, 20.0  # -, the same for a leg within a gate, whose guess is poor


@dataclass(frozen=True, eq=False)
class NodeBounds:
    """Bounds on states and durations of a course."""

    course: Course

    def states(self, mesh: Mesh, durations: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds (NX, N) of the nodes: the body inside the track's box, except during lift-off."""
        task, space = self.course.task, self.course.space
        t = np.cumsum(intervals(mesh, durations))
        high = np.repeat(task.model.x_high[:, None], len(t), axis=1)
        high[Q] = 1.1  # never active, but it limits the search
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
        """Return bounds (L,), s, on the durations of legs with these guessed durations."""
        inside = np.array([leg.inside for leg in self.course.legs])
        shortest, longest = np.where(inside, SHORTEST_INSIDE, SHORTEST), np.where(inside, LONGEST_INSIDE, LONGEST)
        return shortest * guessed, longest * guessed

    def strays(self, path: Array) -> np.ndarray:
        """Return for each interval with positions (S, N, 3), (N,), whether it leaves the box between its nodes."""
        space, ends = self.course.space, path[[0, -1]]
        low, high = np.minimum(space.low, ends.min(axis=0)), np.maximum(space.high, ends.max(axis=0))
        return ((path < low - STRAY_M) | (path > high + STRAY_M)).any(axis=(0, 2))

    def _lifted(self, x0: Array, t: Array) -> Array:
        """Return the largest z (NED, down), m, of the vehicle at times t during lift-off."""
        vehicle, reserve = self.course.task.vehicle, self.course.task.options.reserve
        upright = _upright(*x0[Q][1:3])  # vertical component of the thrust direction
        climb = max(reserve * vehicle.thrust_max * upright - GRAVITY, 0.0)
        late = np.maximum(t - SPOOL_UP * vehicle.thrust_lag_s, 0.0)
        return x0[DOWN] - LIFT_OFF_SHARE * climb / 2 * late**2


class LevelLiftOff(Term):
    """Limit of the tilt during lift-off from the floor, so that the body's rim stays clear of it.

        rim sin(tilt) <= height + LEAN_M + rim sin(initial tilt)

    Without it, plans tilt within 0.2 m of the floor, and a vehicle with less thrust or more delay than modelled hits it.
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
    """Return the cosine of the tilt of an attitude."""
    return 1 - 2 * (q_x**2 + q_y**2)
