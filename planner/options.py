"""Options of a plan."""

from dataclasses import dataclass, field
from functools import cached_property
from math import radians

import numpy as np

from gate_racer.planner.models import MODELS
from gate_racer.vehicle.doubt import Doubt
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array, Vector, from_euler

# Range of the risk: normal tails are not meaningful below the least; above the most, margins give no assurance (chosen).
RISK_LEAST, RISK_MOST = 1e-6, 0.2
SIGHT_MOST_S = 2.0  # s (chosen)


@dataclass(frozen=True)
class Initial:
    """Initial state of a plan and number of the first gate: the schema of the `--start` file. World NED, body FRD."""

    position_m: Vector
    velocity_m_s: Vector = (0.0, 0.0, 0.0)
    roll_deg: float = 0.0
    pitch_deg: float = 0.0
    yaw_deg: float = 0.0
    rates_rad_s: Vector = (0.0, 0.0, 0.0)
    thrust_m_s2: float = GRAVITY  # m/s^2; at rest, time starts at hover thrust
    next_gate: int = 0

    @cached_property
    def q_wb(self) -> Array:
        """Attitude (4,), wxyz, body to world."""
        return from_euler(radians(self.roll_deg), radians(self.pitch_deg), radians(self.yaw_deg))

    @property
    def at_rest(self) -> bool:
        """Whether the velocity is zero."""
        return not np.any(self.velocity_m_s)


@dataclass(frozen=True)
class PlanOptions:
    """Settings of `plan-track`.

    `reserve` is the fraction of thrust and body rates that the plan may use, the rest is for the controller; `margin_m` is the
    distance between contact radius and each opening's edge; the next gate's centre is in view over the fraction `see` of a leg,
    and at least `sight_s`, which may begin on the leg before.

    Examples:
        >>> from gate_racer import PlanOptions
        >>> options = PlanOptions(reserve=0.6)
        >>> options.laps, options.margin_m
        (1, 0.15)
    """

    model: str = "rates"
    laps: int = 1
    reserve: float = 0.9
    margin_m: float = 0.15
    see: float = 0.5
    sight_s: float = 0.0  # s
    see_corners: bool = False  # whether the opening's four corners stay in view, not only its centre
    bounds_clear: bool = True  # whether the body, not only its centre, stays inside the track's bounds
    flying_lap: bool = False  # whether to plan the fastest periodic lap, from the last gate to itself
    risk: float | None = None  # largest probability of a collision over the whole flight; None: not evaluated
    # m, margins replacing `margin_m` per gate of the flight and edge of its opening (`Gate.edges`), derived from a risk.
    edge_margins_m: tuple[tuple[float, ...], ...] | None = None
    solid_margins_m: tuple[tuple[str, float], ...] = ()  # m, likewise per solid, by name
    doubt: Doubt = field(default_factory=Doubt)  # uncertainty model for the risk
    start: Initial | None = None  # initial state instead of the track's pad
    stop_m: Vector | None = None  # m, final position at rest instead of the track's end
    limit_s: float | None = None  # s, CPU time of the search; None: `Task.limit_s`
    guesses: int | None = None  # number of initial guesses, in parallel processes; None: 2, 1 on a long course

    @property
    def gates_in_view(self) -> bool:
        """Whether gates must be in view at all."""
        return self.see > 0 or self.sight_s > 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UserError(f"--model {self.model}: must be {' or '.join(MODELS)}")
        if not 0.2 <= self.reserve <= 1:
            raise UserError(f"--reserve {self.reserve:g}: must lie between 0.2 and 1")
        if not 0 <= self.see <= 0.8:
            raise UserError(f"--see {self.see:g}: must lie between 0 and 0.8")
        if not 0 <= self.sight_s <= SIGHT_MOST_S:
            raise UserError(f"--sight {self.sight_s:g}: must lie between 0 and {SIGHT_MOST_S:g} s")
        if not 0 <= self.margin_m < 1:
            raise UserError(f"--margin {self.margin_m:g}: must lie between 0 and 1 m")
        if self.risk is not None and not RISK_LEAST <= self.risk <= RISK_MOST:
            raise UserError(f"--risk {self.risk:g}: must lie between {RISK_LEAST:g} and {RISK_MOST:g}")
        if self.risk is not None and (self.flying_lap or self.start is not None):
            raise UserError("--risk is evaluated from rest on the pad; leave out --start and --flying-lap")
        if self.limit_s is not None and not self.limit_s > 0:
            raise UserError(f"--limit {self.limit_s:g}: must be positive")
        if self.guesses is not None and self.guesses < 1:
            raise UserError(f"--guesses {self.guesses}: must be at least 1")
        if self.flying_lap and (self.laps != 1 or self.start is not None or self.stop_m is not None):
            raise UserError(
                "--flying-lap: leave out --start, --stop and --laps, since the lap ends in its initial state"
            )
