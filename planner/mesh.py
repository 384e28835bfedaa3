"""Meshes: per leg, the lengths of its intervals as fractions of its duration; and candidate solutions on a mesh."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.planner.course import Course
from gate_racer.planner.models import NODE_S
from gate_racer.vehicle.rotation import Array

NODES_LEAST = 8  # least number of intervals from one gate to the next
SLOT_LEAST = 4  # least number of intervals before, and behind, the plane of a slot
EDGE_S = 1e-3  # s, least distance of an end of the visibility window from a leg's ends to insert a node

Mesh = list[Array]


def intervals(mesh: Mesh, durations: Array) -> Array:
    """Return the lengths (N,), s, of the intervals of legs with durations (L,), s."""
    return np.concatenate([fractions * T for fractions, T in zip(mesh, durations, strict=True)])


def leg_numbers(mesh: Mesh) -> np.ndarray:
    """Return the leg (N,) of each interval."""
    return np.repeat(np.arange(len(mesh)), [len(fractions) for fractions in mesh])


def first_mesh(course: Course, durations: Array, paths: list[Array]) -> Mesh:
    """Return even intervals, with nodes at the ends of visibility windows, by guessed durations (L,), s, and paths (3, M) m."""
    mesh = []
    for parts in course.sections:
        ends = np.cumsum(durations[parts])
        spacing = min(NODE_S, ends[-1] / NODES_LEAST)
        edges = np.zeros(0)
        if course.looks(parts):
            begins = ends - durations[parts]
            times = [np.linspace(a, b, paths[i].shape[1]) for i, a, b in zip(parts, begins, ends, strict=True)]
            near = course.in_range(parts, np.concatenate(times), np.hstack([paths[i] for i in parts]).T)
            edges = np.array(course.view_window(parts, near, ends[-1]))
        for i, T, begin in zip(parts, durations[parts], ends - durations[parts], strict=True):
            cuts = (edges[(edges > begin + EDGE_S) & (edges < begin + T - EDGE_S)] - begin) / T
            shares = np.concatenate([[0.0], cuts, [1.0]])
            least = SLOT_LEAST if course.legs[i].in_slot else 1
            counts = np.maximum(np.diff(np.round(shares * np.ceil(T / spacing))), least).astype(int)
            mesh.append(np.repeat(np.diff(shares) / counts, counts))
    return mesh


@dataclass(frozen=True)
class Duals:
    """Multipliers of a solution: of the dynamics (costates), of the bounds, and of mesh-independent terms."""

    costate: Array  # (NX, N)
    x: Array  # (NX, N)
    u: Array  # (NU, N)
    durations: Array  # (L,)
    mesh_free: list[Array]  # per leg

    def stretch(self, nodes: slice, legs: slice) -> "Duals":
        costate, x, u = (one[:, nodes] for one in (self.costate, self.x, self.u))
        return Duals(costate, x, u, self.durations[legs], self.mesh_free[legs])

    @staticmethod
    def joined(parts: Sequence["Duals"]) -> "Duals":
        columns = zip(*((one.costate, one.x, one.u, one.durations) for one in parts), strict=True)
        costate, x, u, durations = map(np.hstack, columns)
        return Duals(costate, x, u, durations, [row for one in parts for row in one.mesh_free])


@dataclass(frozen=True)
class Point:
    """Candidate solution on a mesh, with multipliers if known."""

    x: Array  # (NX, N + 1) states at the nodes
    u: Array  # (NU, N) inputs
    durations: Array  # (L,) s, of the legs
    duals: Duals | None = None

    def stretch(self, mesh: Mesh, legs: slice) -> "Point":
        first, end, _ = legs.indices(len(mesh))
        a, b = (sum(map(len, mesh[:leg])) for leg in (first, end))
        duals = self.duals.stretch(slice(a, b), legs) if self.duals is not None else None
        return Point(self.x[:, a : b + 1], self.u[:, a:b], self.durations[legs], duals)

    @staticmethod
    def joined(points: Sequence["Point"]) -> "Point":
        x = np.column_stack([points[0].x[:, 0], *(point.x[:, 1:] for point in points)])
        u, durations = np.hstack([point.u for point in points]), np.hstack([point.durations for point in points])
        known = [point.duals for point in points if point.duals is not None]
        return Point(x, u, durations, Duals.joined(known) if len(known) == len(points) else None)
