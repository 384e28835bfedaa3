"""The course as the optimiser sees it, resolved once: where each leg ends, and the free space in between."""

from dataclasses import dataclass
from functools import cached_property

from planner.course.legs import Leg, legs
from planner.course.solids import FreeSpace
from planner.task import Task

BLIND = 0.15  # last share of the way to a gate, in which it may leave the picture


@dataclass(frozen=True, eq=False)
class Course:
    """A task with its legs."""

    task: Task
    space: FreeSpace
    legs: tuple[Leg, ...]

    @cached_property
    def ways(self) -> list[list[int]]:
        """The legs' numbers from one passage to the next, each list up to the leg that ends in a passage."""
        result: list[list[int]] = [[]]
        for i, leg in enumerate(self.legs):
            result[-1].append(i)
            if leg.passes and i + 1 < len(self.legs):
                result.append([])
        return result

    @property
    def view_window(self) -> tuple[float, float]:
        """Shares of the way from one gate to the next between which the next one stays in the picture."""
        return 1 - BLIND - self.task.options.see, 1 - BLIND

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
    _ = task.model
    space = FreeSpace.of(task)
    return Course(task, space, tuple(legs(task, space)))
