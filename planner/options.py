"""What a user may ask of a plan."""

from dataclasses import dataclass, field
from functools import cached_property
from math import radians

import numpy as np

from planner.models import MODELS
from tracks.gate import Vector
from vehicle.doubt import Doubt
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.rotation import Array, from_euler

RISK_LEAST, RISK_MOST = 1e-6, 0.2  # normal tails say nothing beyond, margins that nobody is sure of are none


@dataclass(frozen=True)
class Initial:
    """A state to plan from, and the gate to fly to first: the schema of the file of `--start`. World NED, body FRD."""

    position_m: Vector
    velocity_m_s: Vector = (0.0, 0.0, 0.0)
    roll_deg: float = 0.0
    pitch_deg: float = 0.0
    yaw_deg: float = 0.0
    rates_rad_s: Vector = (0.0, 0.0, 0.0)
    thrust_m_s2: float = GRAVITY  # at rest the clock starts when the motors just carry the vehicle
    next_gate: int = 0

    @cached_property
    def q_wb(self) -> Array:
        return from_euler(radians(self.roll_deg), radians(self.pitch_deg), radians(self.yaw_deg))

    @property
    def at_rest(self) -> bool:
        return not np.any(self.velocity_m_s)


@dataclass(frozen=True)
class PlanOptions:
    """Settings of `plan-track`.

    `reserve` keeps thrust and body rates for the controller, `margin_m` lies between the contact radius and each opening's
    edge, and the next gate's centre stays in the camera's view over the fraction `see` of each leg.

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
    see_corners: bool = False  # the four corners of the opening too, not only its centre
    bounds_clear: bool = True  # the body, not only its centre, stays inside the track's bounds
    flying_lap: bool = False  # the fastest lap that ends in the state it began with, at the last gate
    risk: float | None = None  # most, of touching a frame or a solid over the whole flight; None: not counted
    # Instead of `margin_m` per gate of the flight and edge of its opening, as `Gate.edges` has them: what a risk came to.
    edge_margins_m: tuple[tuple[float, ...], ...] | None = None
    solid_margins_m: tuple[tuple[str, float], ...] = ()  # likewise of solids, by their names
    doubt: Doubt = field(default_factory=Doubt)  # under which a risk is counted
    start: Initial | None = None  # instead of the track's pad
    stop_m: Vector | None = None  # where to come to rest, instead of the track's own end
    limit_s: float | None = None  # CPU time for the search; None: `Task.limit_s`
    guesses: int | None = None  # first guesses to try, in processes side by side; None: 2, but 1 on a long course

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UserError(f"--model {self.model}: known are {' and '.join(MODELS)}")
        if not 0.2 <= self.reserve <= 1:
            raise UserError(f"--reserve {self.reserve:g}: must lie between 0.2 and 1")
        if not 0 <= self.see <= 0.8:
            raise UserError(f"--see {self.see:g}: must lie between 0 and 0.8")
        if not 0 <= self.margin_m < 1:
            raise UserError(f"--margin {self.margin_m:g}: must lie between 0 and 1 m")
        if self.risk is not None and not RISK_LEAST <= self.risk <= RISK_MOST:
            raise UserError(f"--risk {self.risk:g}: must lie between {RISK_LEAST:g} and {RISK_MOST:g}")
        if self.risk is not None and (self.flying_lap or self.start is not None):
            raise UserError("--risk: is counted from rest on the pad; leave --start and --flying-lap out")
        if self.limit_s is not None and not self.limit_s > 0:
            raise UserError(f"--limit {self.limit_s:g}: must be positive")
        if self.guesses is not None and self.guesses < 1:
            raise UserError(f"--guesses {self.guesses}: at least 1 is needed")
        if self.flying_lap and (self.laps != 1 or self.start is not None or self.stop_m is not None):
            raise UserError("--flying-lap: has no start, stop or further laps, since it ends as it began")
