"""Constraint terms of the time-optimal problem, which holds a list of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.planner.models import C, Model, P, W
from gate_racer.planner.problem.mesh import Mesh, leg_numbers
from gate_racer.planner.problem.nlp import Rows
from gate_racer.vehicle.rotation import Array

SIGNS = tuple(product((-1.0, 1.0), repeat=3))  # sign patterns that express a sum of three magnitudes by linear rows
TURN_S = 0.03  # s, typical length of an interval, which scales these rows


@dataclass(frozen=True)
class Duals:
    """Multipliers of a solution: of the dynamics (costates), of the bounds, and of mesh-independent terms."""

    costate: Array  # (NX, N)
    x: Array  # (NX, N)
    u: Array  # (NU, N)
    durations: Array  # (L,)
    mesh_free: list[Array]  # per leg

    def stretch(self, nodes: slice, legs: slice) -> "Duals":
        """Return the multipliers of a range of nodes and legs."""
        costate, x, u = (one[:, nodes] for one in (self.costate, self.x, self.u))
        return Duals(costate, x, u, self.durations[legs], self.mesh_free[legs])

    @staticmethod
    def joined(parts: Sequence["Duals"]) -> "Duals":
        """Return the multipliers of consecutive stretches, concatenated."""
        return Duals(
            np.hstack([one.costate for one in parts]),
            np.hstack([one.x for one in parts]),
            np.hstack([one.u for one in parts]),
            np.hstack([one.durations for one in parts]),
            [row for one in parts for row in one.mesh_free],
        )


@dataclass(frozen=True)
class Point:
    """Candidate solution on a mesh, with multipliers if known."""

    x: Array  # (NX, N + 1) states at the nodes
    u: Array  # (NU, N) inputs
    durations: Array  # (L,) s, of the legs
    duals: Duals | None = None

    def stretch(self, mesh: Mesh, legs: slice) -> "Point":
        """Return the part of it on these legs."""
        first, end, _ = legs.indices(len(mesh))
        a, b = (sum(map(len, mesh[:leg])) for leg in (first, end))
        duals = self.duals.stretch(slice(a, b), legs) if self.duals is not None else None
        return Point(self.x[:, a : b + 1], self.u[:, a:b], self.durations[legs], duals)

    @staticmethod
    def joined(points: Sequence["Point"]) -> "Point":
        """Concatenate points, each beginning in the final state of the previous one."""
        x = np.column_stack([points[0].x[:, 0], *(point.x[:, 1:] for point in points)])
        u, durations = np.hstack([point.u for point in points]), np.hstack([point.durations for point in points])
        known = [point.duals for point in points if point.duals is not None]
        return Point(x, u, durations, Duals.joined(known) if len(known) == len(points) else None)


@dataclass(frozen=True)
class Nodes:
    """Symbolic trajectory on a mesh of N intervals, and the present iterate, from which active constraints are selected."""

    mesh: Mesh
    durations: Array  # (L,) s, of the present iterate's legs
    path: Array  # (N + 1, 3) m, nodes of the present iterate
    before: Any  # (NX, N) states at the beginning of each interval
    after: Any  # (NX, N) states at the end of each interval
    u: Any  # (NU, N) inputs, constant over each interval
    dt: Any  # (1, N) s, lengths of the intervals
    velocity: slice  # indices of the velocity in a state
    still: Any  # (K, N) expressions at the end of each interval that vanish in hover
    slack: Any = None  # -, tangent by which gates may be out of view, a penalised variable; None for a hard constraint

    @cached_property
    def ends(self) -> tuple[Any, Any, Any, Any]:
        """p, v at the beginnings and p, v at the ends of the intervals, (3, N) each."""
        v = self.velocity
        return self.before[P, :], self.before[v, :], self.after[P, :], self.after[v, :]

    @cached_property
    def motion(self) -> Any:
        """p, v at both ends of the intervals, and their lengths, (13, N)."""
        return ca.vertcat(*self.ends, self.dt)

    @property
    def legs(self) -> np.ndarray:
        """Leg (N,) of each interval."""
        return leg_numbers(self.mesh)

    @property
    def last(self) -> list[int]:
        """Last interval (L,) of each leg."""
        return (np.cumsum([len(fractions) for fractions in self.mesh]) - 1).tolist()


class Term(ABC):
    """Constraint of one kind, on all legs."""

    mesh_free = False  # whether its rows, and so their multipliers, are the same on every mesh

    @abstractmethod
    def rows(self, nodes: Nodes) -> list[Rows]:
        """Return its constraints on a trajectory."""

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return for each interval, (N,), whether a candidate violates it between nodes by more than is tolerated.

        Args:
            path: (S, N, 3) positions, m, on each interval.
        """
        return np.zeros(path.shape[1], dtype=bool)


@dataclass(frozen=True)
class SpeedLimit(Term):
    """Speed limit, if the vehicle has one."""

    model: Model

    def rows(self, nodes: Nodes) -> list[Rows]:
        most, (_, _, _, v) = self.model.speed_max, nodes.ends
        if most == inf:
            return []
        n = v.shape[1]
        return [Rows((ca.sum1(v**2) / most).T, np.zeros(n), np.full(n, most))]


@dataclass(frozen=True)
class ThrustRateLimit(Term):
    """Limit of the rate of thrust, if the vehicle has one besides its lag."""

    model: Model

    def rows(self, nodes: Nodes) -> list[Rows]:
        most = self.model.thrust_rate_max
        if most == inf:
            return []
        dt = ca.repmat(nodes.dt, nodes.u.shape[0], 1)
        rates = ca.vec(self.model.thrust_rates(nodes.before, nodes.u, dt)) / most
        return [Rows(rates, np.full(rates.numel(), -1.0), np.ones(rates.numel()))]


@dataclass(frozen=True)
class TurnLimit(Term):
    """Limit of the angular acceleration by the torque left beside the thrust, if known: see `vehicle.dynamics.authority`."""

    model: Model

    def rows(self, nodes: Nodes) -> list[Rows]:
        if np.isinf(self.model.slew_max).all():
            return []
        turned = (nodes.after[W, :] - nodes.before[W, :]) / self.model.slew_max
        change = ca.DM(SIGNS) @ turned
        room = [self.model.turning(ends[C, :]) * nodes.dt for ends in (nodes.before, nodes.after)]
        return [Rows.not_negative((ca.repmat(one, len(SIGNS), 1) - change) / TURN_S) for one in room]
