"""Controllers that a user brings: along a plan, in place of the solver, or from gate to gate, in place of a learned policy.

Along a plan all else of `PlanController` stays: prediction over the delay, progress, gates off the map, limits and fall-backs.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gate_racer.common.config import shown
from gate_racer.common.parts import Part, array_of
from gate_racer.mpc.control import Control, unplanned
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.geometric import brake
from gate_racer.mpc.problem import Solution
from gate_racer.mpc.terms import NR, REFERENCE
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import RATES_U, RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

INPUT = slice(REFERENCE["u_w"].at.start, REFERENCE["u_c"].at.stop)
CONTROLLER, GUIDANCE = "step", "steer"  # the method by which a class is one or the other
NEEDED = CONTROLLER, GUIDANCE


@dataclass(frozen=True, slots=True)
class PlanAhead:
    """The plan over the horizon from where the vehicle should be when the command acts; world NED, body FRD.

    It goes where the gates stand as far as is known, at a pace that thrust and view allow.
    """

    t: Array  # (N,) s from then
    p_wb: Array  # (N, 3) m
    q_wb: Array  # (N, 4) wxyz
    v_w: Array  # (N, 3) m/s, at the plan's own pace
    a_w: Array  # (N, 3) m/s^2, likewise
    u: Array  # (N, 4) body rates, rad/s, and thrust over mass, m/s^2, likewise
    pace: float  # 1.0 as planned; velocities are to be multiplied by it


class Controller(Protocol):
    """Controller along a plan, a part that a user may bring. Made as `Mine(plan, vehicle, track)`; docs/parts.md has an example.

    Examples:
        >>> from gate_racer import Controller
        >>> class Blind(Controller):
        ...     def __init__(self, plan, vehicle, track):
        ...         self.thrust_max = vehicle.thrust_max
        ...
        ...     def step(self, t, x, ahead):
        ...         return np.minimum(ahead.u[0], self.thrust_max)
    """

    def step(self, t: float, x: Array, ahead: PlanAhead) -> Array:
        """Return the command at t (s), (4,): body rates (rad/s, FRD) and thrust over mass (m/s^2).

        Args:
            x: (14,) as `RATES_X`, the state predicted for when the command acts: p, q, v, body rates, thrust over mass.
            ahead: the plan from there.
        """
        ...


class Guidance(Protocol):
    """Guidance without a plan, a part that a user may bring. Made as `Mine(track, vehicle)`; docs/parts.md has an example.

    Examples:
        >>> from gate_racer import Guidance
        >>> class Hover(Guidance):
        ...     def __init__(self, track, vehicle):
        ...         self.command = np.array([0.0, 0.0, 0.0, 9.81])
        ...
        ...     def steer(self, t, x, gate):
        ...         return self.command
    """

    def steer(self, t: float, x: Array, gate: Gate) -> Array:
        """Return the command at t (s), as `Controller.step`, for the present state x (14,) and the next gate."""
        ...


def command_of(part: Part, method: str, *given: Any) -> tuple[Array | None, str]:
    """Return the command (4,) of a part, or None and why there is none."""
    result, why = part.call(method, *given)
    if why:
        return None, why
    u = array_of(result, RATES_U.size)
    return (u, "") if u is not None else (None, part.fault(f"{method} returned {shown(result)}, not 4 finite numbers"))


class PartSolver:
    """`Solver` whose first input is the part's, and whose horizon beyond is the plan."""

    def __init__(self, part: Part, step_s: float):
        self.part, self._step_s = part, step_s
        self.t = 0.0  # s, time of the next command
        self._rows = np.zeros((0, NR))

    def start(self, x: Array, u: Array) -> None:
        pass

    def prepare(self, parameters: Array) -> None:
        self._rows = parameters[:, :NR].copy()

    def solve(self, x0: Array) -> Solution:
        rows = self._rows
        x, u = np.zeros((len(rows), RATES_X.size)), rows[:-1, INPUT].copy()
        first, last = RATES_X["p"].at.start, RATES_X["v"].at.stop
        x[:, first:last] = rows[:, first:last]  # p, q and v are laid out alike
        p, q, v, a = (rows[:, REFERENCE[name].at] for name in ("p", "q", "v", "a"))
        t, pace = self._step_s * np.arange(len(rows), dtype=float), float(rows[0, REFERENCE["pace"].at.start])
        given, why = command_of(self.part, CONTROLLER, self.t, x0, PlanAhead(t, p, q, v, a, rows[:, INPUT], pace))
        if given is None:
            return Solution(x, u, -1, 0.0, why)
        u[0] = given
        return Solution(x, u, 0, 0.0)


class PartController(PlanController):
    """Controller of a user along a plan."""

    def step(self, t: float, x: Array, dt: float, age: float = 0.0) -> Control:
        assert isinstance(self.solver, PartSolver)
        self.solver.t = t
        return super().step(t, x, dt, age)


class FreePart:
    """Controller of a user without a plan, in the place of a `PolicyController`."""

    def __init__(self, part: Part, vehicle: Vehicle):
        self.part, self._attitude_gain = part, vehicle.attitude_gain_1_s
        self._most = np.array([*vehicle.rate_max_rad_s, vehicle.thrust_max])
        self._least = np.array([*np.negative(vehicle.rate_max_rad_s), vehicle.thrust_min])

    def step(self, t: float, x: Array, gate: Gate) -> Control:
        """Return the part's command for a state x (14,) and the next gate; brake where there is none."""
        u, why = command_of(self.part, GUIDANCE, t, x, gate)
        u = np.clip(u if u is not None else brake(x), self._least, self._most)
        return unplanned(x, u, self._attitude_gain, why)
