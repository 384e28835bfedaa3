"""What is around a vehicle in a race of several: the others as they stood at the last tick, seen and felt by it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from link.messages import RivalState
from sim.heat.wake import Rotors, downwash
from sim.physics.contact import body_of
from sim.physics.plant import Q, Truth, V
from vehicle.rotation import Array, exp, product
from vehicle.vehicle import Vector, Vehicle


@dataclass(frozen=True, slots=True)
class Rival:
    """Another vehicle of the race at an instant."""

    place: int  # on the start, from 1
    p_wb: Array  # (3,) m
    q_wb: Array  # (4,)
    v_w: Array  # (3,) m/s
    omega_b: Array  # (3,) rad/s
    body_m: Vector  # length, width, height
    radius_m: float  # around its centre, to a corner

    def at(self, dt: float) -> "Rival":
        """Where it is dt (s) later, at constant velocity and body rates."""
        return replace(self, p_wb=self.p_wb + dt * self.v_w, q_wb=np.array(product(self.q_wb, exp(dt * self.omega_b))))


class Traffic:
    """All vehicles of a race. What each of them feels of the others is that of the last tick, whoever is stepped first."""

    def __init__(self, vehicles: Sequence[Vehicle], rotors: Sequence[Rotors | None], told: bool = False):
        """`rotors` of those whose wake is flown; `told`: whether each is told where the others are."""
        self.told = told
        self._sizes = [(vehicle.body_m, body_of(vehicle).radius) for vehicle in vehicles]
        self._rotors = rotors
        self._truths: list[Truth] = []

    def update(self, truths: Sequence[Truth]) -> None:
        """The state of all of them, in order, at one time."""
        self._truths = list(truths)

    @property
    def windy(self) -> bool:
        """Whether any wake is flown."""
        return any(rotors is not None for rotors in self._rotors)

    def around(self, i: int) -> "Around":
        """What vehicle i has around it."""
        return Around(self, i)

    def seen(self, i: int, t: float) -> tuple[Rival, ...]:
        """The others at t (s), by their motion at the last tick."""
        found = []
        for k, truth in enumerate(self._truths):
            if k != i:
                x = truth.x.copy()
                rival = Rival(k + 1, x[:3], x[Q], x[V], x[10:13], *self._sizes[k])
                found.append(rival.at(t - truth.t))
        return tuple(found)

    def air_w(self, i: int, p_w: Array) -> Array:
        """Velocity (3,) m/s of the air at p_w (3,) that the others' rotors move."""
        total = np.zeros(3)
        for k, truth in enumerate(self._truths):
            rotors = self._rotors[k]
            if k != i and rotors is not None:
                total += downwash(truth.x, rotors, p_w)
        return total


@dataclass(frozen=True, slots=True)
class Around:
    """What one vehicle has around it."""

    traffic: Traffic
    i: int

    @property
    def windy(self) -> bool:
        """Whether the others move any air."""
        return self.traffic.windy

    def seen(self, t: float) -> tuple[Rival, ...]:
        """The others at t (s)."""
        return self.traffic.seen(self.i, t)

    def told(self, t: float) -> list[RivalState]:
        """What is told of the others at t (s), if anything is."""
        if not self.traffic.told:
            return []
        return [RivalState(t, one.place, _vector(one.p_wb), _vector(one.v_w)) for one in self.seen(t)]

    def air_w(self, p_w: Array) -> Array:
        """Velocity (3,) m/s of the air that the others move, at p_w (3,)."""
        return self.traffic.air_w(self.i, p_w)


def _vector(a: Array) -> Vector:
    x, y, z = a.tolist()
    return x, y, z
