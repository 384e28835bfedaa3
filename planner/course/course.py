"""The course as input of the optimiser: the end of each leg, and the free space in between."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from gate_racer.planner.course.legs import Leg, legs
from gate_racer.planner.course.solids import FreeSpace
from gate_racer.planner.models import P
from gate_racer.planner.task import Task
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array

LEG_MOST_M = 1500.0  # m, longest leg (chosen): a leg that takes minutes would need thousands of nodes
BLIND = 0.15  # -, last fraction of the way to a gate on which it may leave the image (chosen)


@dataclass(frozen=True, eq=False)
class Course:
    """Legs of a task with the initial state. A "way" is the sequence of legs from one gate passage to the next."""

    task: Task
    space: FreeSpace
    legs: tuple[Leg, ...]
    x0: Array | None  # (NX,) initial state; None for a flying lap
    from_pad: bool  # whether the flight begins at rest on the pad
    begun: float = 0.0  # -, fraction of the first way, in time, already flown

    @cached_property
    def ways(self) -> list[list[int]]:
        """Indices of the legs from one passage to the next; the last leg of each list ends in a passage."""
        result: list[list[int]] = [[]]
        for i, leg in enumerate(self.legs):
            result[-1].append(i)
            if leg.passes and i + 1 < len(self.legs):
                result.append([])
        return result

    @cached_property
    def longest_way_m(self) -> float:
        """Length of the longest way, m, in straight lines between the ends of its legs."""
        ends = np.array([leg.target for leg in self.legs])
        begin = ends[-1] if self.x0 is None else self.x0[P]
        steps = np.linalg.norm(np.diff(ends, axis=0, prepend=begin[None]), axis=1)
        return max(float(steps[parts].sum()) for parts in self.ways)

    def view_window(self, near: float, passed: float) -> tuple[float, float]:
        """Return the times, s, between which a gate within range from `near` until it is passed stays in the image."""
        options, way = self.task.options, passed - near
        end = near + (1 - BLIND) * way
        return min(near + (1 - BLIND - options.see) * way, end - options.sight_s), end

    def in_range(self, parts: list[int], t: Array, path: Array) -> float:
        """Return the time, s, from which the gate at the end of a way is within detection range of positions (M, 3) at t (M,)."""
        gate = self.legs[parts[-1]].gate
        if gate is None:
            return float(t[0])
        beyond = np.linalg.norm(path - gate.p_wg, axis=1) - self.task.view_range_m(gate)
        last = int(np.flatnonzero(beyond > 0).max(initial=-1))
        if last < 0 or last + 1 == len(t):
            return float(t[last if last >= 0 else 0])
        return float(np.interp(0.0, -beyond[last : last + 2], t[last : last + 2]))

    def stretch(self, legs: slice, x0: Array | None) -> "Course":
        """Return the course of these legs alone, with initial state x0."""
        return replace(self, legs=self.legs[legs], x0=x0, from_pad=self.from_pad and legs.start == 0)

    def goal(self, i: int) -> str:
        """Return the name of the destination of leg i, for messages."""
        if self.legs[i].gate is None:
            return "the end position"
        return f"gates[{self.task.number(sum(leg.passes for leg in self.legs[:i]))}]"


def resolve(task: Task) -> Course:
    """Resolve the course of a task.

    Raises:
        UserError: the vehicle does not have this model, or a gate is too small, blocked or too far, or the start is blocked.
    """
    x0, space = task.x0, FreeSpace.of(task)
    from_pad = task.begin is not None and task.options.start is None
    course = Course(task, space, tuple(legs(task, space)), x0, from_pad)
    targets = [leg.target for leg in course.legs]
    before = targets[-1] if x0 is None else x0[P]
    for i, (a, b) in enumerate(pairwise([before, *targets])):
        if (far := float(np.linalg.norm(b - a))) > LEG_MOST_M:
            where = f"{task.track.name}: {course.goal(i)}"
            raise UserError(
                f"{where}: lies {far:.0f} m from the previous goal; a leg may have {LEG_MOST_M:g} m at most"
            )
    return course
