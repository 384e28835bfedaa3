"""What a path keeps clear of, and the space that this leaves.

On the way from gate to gate the outline of every frame is solid, its opening included, so a gate can neither be touched, nor
passed out of turn, nor entered from behind. On the short way through a gate the path stays within the opening's prism instead,
which is convex. The margin counts from the opening's edge in the gate's plane: the frame's depth may use the margin up, never
the contact radius.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.task import Task
from tracks.gate import Gate
from tracks.solids import SolidBox, of_obstacle, stand
from vehicle.rotation import Array

# Margins between body and a bound: a gate is seen while it is flown to, a bound is where the map has it. With one, 4 of 7 flights
# lost in 80 unknown worlds met the floor at the bottom of a dive.
FROM_BOUND = 2.5
TO_GATE = 0.5  # of the way from a bound to the nearest gate's centre: no more is kept from that bound
ROUND_M = 0.02  # by which the optimiser rounds |x| and max(x, 0) off


class Solid(NamedTuple):
    """A box that the path keeps clear of. That of a frame is its outline, opening included."""

    box: SolidBox
    frame: int  # the gate's index in the track; -1: no frame
    name: str
    keep_m: float  # from the vehicle's centre to it


@dataclass(frozen=True, eq=False)
class FreeSpace:
    """Where the vehicle's centre may be: inside a box of the world, and clear of every solid, of most by `keep_m`."""

    low: Array  # (3,) m
    high: Array
    solids: tuple[Solid, ...]
    keep_m: float

    @staticmethod
    def of(task: Task) -> "FreeSpace":
        """The whole course's."""
        return FreeSpace(*_box(task), tuple(_solids(task)), task.keep_m)

    def near(self, p_w: Array, reach_m: float) -> list[Solid]:
        """The solids that may be too near to a place as far as that from p_w (3,)."""
        centres, radii = self._spheres
        close = np.linalg.norm(centres - p_w, axis=1) < radii + reach_m
        return [self.solids[i] for i in np.flatnonzero(close)]

    @cached_property
    def _spheres(self) -> tuple[Array, Array]:
        """Centres (K, 3) and radii (K,) around the solids and what is kept from them."""
        radii = np.array([np.linalg.norm(solid.box.half) + solid.keep_m for solid in self.solids])
        return np.reshape([solid.box.centre for solid in self.solids], (-1, 3)), radii

    def holds(self, points: Array, solids: list[Solid]) -> np.ndarray:
        """(M,) whether points (M, 3) lie in the box and clear of these solids."""
        clear = np.asarray(((points >= self.low) & (points <= self.high)).all(axis=1))
        for solid in solids:
            clear &= solid.box.distance(points) >= solid.keep_m
        return clear


def _solids(task: Task) -> list[Solid]:
    """Everything that a path keeps clear of."""
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
    """Of a frame's half depth what is more than the margin; of a tunnel, whose edges run along it, all."""
    return max(gate.depth_m / 2 - margin_m, gate.tunnel_m / 2, 0.0)


def _box(task: Task) -> tuple[Array, Array]:
    """Lowest and highest places (3,) of the vehicle's centre, m.

    Outside of the body there is more room to a bound than to an opening's edge, but where a gate leaves less; see `FROM_BOUND`.
    """
    low, high = np.array(task.track.bounds.low_m), np.array(task.track.bounds.high_m)
    if not task.options.bounds_clear:
        return low, high
    gates = np.array([gate.p_wg for gate in task.track.gates])
    radius, most = task.vehicle.contact_radius_m, FROM_BOUND * task.options.margin_m

    def kept(to_gates: Array) -> Array:
        """(3,) m, from bounds whose distances to the gates are (G, 3)."""
        return radius + np.clip(TO_GATE * (to_gates.min(axis=0) - radius), 0.0, most)

    return low + kept(gates - low), high - kept(high - gates)
