"""Solids that a path keeps clear of, and the free space between them.

Between gates the outline of every frame is solid, its opening included, so that a gate can neither be touched, nor passed out
of turn, nor entered from behind. On the short way through a gate the path stays within the opening's prism instead, which is
convex. The margin is measured from the opening's edge in the gate's plane: the frame's depth may take up the margin, but never
the contact radius.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.solids import SolidBox, of_obstacle, stand
from gate_racer.vehicle.rotation import Array

# Clearance between body and bounds in units of the margin. Gates are measured by the camera, bounds are not. With 1.0, 4 of the 7
# flights lost in 80 unknown worlds hit the floor at the bottom of a dive.
FROM_BOUND = 2.5
TO_GATE = 0.5  # -, largest clearance to a bound as a fraction of its distance to the nearest gate's centre
ROUND_M = 0.02  # m, smoothing length of |x| and max(x, 0) in the constraints


class Solid(NamedTuple):
    """Box that the path keeps clear of; for a frame its outline, opening included."""

    box: SolidBox
    frame: int  # index of the frame's gate in the track; -1 for other solids
    name: str
    keep_m: float  # m, clearance of the vehicle's centre


@dataclass(frozen=True, eq=False)
class FreeSpace:
    """Free space of the vehicle's centre: a box of the world without the inflated solids."""

    low: Array  # (3,) m, world NED
    high: Array  # (3,) m, world NED
    solids: tuple[Solid, ...]
    keep_m: float  # m, default clearance to a solid

    @staticmethod
    def of(task: Task) -> "FreeSpace":
        """Return the free space of a task."""
        return FreeSpace(*_box(task), tuple(_solids(task)), task.keep_m)

    def near(self, p_w: Array, reach_m: float) -> list[Solid]:
        """Return the solids whose clearance may reach into the ball of radius reach_m around p_w (3,)."""
        centres, radii = self._spheres
        close = np.linalg.norm(centres - p_w, axis=1) < radii + reach_m
        return [self.solids[i] for i in np.flatnonzero(close)]

    @cached_property
    def _spheres(self) -> tuple[Array, Array]:
        """Centres (K, 3) and radii (K,), m, of spheres around the inflated solids."""
        radii = np.array([np.linalg.norm(solid.box.half) + solid.keep_m for solid in self.solids])
        return np.reshape([solid.box.centre for solid in self.solids], (-1, 3)), radii

    def holds(self, points: Array, solids: list[Solid]) -> np.ndarray:
        """Return for each point (M, 3), (M,), whether it lies in the box and clear of these solids."""
        clear = np.asarray(((points >= self.low) & (points <= self.high)).all(axis=1))
        for solid in solids:
            clear &= solid.box.distance(points) >= solid.keep_m
        return clear


def _solids(task: Task) -> list[Solid]:
    """Return all solids of a task's track."""
    track = task.track
    found = [(of_obstacle(one), -1, f"obstacles[{i}]") for i, one in enumerate(track.obstacles)]
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if not gate.has_frame:
            continue
        half = np.array([edge_half_m(gate, task.options.margin_m), gate.outer_m / 2, gate.outer_m / 2])
        found.append((SolidBox(gate.p_wg, gate.R_wg, half), i, f"the frame of gates[{i}]"))
        if (post := stand(track, i)) is not None:
            found.append((post, -1, f"the stand of gates[{i}]"))
    return [Solid(box, frame, name, task.clear_m(name)) for box, frame, name in found]


def edge_half_m(gate: Gate, margin_m: float) -> float:
    """Return the half length, m, of an opening's edges: a frame's half depth beyond the margin; a tunnel's whole half length."""
    return max(gate.depth_m / 2 - margin_m, gate.tunnel_m / 2, 0.0)


def _box(task: Task) -> tuple[Array, Array]:
    """Return lower and upper bounds (3,), m, of the vehicle's centre.

    The clearance to a bound is larger than to an opening's edge, unless a gate leaves less room; see `FROM_BOUND`.
    """
    low, high = np.array(task.track.bounds.low_m), np.array(task.track.bounds.high_m)
    if not task.options.bounds_clear:
        return low, high
    gates = np.array([gate.p_wg for gate in task.track.gates])
    radius, most = task.vehicle.contact_radius_m, FROM_BOUND * task.options.margin_m

    def kept(to_gates: Array) -> Array:
        """Return the clearances (3,), m, to bounds whose distances to the gates are (G, 3)."""
        return radius + np.clip(TO_GATE * (to_gates.min(axis=0) - radius), 0.0, most)

    return low + kept(gates - low), high - kept(high - gates)
