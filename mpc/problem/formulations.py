"""The two formulations over one model, as objects: each owns its layouts, costs, limits, first guess and drive of progress.

Tracking (Foehn et al.; Sun et al., T-RO 2022, eq. 14-19): the plan, sampled by progress along it, is followed in all its states.

    minimise  sum_k |p - p_r|^2 + |2 vec(q_r^-1 q)|^2 + |v - v_r|^2 + |u - u_r|^2, weighted

Contouring (MPCC; Romero et al., T-RO 2022; MPCC++, RSS 2024): progress along the plan is a state that the solver drives.

    minimise  sum_k |e_contour|^2 + |e_lag|^2 + |pace_max - pace|^2 + |u - u_r|^2, weighted,
    softly within each gate's opening; at the end of the horizon near the plan's own state.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import casadi as ca
import numpy as np

from mpc.problem import terms
from mpc.problem.stage import REFERENCE, Stage
from mpc.progress import PlanProgress
from mpc.solvers.solver import Solve
from vehicle.dynamics import RATES_U, RATES_X
from vehicle.layout import Layout, layout
from vehicle.rotation import Array

NX, NU = RATES_X.size, RATES_U.size
V_R, U_W, U_C = (REFERENCE[name].at for name in ("v", "u_w", "u_c"))
THETA, PACE = (REFERENCE[name].at.start for name in ("theta", "pace"))
V, W, C = (RATES_X[name].at for name in "vwc")


def joined(first: Layout, second: Layout) -> Layout:
    """One layout after the other."""
    fields = {}
    for name, field in {**first, **second}.items():
        suffixes = [column.removeprefix(name + "_") for column in field.columns if column != name]
        fields[name] = (" ".join(suffixes), field.unit, field.frame)
    return layout(**fields)


class Formulation(ABC):
    """What a controller minimises, over which states and inputs; those of the vehicle come first in both."""

    name: ClassVar[str]
    x: ClassVar[Layout] = RATES_X
    u: ClassVar[Layout] = RATES_U

    @abstractmethod
    def costs(self, w: terms.Weights) -> tuple[terms.Cost, ...]:
        """Of each stage, and of the end."""

    def gate_corridor(self, w: terms.Weights) -> terms.GateCorridor | None:
        """The soft constraint, where there is one."""
        return None

    def progress_after(self, s: Stage, dt: float) -> list[ca.SX]:
        """The states beyond the vehicle's, dt later."""
        return []

    def progress_input_limits(self, pace_change_max: float) -> list[float]:
        """Greatest magnitudes of the inputs beyond the vehicle's."""
        return []

    def initial(self, ahead: Array, progress: PlanProgress) -> Array:
        """(x.size,) the state to solve from, with the vehicle's (14,)."""
        return ahead

    def first_guess(self, rows: Array) -> tuple[Array, Array]:
        """x (N + 1, x.size) and u (N, u.size): the reference (N + 1, NR) itself."""
        x, u = np.zeros((len(rows), self.x.size)), np.zeros((len(rows) - 1, self.u.size))
        x[:, : V.stop], x[:, W], x[:, C] = rows[:, : V.stop], rows[:, U_W], rows[:, U_C]
        u[:, :NU] = rows[:-1, U_W.start : U_C.stop]
        return x, u

    @abstractmethod
    def stages(self, progress: PlanProgress, times: Array, last: Array | None) -> Array:
        """(N + 1,) s of plan time at which the stages are expected, `times` (N + 1,) s from now.

        Args:
            last: (N + 1, x.size) the last solution, where the solver goes on from it.
        """

    @abstractmethod
    def drive(self, progress: PlanProgress, solution: Solve, row: Array, v_w: Array, dt: float) -> None:
        """The pace dt later, from a solution, the plan's row (NR,) here and the vehicle's velocity (3,)."""


def _input_costs(w: terms.Weights) -> tuple[terms.Cost, ...]:
    """Common to both."""
    return (
        terms.Rates(w.rates),
        terms.Thrust(w.thrust),
        terms.RateTracking(w.rate_tracking),
        terms.GateVisibility(w.gate_visibility),
    )


class Tracking(Formulation):
    """The plan's own states, at a pace that follows the vehicle."""

    name = "tracking"

    def costs(self, w: terms.Weights) -> tuple[terms.Cost, ...]:
        return (
            terms.Position(w.position),
            terms.AttitudeError(w.attitude),
            terms.Velocity(w.velocity),
            *_input_costs(w),
        )

    def stages(self, progress: PlanProgress, times: Array, last: Array | None) -> Array:
        return progress.theta + progress.pace * times

    def drive(self, progress: PlanProgress, solution: Solve, row: Array, v_w: Array, dt: float) -> None:
        progress.keep(row[V_R], v_w, dt)


class Contouring(Formulation):
    """The plan's line, at the pace that the solver chooses."""

    name = "mpcc"
    x: ClassVar[Layout] = joined(RATES_X, layout(theta=("", "s", "progress"), pace=("", "-", "d(progress)/dt")))
    u: ClassVar[Layout] = joined(RATES_U, layout(u_pace=("", "1/s", "d(pace)/dt")))

    def costs(self, w: terms.Weights) -> tuple[terms.Cost, ...]:
        return (
            terms.Contour(w.contour),
            terms.Lag(w.lag),
            terms.Progress(w.progress),
            terms.AttitudeError(w.attitude),
            terms.Velocity(w.velocity),
            terms.PaceRate(w.pace_rate),
            *_input_costs(w),
        )

    def gate_corridor(self, w: terms.Weights) -> terms.GateCorridor | None:
        return terms.GateCorridor(w.gate_corridor, w.gate_corridor_price)

    def progress_after(self, s: Stage, dt: float) -> list[ca.SX]:
        theta, pace, pace_rate = s.x["theta"], s.x["pace"], s.u["u_pace"]
        return [theta + dt * pace + dt**2 / 2 * pace_rate, pace + dt * pace_rate]

    def progress_input_limits(self, pace_change_max: float) -> list[float]:
        return [pace_change_max]

    def initial(self, ahead: Array, progress: PlanProgress) -> Array:
        return np.array([*ahead, progress.theta, progress.pace])

    def first_guess(self, rows: Array) -> tuple[Array, Array]:
        x, u = super().first_guess(rows)
        x[:, NX:] = rows[:, [THETA, PACE]]
        return x, u

    def stages(self, progress: PlanProgress, times: Array, last: Array | None) -> Array:
        if last is None:
            return progress.theta + progress.pace * times
        theta = last[:, NX]
        return progress.theta + theta - theta[0]

    def drive(self, progress: PlanProgress, solution: Solve, row: Array, v_w: Array, dt: float) -> None:
        progress.drive(float(solution.x[0, NX + 1] + dt * solution.u[0, NU]))


FORMULATIONS: dict[str, Formulation] = {one.name: one for one in (Contouring(), Tracking())}
