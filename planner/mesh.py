"""Meshes: per leg, the lengths of its intervals as fractions of its duration."""

import numpy as np

from gate_racer.planner.course import Course
from gate_racer.vehicle.rotation import Array

NODE_S = 0.07  # s, spacing of the first mesh (chosen)
NODES_LEAST = 8  # least number of intervals from one gate to the next
EDGE_S = 1e-3  # s, least distance of an end of the visibility window from a leg's ends to insert a node

Mesh = list[Array]


def intervals(mesh: Mesh, durations: Array) -> Array:
    """Return the lengths (N,), s, of the intervals of legs with durations (L,), s."""
    return np.concatenate([fractions * T for fractions, T in zip(mesh, durations, strict=True)])


def leg_numbers(mesh: Mesh) -> np.ndarray:
    """Return the leg (N,) of each interval."""
    return np.repeat(np.arange(len(mesh)), [len(fractions) for fractions in mesh])


def first_mesh(course: Course, durations: Array, paths: list[Array]) -> Mesh:
    """Return even intervals on legs of guessed durations (L,), s, with a node at each end of the visibility window.

    Args:
        paths: (3, M) positions, m, of each leg at equal time steps.
    """
    mesh = []
    for parts in course.sections:
        ends = np.cumsum(durations[parts])
        spacing = min(NODE_S, ends[-1] / NODES_LEAST)
        edges = np.zeros(0)
        if course.task.options.gates_in_view:
            times = [
                np.linspace(end - durations[i], end, paths[i].shape[1]) for i, end in zip(parts, ends, strict=True)
            ]
            near = course.in_range(parts, np.concatenate(times), np.hstack([paths[i] for i in parts]).T)
            edges = np.array(course.view_window(near, ends[-1]))
        for T, begin in zip(durations[parts], ends - durations[parts], strict=True):
            cuts = (edges[(edges > begin + EDGE_S) & (edges < begin + T - EDGE_S)] - begin) / T
            shares = np.concatenate([[0.0], cuts, [1.0]])
            counts = np.maximum(np.diff(np.round(shares * np.ceil(T / spacing))), 1).astype(int)
            mesh.append(np.repeat(np.diff(shares) / counts, counts))
    return mesh
