"""Traffic of a heat: the other vehicles as of the last tick, their images and their wakes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.link.messages import RivalState
from gate_racer.sim.heat.wake import Rotors, downwash
from gate_racer.sim.physics.contact import body_of
from gate_racer.sim.physics.plant import Q, Truth, V
from gate_racer.vehicle.rotation import Array, Vector, exp, product
from gate_racer.vehicle.vehicle import Vehicle


@dataclass(frozen=True, slots=True)
class Rival:
    """State and size of another vehicle at one time; world NED, body FRD."""

    place: int  # grid place, from 1
    p_wb: Array  # (3,) m
    q_wb: Array  # (4,)
    v_w: Array  # (3,) m/s
    omega_b: Array  # (3,) rad/s
    body_m: Vector  # m: length, width, height
    radius_m: float  # centre to corner

    def at(self, dt: float) -> "Rival":
        """Predict the state dt (s) later at constant velocity and body rates."""
        return replace(self, p_wb=self.p_wb + dt * self.v_w, q_wb=np.array(product(self.q_wb, exp(dt * self.omega_b))))


class Traffic:
    """All vehicles of a heat. Interactions use the states of the last tick, so that the order of stepping has no effect."""

    def __init__(self, vehicles: Sequence[Vehicle], rotors: Sequence[Rotors | None], send_states: bool = False):
        """Set up the vehicles. `rotors`: sources of wake, None for none. `send_states`: send pilots the states of rivals."""
        self.send_states = send_states
        self._sizes = [(vehicle.body_m, body_of(vehicle).radius) for vehicle in vehicles]
        self._rotors = rotors
        self._truths: list[Truth] = []

    def update(self, truths: Sequence[Truth]) -> None:
        """Store the true states of all vehicles, in order, at one time."""
        self._truths = list(truths)

    @property
    def windy(self) -> bool:
        """Whether any wake is simulated."""
        return any(rotors is not None for rotors in self._rotors)

    def around(self, i: int) -> "TrafficView":
        """Return the traffic around vehicle i (from 0)."""
        return TrafficView(self, i)

    def seen(self, i: int, t: float) -> tuple[Rival, ...]:
        """Return the other vehicles at t (s), extrapolated from the last tick."""
        found = []
        for k, truth in enumerate(self._truths):
            if k != i:
                x = truth.x.copy()
                rival = Rival(k + 1, x[:3], x[Q], x[V], x[10:13], *self._sizes[k])
                found.append(rival.at(t - truth.t))
        return tuple(found)

    def air_w(self, i: int, p_w: Array) -> Array:
        """Return the air velocity (3,) m/s, world, at p_w (3,) m that the others' wakes induce."""
        total = np.zeros(3)
        for k, truth in enumerate(self._truths):
            rotors = self._rotors[k]
            if k != i and rotors is not None:
                total += downwash(truth.x, rotors, p_w)
        return total


@dataclass(frozen=True, slots=True)
class TrafficView:
    """Traffic as one vehicle observes it."""

    traffic: Traffic
    i: int

    @property
    def windy(self) -> bool:
        """Whether any wake is simulated."""
        return self.traffic.windy

    def seen(self, t: float) -> tuple[Rival, ...]:
        """Return the other vehicles at t (s)."""
        return self.traffic.seen(self.i, t)

    def rival_states(self, t: float) -> list[RivalState]:
        """Return the messages on the others at t (s); empty unless rivals' states are sent."""
        if not self.traffic.send_states:
            return []
        return [RivalState(t, one.place, _vector(one.p_wb), _vector(one.v_w)) for one in self.seen(t)]

    def air_w(self, p_w: Array) -> Array:
        """Return the air velocity (3,) m/s, world, at p_w (3,) m that the others' wakes induce."""
        return self.traffic.air_w(self.i, p_w)


def _vector(a: Array) -> Vector:
    x, y, z = a.tolist()
    return x, y, z
