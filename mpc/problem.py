"""The optimal-control problem of a controller: settings, two formulations over one model, and one form for all back-ends.

Tracking (Foehn et al.; Sun et al., T-RO 2022, eq. 14-19): all states of the plan, sampled by progress along it, are tracked.

    minimise  sum_k |p - p_r|^2 + |2 vec(q_r^-1 q)|^2 + |v - v_r|^2 + |u - u_r|^2, weighted

Contouring (MPCC; Romero et al., T-RO 2022; MPCC++, RSS 2024): progress along the plan is a state that the solver drives.

    minimise  sum_k |e_contour|^2 + |e_lag|^2 + |pace_max - pace|^2 + |u - u_r|^2, weighted,
    with each gate's opening as a soft constraint, and a terminal cost on the deviation from the plan's state.

References and model parameters are stage parameters, so that one generated solver serves every vehicle, plan and set of weights.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

import casadi as ca
import numpy as np

from gate_racer.common.config import load
from gate_racer.common.errors import meant
from gate_racer.common.settings import Limited, limited
from gate_racer.mpc import terms
from gate_racer.mpc.model import step, unpack
from gate_racer.mpc.names import CONTOURING, CONTROLLERS, TRACKING
from gate_racer.mpc.reference import PlanProgress
from gate_racer.mpc.terms import NP, NR, REFERENCE, Residual, Stage, SymbolBlocks, Weights
from gate_racer.vehicle.dynamics import RATES_U, RATES_X, Layout, layout
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle


@dataclass(frozen=True)
class Solution:
    """One solution: states and inputs along the horizon, and the solver's status."""

    x: Array  # (N + 1, NX)
    u: Array  # (N, NU)
    status: int  # 0 for success
    solve_s: float  # s, time of the feedback phase, from the state to the solution
    fault: str = ""  # why there is none, where a status does not say so


class Solver(Protocol):
    """Real-time-iteration back-end of a `Problem`."""

    def start(self, x: Array, u: Array) -> None:
        """Set the initial guess: states x (N + 1, NX) and inputs u (N, NU)."""

    def prepare(self, parameters: Array) -> None:
        """Linearise the problem with stage parameters (N + 1, NP), before the state is known."""

    def solve(self, x0: Array) -> Solution:
        """Solve for the state x0 (NX,); failures are reported in the status."""


NX, NU = RATES_X.size, RATES_U.size
V_R, U_W, U_C = (REFERENCE[name].at for name in ("v", "u_w", "u_c"))
THETA, PACE = (REFERENCE[name].at.start for name in ("theta", "pace"))
V, W, C = (RATES_X[name].at for name in "vwc")


class Tracking:
    """Tracking of the plan's states, at a pace that follows the vehicle's."""

    name: ClassVar[str] = TRACKING
    x: ClassVar[Layout] = RATES_X
    u: ClassVar[Layout] = RATES_U
    in_corridor: ClassVar[bool] = False  # whether the opening of a gate is a soft constraint

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

    def stages(self, progress: PlanProgress, times: Array, last: Array | None) -> Array:
        """Return the plan times (N + 1,), s, of stages `times` (N + 1,), s, ahead; `last`: the last solution (N + 1, x.size)."""
        return progress.theta + progress.pace * times

    def drive(self, progress: PlanProgress, solution: Solution, row: Array, v_w: Array, dt: float) -> None:
        """Update the pace over dt, s, from a solution, the plan's row (NR,) at the present progress and the velocity v_w (3,)."""
        progress.keep(row[V_R], v_w, dt)


class Contouring(Tracking):
    """Contouring control along the plan's line, at a pace chosen by the solver: progress and pace are states."""

    name = CONTOURING
    x = layout(RATES_X, theta=("", "s", "progress"), pace=("", "-", "d(progress)/dt"))
    u = layout(RATES_U, u_pace=("", "1/s", "d(pace)/dt"))
    in_corridor = True

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
            return super().stages(progress, times, last)
        theta = last[:, NX]
        return progress.theta + theta - theta[0]

    def drive(self, progress: PlanProgress, solution: Solution, row: Array, v_w: Array, dt: float) -> None:
        progress.drive(float(solution.x[0, NX + 1] + dt * solution.u[0, NU]))


FORMULATIONS: dict[str, Tracking] = {one.name: one for one in (Contouring(), Tracking())}


FOLDER = Path(__file__).parent
SHARE_DIGITS = 3  # of a plan's share of thrust: optima exceed their bounds by rounding


@dataclass(frozen=True)
class Horizon(Limited):
    steps: int = limited(least=2)  # number of intervals N
    step_s: float = limited(positive=True)  # s


