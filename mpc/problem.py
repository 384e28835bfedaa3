"""The two optimal-control problems over one model, stated once for every back-end: state, cost, constraints, limits.

Tracking (Foehn et al.; Sun et al., T-RO 2022, eq. 14-19): the plan, sampled by progress along it, is followed in all its states.

    minimise  sum_k |p - p_r|^2 + |2 vec(q_r^-1 q)|^2 + |v - v_r|^2 + |u - u_r|^2, weighted

Contouring (MPCC; Romero et al., T-RO 2022; MPCC++, RSS 2024): progress along the plan is a state that the solver drives.

    minimise  sum_k |e_contour|^2 + |e_lag|^2 + |pace_max - pace|^2 + |u - u_r|^2, weighted,
    softly within each gate's opening; at the end of the horizon near the plan's own state.

References and model parameters enter as stage parameters: one generated solver serves every vehicle, plan and set of weights.
"""

from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

import casadi as ca
import numpy as np

from mpc import terms
from mpc.model import PARAMETERS, step, unpack
from vehicle.config import load
from vehicle.dynamics import RATES_U, RATES_X
from vehicle.errors import UserError
from vehicle.layout import Layout, layout
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

FOLDER = Path(__file__).parent
CONTROLLERS = ("mpcc", "tracking")
REFERENCE = layout(
    p=("x y z", "m", "plan, world NED"),
    q=("w x y z", "-", "plan, body to world"),
    v=("x y z", "m/s", "plan, world NED"),
    u_w=("x y z", "rad/s", "plan, body rates"),
    u_c=("", "m/s^2", "plan, thrust"),
    a=("x y z", "m/s^2", "plan, world NED"),
    theta=("", "s", "progress, in plan time"),
    pace=("", "-", "d(progress)/dt"),
    target_pace=("", "-", "the pace to strive for"),
    look=("x y z", "m", "centre of the next gate, world NED"),
    gate=("x y z", "m", "centre of the opening that binds, world NED"),
    across=("x y z", "1/m", "its horizontal axis over the half width left for the vehicle's centre"),
    down=("x y z", "1/m", "its vertical axis over the same"),
)
NR, NP = REFERENCE.size, REFERENCE.size + PARAMETERS.size
PROGRESS_X = layout(theta=("", "s", "progress"), pace=("", "-", "d(progress)/dt"))
PROGRESS_U = layout(u_pace=("", "1/s", "d(pace)/dt"))


@dataclass(frozen=True)
class Horizon:
    steps: int
    step_s: float

    def __post_init__(self) -> None:
        if self.steps < 2 or self.step_s <= 0:
            raise ValueError("steps must be at least 2, step_s positive")


@dataclass(frozen=True)
class Weights:
    """Each multiplies a squared error; see `mpc.terms`. Zero leaves the term out."""

    rates: float  # 1/(rad/s)^2, of the input
    thrust: float  # 1/(m/s^2)^2, of the input
    attitude: float  # 1/rad^2
    gate_visibility: float  # -, of a sine
    rate_tracking: float = 0.0  # 1/(rad/s)^2, of the input beyond the rates flown
    position: float = 0.0  # 1/m^2
    velocity: float = 0.0  # 1/(m/s)^2
    contour: float = 0.0  # 1/m^2
    lag: float = 0.0  # 1/m^2
    progress: float = 0.0  # -
    pace_rate: float = 0.0  # s^2
    end_velocity: float = 0.0  # 1/(m/s)^2, at the end of the horizon only
    gate_corridor: float = 0.0  # -, of the violation in half widths
    gate_corridor_price: float = 0.0  # -

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ValueError("weights must not be negative")


@dataclass(frozen=True)
class Settings:
    """The file `mpc/<controller>.yaml`."""

    controller: str
    horizon: Horizon
    weights: Weights
    pace_max: float  # -, of progress against the plan's
    pace_change_max: float  # 1/s
    thrust_share: float  # -, of the greatest thrust, may be commanded; the rest, above and below, turns the vehicle
    headroom: float  # -, of that thrust is for the plan's line, the rest for what comes between

    def __post_init__(self) -> None:
        if self.controller not in CONTROLLERS:
            raise ValueError(f"controller must be one of {', '.join(CONTROLLERS)}")
        if self.pace_max < 1 or self.pace_change_max <= 0:
            raise ValueError("pace_max must be at least 1, pace_change_max positive")
        if not (0 < self.thrust_share <= 1 and 0 < self.headroom <= 1):
            raise ValueError("thrust_share and headroom must lie in (0, 1]")


def load_settings(controller: str = "tracking") -> Settings:
    """Settings of a controller by name, or from a YAML file.

    Raises:
        UserError: unknown controller, or a missing or malformed file.
    """
    if controller in CONTROLLERS:
        return load(FOLDER / f"{controller}.yaml", Settings)
    if not Path(controller).suffix:
        raise UserError(f"no controller {controller!r}; known: {', '.join(CONTROLLERS)}")
    return load(controller, Settings)


