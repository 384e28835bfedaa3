"""Task of a plan, shared by optimiser and certificate: the gates in order, the start, and the clearances."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gate_racer.planner.models import MODELS, Model
from gate_racer.planner.options import Initial, PlanOptions
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array, Vector
from gate_racer.vehicle.vehicle import Vehicle

TURNING = 2.0  # -, largest body rate of a start over the largest commanded rate, for starts after a disturbance
# CPU time in s, ten times that of hard courses (a gate 1 km away 5 s, a figure of eight of six gates 10 s), for slower machines.
LIMIT_S, LIMIT_PER_GATE_S = 60.0, 15.0


@dataclass(frozen=True)
class Task:
    """Course, vehicle and options of a plan.

    Raises:
        UserError: the options do not suit the course.
    """

    track: Track
    vehicle: Vehicle
    options: PlanOptions

    def __post_init__(self) -> None:
        count = len(self.track.course(self.options.laps))
        if self.options.flying_lap and not self.track.closed:
            raise UserError(f"{self.track.name}: --flying-lap needs a closed course")
        low, high = self.track.bounds.low_m, self.track.bounds.high_m
        if self.end_m is not None and not np.all((np.array(low) <= self.end_m) & (np.array(self.end_m) <= high)):
            raise UserError(f"{self.track.name}: the end {self.end_m} lies outside the bounds {low} to {high}")
        if not 0 <= self.first < count:
            raise UserError(f"{self.track.name}: next_gate {self.first}: must be a gate from 0 to {count - 1}")
        if self.options.start is not None:
            self._require_possible(self.options.start)

    def _require_possible(self, start: Initial) -> None:
        name, vehicle, bounds = self.track.name, self.vehicle, self.track.bounds
        p, low, high = np.array(start.position_m), np.array(bounds.low_m), np.array(bounds.high_m)
        if np.any((p < low) | (p > high)):
            raise UserError(
                f"{name}: the start {start.position_m} lies outside the bounds {bounds.low_m} to {bounds.high_m}"
            )
        speed, turn = float(np.linalg.norm(start.velocity_m_s)), np.abs(start.rates_rad_s) / vehicle.rate_max_rad_s
        if speed > vehicle.speed_max_m_s:
            raise UserError(
                f"{name}: the speed of the start is {speed:g} m/s,"
                f" {vehicle.name} flies {vehicle.speed_max_m_s:g} m/s at most"
            )
        if turn.max() > TURNING:
            raise UserError(
                f"{name}: the body rates of the start are {turn.max():.3g} times the limits of {vehicle.name}"
            )
        if start.thrust_m_s2 > vehicle.thrust_max:
            raise UserError(
                f"{name}: the thrust of the start is {start.thrust_m_s2:g} m/s^2,"
                f" {vehicle.name} has {vehicle.thrust_max:.1f} m/s^2 at most"
            )

    @property
    def first(self) -> int:
        """Number in the course of the first gate to pass."""
        return self.options.start.next_gate if self.options.start is not None else 0

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        """Gates of the flight, in order."""
        return self.track.course(self.options.laps)[self.first :]

    def number(self, i: int) -> int:
        """Return the index in the track's list of the i-th gate of the flight."""
        return (self.first + i) % len(self.track.gates)

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
        """Flight model, with its limits reduced by the reserve.

        Raises:
            UserError: `rotors` for a vehicle without rotor data.
        """
        return MODELS[self.options.model](self.vehicle, self.options.reserve)

    @cached_property
    def x0(self) -> Array | None:
        """Initial state (NX,) of the plan; None for a flying lap."""
        model = self.model
        if self.begin is None:
            return None
        parts = (self.begin.position_m, self.begin.q_wb, self.begin.velocity_m_s, self.begin.rates_rad_s)
        p, q, v, w = (np.array(part)[:, None] for part in parts)
        return model.state(p, q, v, w, np.array([self.begin.thrust_m_s2])).ravel()

    def view_range_m(self, gate: Gate) -> float:
        """Return the range, m, beyond which a gate is too small to detect, so that visibility is not evaluated."""
        return self.vehicle.camera.range_m(2 * gate.half)

    @property
    def limit_s(self) -> float:
        """CPU time limit of the search, s."""
        return self.options.limit_s or max(LIMIT_S, LIMIT_PER_GATE_S * len(self.gates))

    @property
    def keep_m(self) -> float:
        """Distance in m from the vehicle's centre to the edge of an opening. (A ball constrains the centre itself.)"""
        return self.vehicle.contact_radius_m + self.options.margin_m

    def keeps_m(self, i: int) -> Array:
        """Return the distances (E,), m, from the vehicle's centre to each edge of the i-th opening of the flight."""
        given, gate = self.options.edge_margins_m, self.gates[i]
        if gate.is_ball:
            return np.zeros(0)
        margins = np.full(len(gate.edges), self.options.margin_m) if given is None else np.array(given[i])
        return self.vehicle.contact_radius_m + margins

    def clear_m(self, solid: str) -> float:
        """Return the distance in m from the vehicle's centre to the named solid."""
        margin = dict(self.options.solid_margins_m).get(solid, self.options.margin_m)
        return self.vehicle.contact_radius_m + margin

    @property
    def passage_m(self) -> float:
        """Distance in m before and behind a gate's plane within which the vehicle stays inside the opening's prism."""
        return max(self.vehicle.body_m) + self.options.margin_m

    @property
    def body_m(self) -> float:
        """Distance in m from the vehicle's centre to the walls of that prism: half of the body's largest dimension."""
        return max(self.vehicle.body_m) / 2
