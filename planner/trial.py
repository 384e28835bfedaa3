"""Trial of a plan on the vehicle's own plant, and the reserves with which a plan is made again where that fails.

The plan's model leaves out the lift of the air and its torque on the rotors, both of which grow with the speed. Where a plant has
them, a certified plan may be faster than its rate loop can hold. Who flies is an argument: the planner knows no simulator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from gate_racer.planner.plan import Plan
from gate_racer.planner.task import PlanOptions, Task

# Reserve and speed of each further plan over those of the first, and its least share of view (chosen).
EASED = ((0.9, 0.75, 0.0), (0.8, 0.6, 0.5), (0.75, 0.45, 0.5))
KEPT, KEPT_M = (
    1 / 3,
    0.05,
)  # -, least share of the planned margin that is left at every gate, and m that are enough (chosen)


@dataclass(frozen=True)
class Trial:
    """Flights of a plan on the vehicle's own plant: on the true state, then by camera, until one fails."""

    gates: int  # passed by the last flight
    gates_total: int
    needed_m: float  # m, distance of the centre from an edge or an obstacle that is enough on the true state
    reserve: float  # of the plan
    speed_m_s: float  # m/s, largest of the plan
    flights: int = 0
    margin_m: float | None = None  # of the centre from an edge, at the least; None before the first gate, or for balls
    clearance_m: float | None = None  # m, of the centre from an obstacle, at the least; None without obstacles
    cause: str = ""  # why the last flight is not good enough; empty if it is
    because: str = ""  # failure of the first plan; empty if this is it

    @property
    def ok(self) -> bool:
        """Whether all flights have finished, that on the true state with enough margin."""
        return not self.cause

    def then(
        self, gates: int, margins_m: Sequence[float], clearance_m: float | None, cause: str, by: str = ""
    ) -> "Trial":
        """Return the trial with a further flight, whose margins count only on the true state: `by` is empty."""
        near = [one for one in (*margins_m, clearance_m) if one is not None]
        if not cause and not by and min(near, default=inf) < self.needed_m:
            cause = f"less than {self.needed_m:.2f} m from an edge or an obstacle"
        return replace(
            self,
            gates=gates,
            flights=self.flights + 1,
            margin_m=_least(self.margin_m, *margins_m),
            clearance_m=_least(self.clearance_m, clearance_m),
            cause=cause and cause + by,
        )

    @property
    def failure(self) -> str:
        """What went wrong, and in which plan."""
        return f"flown on the vehicle's own plant {self._passed}: {self.cause} ({self._limits})"

    @property
    def sentence(self) -> str:
        """The trial of a plan that is good enough, and why it is not the first one."""
        why = f", because the first plan was {self.because}" if self.because else ""
        seen = f" and {self.flights - 1} times by camera" if self.flights > 1 else ""
        return f"flown on the vehicle's own plant, on the true state{seen}: {self._passed}; {self._limits}{why}"

    @property
    def _passed(self) -> str:
        margin = f", least margin {self.margin_m:.2f} m" if self.margin_m is not None else ""
        clear = f", {self.clearance_m:.2f} m from an obstacle" if self.clearance_m is not None else ""
        return f"{self.gates} of {self.gates_total} gates{margin}{clear}"

    @property
    def _limits(self) -> str:
        return f"reserve {self.reserve:.2g}, at most {self.speed_m_s:.1f} m/s"


def _least(*values: float | None) -> float | None:
    return min((one for one in values if one is not None), default=None)


# Flies a plan of a task; None if the plant is the plan's model, or the flight does not begin at rest on the pad.
Fly = Callable[[Plan, Task], Trial | None]


def eased(options: PlanOptions, speed_m_s: float) -> list[PlanOptions]:
    """Return the options of the further plans; `speed_m_s`: largest speed of the first, m/s."""
    return [
        replace(options, reserve=options.reserve * c, speed_m_s=speed_m_s * v, see=max(options.see, see))
        for c, v, see in EASED
    ]


def needed_m(task: Task) -> float:
    """Return the least distance, m, from the vehicle's centre to an edge or an obstacle that is enough in a trial."""
    return task.radius_m + min(KEPT * task.margin_m, KEPT_M)
