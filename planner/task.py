"""Options of a plan, and its task, shared by optimiser and certificate: the gates in order, the start, and the clearances."""

from dataclasses import dataclass
from functools import cached_property
from math import inf, radians

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.settings import key, require_allowed
from gate_racer.planner.models import MODELS, Model
from gate_racer.tracks.gate import TIGHT_M, Gate, is_tight
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Vector, from_euler
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import Vehicle

# Range of the risk: normal tails are not meaningful below the least; above the most, margins give no assurance (chosen).
RISK_LEAST, RISK_MOST = 1e-6, 0.2
# CPU time in s, ten times that of hard courses (a gate 1 km away 5 s, a figure of eight of six gates 10 s), for slower machines.
LIMIT_S, LIMIT_PER_GATE_S = 60.0, 15.0
# Margin unless given, m, or the share of an opening's room if that is less. With 0.15 m, 4 of 60 flights of VQ2 in unknown worlds
# were lost, with 0.25 m 1 of 230; with 0.25 m in openings only, 2 of 100.
MARGIN_M, ROOM_SHARE = 0.25, 0.6
MOST_VIEW = 0.8  # -, largest share of view: on the last of a leg the gate leaves the image


@dataclass(frozen=True)
class Initial:
    """Initial state of a plan and number of the first gate: the schema of `start`. World NED, body FRD."""

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


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan.

    `reserve` is the fraction of thrust and body rates that the plan may use, the rest is for the controller; `margin_m` is the
    distance between contact radius and each opening's edge, `MARGIN_M` unless given; the next gate's centre is in view over the
    fraction `see` of a leg, and at least `sight_s`, which may begin on the leg before.

    Examples:
        >>> from gate_racer import PlanOptions
        >>> options = PlanOptions(reserve=0.6)
        >>> options.laps, options.see
        (1, 0.2)
    """

    model: str = key("rates", "flight model", choices=tuple(MODELS))
    laps: int = key(1, "number of laps", "N")
    reserve: float = key(0.9, "share of the thrust and body rates that the plan may use", "SHARE", least=0.2, most=1.0)
    speed_m_s: float | None = key(None, "speed limit besides the vehicle's, m/s", positive=True)
    margin_m: float | None = key(
        None, f"least distance between body and frames, m; else {MARGIN_M:g}, less in small openings", "M",
        least=0.0, most=0.99,
    )  # fmt: skip
    see: float = key(0.2, "least share of each leg with the next gate in view", "SHARE", least=0.0, most=MOST_VIEW)
    # -, shares replacing `see` per gate of the flight, derived from the risk that they buy.
    see_by_gate: tuple[float, ...] | None = None
    sight_s: float = key(0.0, "least time for which each gate is in view before it is passed, s", least=0.0, most=2.0)
    see_corners: bool = key(False, "keep all four corners of the gate in view, not only its centre")
    bounds_clear: bool = True  # whether the body, not only its centre, stays inside the track's bounds
    flying_lap: bool = key(False, "plan the fastest periodic lap, from the last gate to itself")
    risk: float | None = key(
        None, "highest probability of any contact; sets the margin at each gate unless one is given", "P",
        least=RISK_LEAST, most=RISK_MOST,
    )  # fmt: skip
    # m, margins replacing `margin_m` per gate of the flight and edge of its opening (`Gate.edges`), derived from a risk.
    edge_margins_m: tuple[tuple[float, ...], ...] | None = None
    solid_margins_m: tuple[tuple[str, float], ...] = ()  # m, likewise per solid, by name
    doubt: Doubt = key(Doubt(), "standard deviations for the risk, see `vehicle/uncertainty.py`")
    start: Initial | None = key(None, "initial state instead of the pad: `position_m`, `velocity_m_s`, `next_gate` ...")
    stop_m: Vector | None = key(None, "final position at rest instead of the track's end, [X, Y, Z] in m")
    fast: bool = key(False, "plan in a tenth of a second, on a coarse mesh, in flight up to 3 % slower")
    limit_s: float | None = key(None, f"CPU time, s; else {LIMIT_S:g}, or {LIMIT_PER_GATE_S:g} per gate", positive=True)
    guesses: int | None = key(None, "initial guesses, solved in parallel; else 2, or 1 on a long course", least=1)

    @property
    def gates_in_view(self) -> bool:
        return max(self.see_by_gate or (self.see,)) > 0 or self.sight_s > 0

    def __post_init__(self) -> None:
        require_allowed(self)
        if self.risk is not None and (self.flying_lap or self.start is not None):
            raise UserError("risk: is evaluated from rest on the pad; leave out start and flying_lap")
        if self.flying_lap and (self.laps != 1 or self.start is not None or self.stop_m is not None):
            raise UserError("flying_lap: leave out start, stop_m and laps, since the lap ends in its initial state")


TURNING = 2.0  # -, largest body rate of a start over the largest commanded rate, for starts after a disturbance
BALL_SHARE = 0.5  # -, largest share of a ball's radius that is margin (chosen)
SLOT_SHARE = 0.5  # -, largest share of the room beside a body that is edge-on in a slot that is margin (chosen)


@dataclass(frozen=True)
class Task:
    """Course, vehicle and options of a plan. Raises UserError for options that do not suit the course."""

    track: Track
    vehicle: Vehicle
    options: PlanOptions

    def __post_init__(self) -> None:
        count = len(self.track.course(self.options.laps))
        name, options = self.track.name, self.options
        if options.flying_lap and not self.track.closed:
            raise UserError(f"{name}: flying_lap needs a closed course")
        if self.end_m is not None:
            self.track.bounds.require(self.end_m, f"{name}: the end")
        if not 0 <= self._first < count:
            raise UserError(f"{name}: next_gate {self._first}: must be a gate from 0 to {count - 1}")
        for option in ("fast", "risk"):
            if getattr(options, option) and any(map(self.is_slot, self.gates)):
                raise UserError(f"{name}: {option}: takes the body for a sphere, which a slot does not let pass")
        views, gates = options.see_by_gate, len(self.gates)
        if views is not None and not (len(views) == gates and all(0 <= see <= MOST_VIEW for see in views)):
            raise UserError(f"{name}: see_by_gate: must be a share from 0 to {MOST_VIEW:g} for each of {gates} gates")
        if options.start is not None:
            self._require_possible(options.start)

    def _require_possible(self, start: Initial) -> None:
        name, vehicle = self.track.name, self.vehicle
        self.track.bounds.require(start.position_m, f"{name}: the start")
        turning = np.abs(start.rates_rad_s) / vehicle.rate_max_rad_s
        for what, value, most in (
            ("speed, in m/s,", float(np.linalg.norm(start.velocity_m_s)), self.model.speed_max),
            ("thrust, in m/s^2,", start.thrust_m_s2, vehicle.thrust_max),
            ("body rate, over the vehicle's greatest,", float(turning.max()), TURNING),
        ):
            if value > most:
                raise UserError(f"{name}: the {what} of the start is {value:g}; {vehicle.name} allows {most:g} at most")

    @property
    def _first(self) -> int:
        return self.options.start.next_gate if self.options.start is not None else 0

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        return self.track.course(self.options.laps)[self._first :]

    def number(self, i: int) -> int:
        """Return the index in the track's list of the i-th gate of the flight."""
        return (self._first + i) % len(self.track.gates)

    @cached_property
    def landmarks(self) -> tuple[int, ...]:
        """Per gate of the flight, the index in the track of the physical gate, which repeated gates share."""
        return tuple(self.track.landmarks[self.number(i)] for i in range(len(self.gates)))

    @cached_property
    def begin(self) -> Initial | None:
        """State at the start of the first leg; None for a flying lap, whose start equals its end."""
        if self.options.flying_lap:
            return None
        pad = self.track.start
        return self.options.start or Initial(pad.position_m, pitch_deg=pad.pitch_deg, yaw_deg=pad.yaw_deg)

    @property
    def end_m(self) -> Vector | None:
        """Position in m, world NED, at which the flight comes to rest; None if it ends in its last gate."""
        return None if self.options.flying_lap else self.options.stop_m or self.track.end_m

    @cached_property
    def model(self) -> Model:
        """Flight model, limited by the reserve. Raises UserError: `rotors` for a vehicle without rotor data."""
        return MODELS[self.options.model](self.vehicle, self.options.reserve, self.options.speed_m_s or inf)

    @cached_property
    def x0(self) -> Array | None:
        """Initial state (NX,) of the plan; None for a flying lap."""
        model, begin = self.model, self.begin
        if begin is None:
            return None
        parts = (begin.position_m, begin.q_wb, begin.velocity_m_s, begin.rates_rad_s)
        p, q, v, w = (np.array(part)[:, None] for part in parts)
        return model.state(p, q, v, w, np.array([begin.thrust_m_s2])).ravel()

    def view_range_m(self, gate: Gate) -> float:
        """Return the range, m, beyond which a gate is too small to detect, so that visibility is not evaluated."""
        return self.vehicle.camera.range_m(2 * gate.half)

    @property
    def limit_s(self) -> float:
        return self.options.limit_s or max(LIMIT_S, LIMIT_PER_GATE_S * len(self.gates))

    @property
    def keep_m(self) -> float:
        """Distance in m from the vehicle's centre to solids."""
        return self.vehicle.radius_m + self.margin_m

    @property
    def margin_m(self) -> float:
        """Distance in m from the body's sphere to solids and, in part, to the bounds."""
        return MARGIN_M if self.options.margin_m is None else self.options.margin_m

    def opening_margin_m(self, gate: Gate) -> float:
        if self.options.margin_m is not None:
            return self.options.margin_m
        return float(np.clip(ROOM_SHARE * (gate.half - self.vehicle.radius_m), TIGHT_M, MARGIN_M))

    def keeps_m(self, i: int) -> Array:
        """Return the distances (E,), m, from the vehicle's centre to each edge of the i-th opening of the flight.

        A ball, which nothing can touch, has one: the margin without the body, to the ball's surface.
        """
        given, gate = self.options.edge_margins_m, self.gates[i]
        if gate.is_ball:
            return np.array([min(self.margin_m, BALL_SHARE * gate.half)])
        if self.is_slot(gate):
            return np.full(len(gate.edges), self.thinnest_m + self.slot_margin_m(gate))
        margins = np.full(len(gate.edges), self.opening_margin_m(gate)) if given is None else np.array(given[i])
        return self.vehicle.radius_m + margins

    def see(self, i: int) -> float:
        """Return the share of the leg to the i-th gate of the flight over which it is in view."""
        return self.options.see if self.options.see_by_gate is None else self.options.see_by_gate[i]

    def is_tight(self, gate: Gate) -> bool:
        least_m = TIGHT_M if self.options.margin_m is None else self.options.margin_m
        return is_tight(gate, self.vehicle.radius_m, least_m)

    def is_slot(self, gate: Gate) -> bool:
        """Whether it is passed tilted: too narrow for that sphere, not for the body's thinnest side."""
        return self.is_tight(gate) and self.thinnest_m < gate.half

    def slot_margin_m(self, gate: Gate) -> float:
        return min(self.margin_m, SLOT_SHARE * (gate.half - self.thinnest_m))

    @property
    def thinnest_m(self) -> float:
        """Half of the body's smallest dimension, m."""
        return min(self.vehicle.body_m) / 2

    def clear_m(self, solid: str) -> float:
        """Return the distance in m from the vehicle's centre to the named solid."""
        return self.vehicle.radius_m + dict(self.options.solid_margins_m).get(solid, self.margin_m)

    @property
    def passage_m(self) -> float:
        """Distance in m before and behind a gate's plane within which the vehicle stays inside the opening's prism."""
        return max(self.vehicle.body_m) + self.margin_m

    @property
    def body_m(self) -> float:
        """Distance in m from the vehicle's centre to the walls of that prism: half of the body's largest dimension."""
        return max(self.vehicle.body_m) / 2
