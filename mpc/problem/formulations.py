"""The two formulations over one model: each owns its layouts, costs, limits, initial guess and law of progress.

Tracking (Foehn et al.; Sun et al., T-RO 2022, eq. 14-19): all states of the plan, sampled by progress along it, are tracked.

    minimise  sum_k |p - p_r|^2 + |2 vec(q_r^-1 q)|^2 + |v - v_r|^2 + |u - u_r|^2, weighted

Contouring (MPCC; Romero et al., T-RO 2022; MPCC++, RSS 2024): progress along the plan is a state that the solver drives.

    minimise  sum_k |e_contour|^2 + |e_lag|^2 + |pace_max - pace|^2 + |u - u_r|^2, weighted,
    with each gate's opening as a soft constraint, and a terminal cost on the deviation from the plan's state.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import casadi as ca
import numpy as np

from gate_racer.mpc.problem import terms
from gate_racer.mpc.problem.stage import REFERENCE, Stage
from gate_racer.mpc.progress import PlanProgress
from gate_racer.mpc.solvers.solver import Solution
from gate_racer.vehicle.dynamics import RATES_U, RATES_X
from gate_racer.vehicle.layout import Layout, layout
from gate_racer.vehicle.rotation import Array

NX, NU = RATES_X.size, RATES_U.size
V_R, U_W, U_C = (REFERENCE[name].at for name in ("v", "u_w", "u_c"))
THETA, PACE = (REFERENCE[name].at.start for name in ("theta", "pace"))
V, W, C = (RATES_X[name].at for name in "vwc")


def joined(first: Layout, second: Layout) -> Layout:
    """Concatenate two layouts."""
    fields = {}
    for name, field in {**first, **second}.items():
        suffixes = [column.removeprefix(name + "_") for column in field.columns if column != name]
        fields[name] = (" ".join(suffixes), field.unit, field.frame)
    return layout(**fields)


class Formulation(ABC):
    """Optimal-control formulation: states, inputs and costs; the vehicle's states and inputs come first."""

    name: ClassVar[str]
    x: ClassVar[Layout] = RATES_X
    u: ClassVar[Layout] = RATES_U

    @abstractmethod
    def costs(self, w: terms.Weights) -> tuple[terms.Cost, ...]:
        """Return the cost terms of the stages and of the end."""

    def gate_corridor(self, w: terms.Weights) -> terms.GateCorridor | None:
        """Return the soft constraint, or None."""
        return None

    def progress_after(self, s: Stage, dt: float) -> list[ca.SX]:
        """Return the states beyond the vehicle's, dt (s) later."""
        return []

    def progress_input_limits(self, pace_change_max: float) -> list[float]:
        """Return the largest magnitudes of the inputs beyond the vehicle's."""
        return []

    def initial(self, ahead: Array, progress: PlanProgress) -> Array:
        """Return the initial state (x.size,) from the vehicle's predicted state (14,)."""
        return ahead

    def first_guess(self, rows: Array) -> tuple[Array, Array]:
        """Return the initial guess, x (N + 1, x.size) and u (N, u.size), from the reference (N + 1, NR)."""
        x, u = np.zeros((len(rows), self.x.size)), np.zeros((len(rows) - 1, self.u.size))
        x[:, : V.stop], x[:, W], x[:, C] = rows[:, : V.stop], rows[:, U_W], rows[:, U_C]
        u[:, :NU] = rows[:-1, U_W.start : U_C.stop]
        return x, u

    @abstractmethod
    def stages(self, progress: PlanProgress, times: Array, last: Array | None) -> Array:
        """Return the plan times (N + 1,), s, of the stages, which lie `times` (N + 1,), s, ahead.

        Args:
            last: (N + 1, x.size), the last solution; None for a cold start.
        """

    @abstractmethod
    def drive(self, progress: PlanProgress, solution: Solution, row: Array, v_w: Array, dt: float) -> None:
        """Update the pace over dt, s, from a solution, the plan's row (NR,) at the present progress and the velocity v_w (3,)."""


def _input_costs(w: terms.Weights) -> tuple[terms.Cost, ...]:
    """Return the costs of inputs and visibility, which both formulations share."""
    return (
        terms.Rates(w.rates),
        terms.Thrust(w.thrust),
        terms.RateTracking(w.rate_tracking),
        terms.GateVisibility(w.gate_visibility),
    )


class Tracking(Formulation):
    """Tracking of the plan's states, at a pace that follows the vehicle's."""

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

    def drive(self, progress: PlanProgress, solution: Solution, row: Array, v_w: Array, dt: float) -> None:
        progress.keep(row[V_R], v_w, dt)


class Contouring(Formulation):
    """Contouring control along the plan's line, at a pace chosen by the solver."""

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

    def drive(self, progress: PlanProgress, solution: Solution, row: Array, v_w: Array, dt: float) -> None:
        progress.drive(float(solution.x[0, NX + 1] + dt * solution.u[0, NU]))


FORMULATIONS: dict[str, Formulation] = {one.name: one for one in (Contouring(), Tracking())}
