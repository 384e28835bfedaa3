"""The course as the optimiser sees it, resolved once: where each leg ends, and the free space in between."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from planner.course.legs import Leg, legs
from planner.course.solids import FreeSpace
from planner.models import P
from planner.task import Task
from vehicle.errors import UserError
from vehicle.rotation import Array

LEG_MOST_M = 1500.0  # a leg that takes minutes would need thousands of nodes
BLIND = 0.15  # last share of the way to a gate, in which it may leave the image


@dataclass(frozen=True, eq=False)
class Course:
    """The legs of a task, and the state before the first."""

    task: Task
    space: FreeSpace
    legs: tuple[Leg, ...]
    x0: Array | None  # (NX,); None where the flight begins as it ends
    from_pad: bool  # whether it begins at rest on the pad
    begun: float = 0.0  # share of the first way, in time, that lies behind it

    @cached_property
    def ways(self) -> list[list[int]]:
        """The legs' numbers from one passage to the next, each list up to the leg that ends in a passage."""
        result: list[list[int]] = [[]]
        for i, leg in enumerate(self.legs):
            result[-1].append(i)
            if leg.passes and i + 1 < len(self.legs):
                result.append([])
        return result

    @cached_property
    def longest_way_m(self) -> float:
        """In straight lines from leg to leg."""
        ends = np.array([leg.target for leg in self.legs])
        begin = ends[-1] if self.x0 is None else self.x0[P]
        steps = np.linalg.norm(np.diff(ends, axis=0, prepend=begin[None]), axis=1)
        return max(float(steps[parts].sum()) for parts in self.ways)

    @property
    def view_window(self) -> tuple[float, float]:
        """Shares of the way from one gate to the next between which the next one stays in the image."""
        return 1 - BLIND - self.task.options.see, 1 - BLIND

    def in_range(self, parts: list[int], t: Array, path: Array) -> float:
        """Time from which on the gate at the end of a way is near enough to be found, along places (M, 3) at times t (M,)."""
        gate = self.legs[parts[-1]].gate
        if gate is None:
            return float(t[0])
        beyond = np.linalg.norm(path - gate.p_wg, axis=1) - self.task.view_range_m(gate)
        last = int(np.flatnonzero(beyond > 0).max(initial=-1))
        if last < 0 or last + 1 == len(t):
            return float(t[last if last >= 0 else 0])
        return float(np.interp(0.0, -beyond[last : last + 2], t[last : last + 2]))

    def stretch(self, legs: slice, x0: Array | None) -> "Course":
        """Those legs alone, begun in that state."""
        return replace(self, legs=self.legs[legs], x0=x0, from_pad=self.from_pad and legs.start == 0)

    def goal(self, i: int) -> str:
        """What leg i leads to, in the user's words."""
        if self.legs[i].gate is None:
            return "the end"
        return f"gates[{self.task.number(sum(leg.passes for leg in self.legs[:i]))}]"


def resolve(task: Task) -> Course:
    """The course of a task.

    Raises:
        UserError: the course contradicts the vehicle: it has not this model, a gate is too small or blocked, the start is.
    """
    x0, space = task.x0, FreeSpace.of(task)
    from_pad = task.begin is not None and task.options.start is None
    course = Course(task, space, tuple(legs(task, space)), x0, from_pad)
    targets = [leg.target for leg in course.legs]
    before = targets[-1] if x0 is None else x0[P]
    for i, (a, b) in enumerate(pairwise([before, *targets])):
        if (far := float(np.linalg.norm(b - a))) > LEG_MOST_M:
            where = f"{task.track.name}: {course.goal(i)}"
            raise UserError(f"{where}: lies {far:.0f} m from what comes before it; up to {LEG_MOST_M:g} m are planned")
    return course