@dataclass(frozen=True)
class Symbols:
    """The problem as CasADi expressions."""

    x: ca.SX
    u: ca.SX
    p: ca.SX
    after: ca.SX  # x one step of the horizon later
    y: ca.SX  # stage residual
    y_end: ca.SX  # terminal residual
    h: ca.SX  # soft constraints, -1 <= h <= 1, at every stage


@dataclass(frozen=True)
class Problem:
    """Layouts and terms of one formulation."""

    settings: Settings

    @property
    def name(self) -> str:
        return self.settings.controller

    @property
    def contouring(self) -> bool:
        return self.name == "mpcc"

    @cached_property
    def x(self) -> Layout:
        return joined(RATES_X, PROGRESS_X) if self.contouring else RATES_X

    @cached_property
    def u(self) -> Layout:
        return joined(RATES_U, PROGRESS_U) if self.contouring else RATES_U

    @cached_property
    def costs(self) -> tuple[terms.Cost, ...]:
        w = self.settings.weights
        inputs = (
            terms.Rates(w.rates),
            terms.Thrust(w.thrust),
            terms.RateTracking(w.rate_tracking),
            terms.GateVisibility(w.gate_visibility),
        )
        if self.contouring:
            return (
                terms.Contour(w.contour),
                terms.Lag(w.lag),
                terms.Progress(w.progress),
                terms.Attitude(w.attitude),
                terms.Velocity(w.velocity),
                terms.PaceRate(w.pace_rate),
                *inputs,
            )
        return (terms.Position(w.position), terms.Attitude(w.attitude), terms.Velocity(w.velocity), *inputs)

    @cached_property
    def gate_corridor(self) -> terms.GateCorridor | None:
        w = self.settings.weights
        return terms.GateCorridor(w.gate_corridor, w.gate_corridor_price) if self.contouring else None

    @cached_property
    def _vectors(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        """State, input and stage parameters."""
        return ca.SX.sym("x", self.x.size), ca.SX.sym("u", self.u.size), ca.SX.sym("p", NP)

    @cached_property
    def _stage(self) -> terms.Stage:
        x, u, p = self._vectors
        return terms.Stage(_blocks(self.x, x), _blocks(self.u, u), _blocks(REFERENCE, p), unpack(p[NR:]))

    @cached_property
    def symbols(self) -> Symbols:
        """Model, residuals and constraints as functions of state, input and stage parameters."""
        (x, u, p), stage = self._vectors, self._stage
        dt = self.settings.horizon.step_s
        after = step(ca.vertsplit(x)[: RATES_X.size], ca.vertsplit(u), stage.model, dt)
        if self.contouring:
            theta, pace, pace_rate = stage.x["theta"], stage.x["pace"], stage.u["u_pace"]
            after += [theta + dt * pace + dt**2 / 2 * pace_rate, pace + dt * pace_rate]
        y, y_end = (ca.vertcat(*(term.residual(stage) for term, _ in weighted)) for weighted in self._weighted)
        h = self.gate_corridor.value(stage) if self.gate_corridor else ca.SX(0, 1)
        return Symbols(x, u, p, ca.vertcat(*after), y, y_end, h)

    @cached_property
    def _weighted(self) -> tuple[list[tuple[terms.Cost, float]], list[tuple[terms.Cost, float]]]:
        """Terms of the stages and of the end with their weights, those of weight zero left out.

        At the end the plan's own velocity is the set from which the rest of the race can be flown.
        """
        end = self.settings.weights.end_velocity
        stage = [(term, term.weight) for term in self.costs]
        last = [(term, max(end, w) if isinstance(term, terms.Velocity) else w) for term, w in stage if term.at_end]
        return [pair for pair in stage if pair[1]], [pair for pair in last if pair[1]]

    @cached_property
    def weights(self) -> tuple[Array, Array]:
        """Diagonals of the stage's and the terminal weight."""
        stage, end = (
            np.concatenate([np.full(term.residual(self._stage).numel(), weight) for term, weight in weighted])
            for weighted in self._weighted
        )
        return stage, end

    def input_limits(self, vehicle: Vehicle) -> tuple[Array, Array]:
        """Lower and upper bounds of the inputs.

        Neither the whole thrust nor none: rotors at their limits cannot turn the vehicle, so its rate loop would take thrust or
        add it instead.
        """
        rate, share = np.array(vehicle.rate_max_rad_s), self.settings.thrust_share
        least, most = max(vehicle.thrust_min, (1 - share) * vehicle.thrust_max), share * vehicle.thrust_max
        pace = [self.settings.pace_change_max] if self.contouring else []
        return np.array([*-rate, least, *np.negative(pace)]), np.array([*rate, most, *pace])


def _blocks(names: Layout, z: ca.SX) -> terms.Blocks:
    return {name: z[field.at] for name, field in names.items()}


def joined(first: Layout, second: Layout) -> Layout:
    """One layout after the other."""
    every = {**first, **second}
    fields = {name: (" ".join(_suffixes(name, f.columns)), f.unit, f.frame) for name, f in every.items()}
    return layout(**fields)


def _suffixes(name: str, columns: tuple[str, ...]) -> list[str]:
    return [column.removeprefix(name + "_") for column in columns if column != name]
