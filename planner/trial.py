"""Trial of a plan on the vehicle's own plant, and the reserves with which a plan is made again where that fails.

The plan's model leaves out the lift of the air and its torque on the rotors, both of which grow with the speed. Where a plant has
them, a certified plan may be faster than its rate loop can hold. Who flies is an argument: the planner knows no simulator.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gate_racer.planner.plan import Plan
from gate_racer.planner.task import PlanOptions, Task

# Reserve and speed of each further plan over those of the first (chosen).
EASED = ((0.9, 0.75), (0.8, 0.6), (0.75, 0.45))
KEPT = 1 / 3  # -, least share of the planned margin that is left at every gate (chosen)


@dataclass(frozen=True)
class Trial:
    """Flight of a plan on the vehicle's own plant, by the true state."""

    gates: int  # passed
    gates_total: int
    margin_m: float | None  # of the centre from an edge, at the least; None before the first gate, or for balls
    needed_m: float  # m, least such distance that is enough
    cause: str  # why it did not finish; empty if it did
    reserve: float  # of the plan
    speed_m_s: float  # m/s, largest of the plan
    because: str = ""  # failure of the first plan; empty if this is it

    @property
    def ok(self) -> bool:
        """Whether it has finished with enough margin."""
        return not self.cause and (self.margin_m is None or self.margin_m >= self.needed_m)

    @property
    def failure(self) -> str:
        """What went wrong, and in which plan."""
        what = self.cause or f"less than {self.needed_m:.2f} m from an edge"
        return f"flown on the vehicle's own plant {self._passed}: {what} ({self._limits})"

    @property
    def sentence(self) -> str:
        """The trial of a plan that is good enough, and why it is not the first one."""
        why = f", because the first plan was {self.because}" if self.because else ""
        return f"flown on the vehicle's own plant: {self._passed}; {self._limits}{why}"

    @property
    def _passed(self) -> str:
        margin = f", least margin {self.margin_m:.2f} m" if self.margin_m is not None else ""
        return f"{self.gates} of {self.gates_total} gates{margin}"

    @property
    def _limits(self) -> str:
        return f"reserve {self.reserve:.2g}, at most {self.speed_m_s:.1f} m/s"


# Flies a plan of a task; None if the plant is the plan's model, or the flight does not begin at rest on the pad.
Fly = Callable[[Plan, Task], Trial | None]


def eased(options: PlanOptions, speed_m_s: float) -> list[PlanOptions]:
    """Return the options of the further plans; `speed_m_s`: largest speed of the first, m/s."""
    return [replace(options, reserve=options.reserve * c, speed_m_s=speed_m_s * v) for c, v in EASED]


def needed_m(task: Task) -> float:
    """Return the least distance, m, from the vehicle's centre to an edge that is enough in a trial."""
    return task.radius_m + KEPT * task.options.margin_m