@dataclass(frozen=True)
class Settings(Limited):
    """Contents of `mpc/<controller>.yaml`."""

    controller: str = limited(choices=CONTROLLERS)
    horizon: Horizon = limited()
    weights: Weights = limited()
    pace_max: float = limited(least=1.0)  # -, largest d(progress)/dt, 1 as planned
    pace_change_max: float = limited(positive=True)  # 1/s, largest rate of change of the pace
    # -, largest commanded thrust over the vehicle's; the same margin is kept above zero
    thrust_share: float = limited(positive=True, most=1.0)
    thrust_share_max: float = limited(positive=True, most=1.0)  # -, likewise for plans that use more
    # -, fraction of that thrust available for the plan's line; the rest is for feedback
    headroom: float = limited(positive=True, most=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        w = self.weights
        if self.controller == TRACKING and any((w.contour, w.lag, w.progress, w.pace_rate)):
            raise ValueError(f"contour, lag, progress and pace_rate are weights of {CONTOURING}")

    def granting(self, share: float) -> "Settings":
        """Return the settings for a plan that uses this share of the vehicle's thrust."""
        share = min(round(share, SHARE_DIGITS), self.thrust_share_max)
        return replace(self, thrust_share=max(self.thrust_share, share))


def load_settings(controller: str = "tracking") -> Settings:
    """Load a controller's settings, by name or from a YAML file. Raises UserError for an unknown or malformed one."""
    if Path(controller).suffix:
        return load(controller, Settings)
    named = meant(controller, CONTROLLERS, "controller", "the path of a YAML file")
    return load(FOLDER / f"{named}.yaml", Settings)


@dataclass(frozen=True)
class Symbols:
    """The problem as CasADi expressions."""

    x: ca.SX
    u: ca.SX
    p: ca.SX
    after: ca.SX  # successor of x, one step of the horizon later
    y: ca.SX  # stage residual,
    w: Array  # ... and the diagonal of its weights
    y_end: ca.SX  # terminal residual,
    w_end: Array  # ... and the diagonal of its weights
    h: ca.SX  # soft constraints, -1 <= h <= 1, at every stage


@dataclass(frozen=True)
class Problem:
    """Optimal-control problem of a formulation with its settings."""

    settings: Settings

    def __reduce__(self) -> tuple[type["Problem"], tuple[Settings]]:
        """Pickle the settings alone: symbols belong to their process."""
        return Problem, (self.settings,)

    @property
    def formulation(self) -> Tracking:
        return FORMULATIONS[self.settings.controller]

    @cached_property
    def symbols(self) -> Symbols:
        """Model, residuals and constraints as expressions in state, input and stage parameters."""
        form, dt = self.formulation, self.settings.horizon.step_s
        x, u, p = ca.SX.sym("x", form.x.size), ca.SX.sym("u", form.u.size), ca.SX.sym("p", NP)
        stage = Stage(_blocks(form.x, x), _blocks(form.u, u), _blocks(REFERENCE, p), unpack(p[NR:]))
        after = step(ca.vertsplit(x)[: RATES_X.size], ca.vertsplit(u), stage.model, dt)
        after += form.progress_after(stage, dt)
        h = terms.gate_corridor(stage) if form.in_corridor else ca.SX(0, 1)
        costs = terms.costs(self.settings.weights)
        y, w = _stacked(stage, [(residual, weight) for residual, weight, _ in costs])
        y_end, w_end = _stacked(stage, [(residual, weight) for residual, _, weight in costs])
        return Symbols(x, u, p, ca.vertcat(*after), y, w, y_end, w_end, h)

    def input_limits(self, vehicle: Vehicle) -> tuple[Array, Array]:
        """Return the bounds (u.size,) of the inputs; thrust keeps a margin to both limits, where rotors give no torque."""
        rate, share = np.array(vehicle.rate_max_rad_s), self.settings.thrust_share
        least, most = max(vehicle.thrust_min, (1 - share) * vehicle.thrust_max), share * vehicle.thrust_max
        pace = self.formulation.progress_input_limits(self.settings.pace_change_max)
        return np.array([*-rate, least, *np.negative(pace)]), np.array([*rate, most, *pace])


def _blocks(names: Layout, z: ca.SX) -> SymbolBlocks:
    return {name: z[field.at] for name, field in names.items()}


def _stacked(stage: Stage, costs: list[tuple[Residual, float]]) -> tuple[ca.SX, Array]:
    """Return the residuals with a weight, and the diagonal of their weights."""
    weighted = [(residual(stage), weight) for residual, weight in costs if weight]
    return ca.vertcat(*(y for y, _ in weighted)), np.concatenate([np.full(y.numel(), w) for y, w in weighted])
