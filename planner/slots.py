"""Passage of slots in SE(3): openings that let the body's box pass, but not the sphere around it.

A box with half sides h_i reaches sum_i h_i |n . e_i| in a direction n; in the plane of a slot, its centre keeps that and a margin
from each edge. It cannot lean to one side and then to the other without standing level in between: so each plan has a side.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.planner.course import Course, Leg
from gate_racer.planner.mesh import Mesh, Point, leg_numbers
from gate_racer.planner.models import Q
from gate_racer.planner.nlp import Block, Rows
from gate_racer.planner.terms import STRAY_M, Nodes, Term, rounded
from gate_racer.vehicle.rotation import Array, conjugate, rotate

SMOOTH = 1e-4  # -, square of the cosine below which |cos| is rounded in the reach of a box
SPARE_M = 3e-3  # m, more than the margin that is certified, for what the path does between nodes (chosen)
LEAN = 0.5  # -, least component of the body's z axis across a slot, on the side to which it leans (chosen)
BETWEEN = (0.25, 0.5, 0.75)  # -, points of an interval at which that room is checked
WIDENS = 4.0  # -, widening of a slot's prism per distance from its plane, where the body no longer reaches it (chosen)


def reach_m(half: Sequence[Any], cosines: Sequence[Any]) -> Any:
    """Return the reach, m, of a box in a direction, by its half sides and the direction's cosines with its axes (smoothly)."""
    return sum(h * ca.sqrt(c**2 + SMOOTH) for h, c in zip(half, cosines, strict=True))


@cache
def through_slot(edges: int) -> Block:
    """Build (p, q; centre, axes, edges, half length, half sides of the body, margin, side, least lean) -> values, not negative

    if the body leans to its side, and has room beside each edge. Where the box does not reach the slot, both are free.
    """
    p, q, centre, axes = ca.SX.sym("p", 3), ca.SX.sym("q", 4), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9)
    lines, depth, half = ca.SX.sym("lines", 3 * edges), ca.SX.sym("depth"), ca.SX.sym("half", 3)
    margin, across, least = ca.SX.sym("margin"), ca.SX.sym("across", 3), ca.SX.sym("least")
    R_gw = ca.reshape(axes, 3, 3).T

    def reach(normal_g: Any) -> Any:
        normal_w = R_gw.T @ normal_g
        return reach_m(ca.vertsplit(half), rotate(conjugate(ca.vertsplit(q)), ca.vertsplit(normal_w)))

    p_g = R_gw @ (p - centre)
    off = rounded(p_g[0])[0] - depth - reach(ca.vertcat(1, 0, 0))
    away = 0.5 * (off + rounded(off)[0])
    z_w = ca.vertcat(*rotate(ca.vertsplit(q), (0, 0, 1)))
    values = [ca.dot(across, z_w) - least + WIDENS * away]
    for i in range(edges):
        n_y, n_z, h = ca.vertsplit(lines[3 * i : 3 * i + 3])
        room = h - n_y * p_g[1] - n_z * p_g[2] - reach(ca.vertcat(0, n_y, n_z)) - margin
        values.append(room + WIDENS * away)
    given = ca.vertcat(centre, axes, lines, depth, half, margin, across, least)
    return Block.of(f"through_slot{edges}", ca.vertcat(p, q), given, ca.vertcat(*values))


class ThroughSlots(Term):
    """Room for the body's box, at its attitude, beside each edge of a slot while it reaches its plane: a passage in SE(3)."""

    def __init__(self, course: Course):
        self._legs, self._half = course.legs, np.array(course.task.vehicle.body_m) / 2

    def rows(self, nodes: Nodes) -> list[Rows]:
        result = []
        for i, leg, given in self._slots():
            at = np.flatnonzero(nodes.legs == i).tolist()
            poses = ca.horzcat(nodes.before[: Q.stop, at[0]], nodes.after[: Q.stop, at])
            block = through_slot(len(leg.keep_m))
            result.append(Rows.not_negative_blocks(block, poses, ca.repmat(ca.DM(given), 1, len(at) + 1)))
        return result

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return intervals between whose ends the body has less room than it needs."""
        result, own = super().strays(mesh, point, path), leg_numbers(mesh)
        for i, leg, given in self._slots():
            at = np.flatnonzero(own == i)
            room = through_slot(len(leg.keep_m)).values.map(len(at))
            for s in BETWEEN:
                q = (1 - s) * point.x[Q][:, at] + s * point.x[Q][:, at + 1]
                poses = np.vstack([path[round(s * (len(path) - 1)), at].T, q / np.linalg.norm(q, axis=0)])
                result[at] |= (np.array(room(poses, np.tile(given, (len(at), 1)).T)) < -STRAY_M).any(axis=0)
        return result

    def _slots(self) -> Iterator[tuple[int, Leg, list[float]]]:
        """Yield the legs within slots: their number, and the parameters of `through_slot`."""
        for i, leg in enumerate(self._legs):
            if leg.in_slot and leg.gate is not None and leg.slot_m is not None:
                gate = leg.gate
                across, least = (leg.lean * leg.slot_axes[0], LEAN) if leg.lean else (np.zeros(3), -1.0)
                opening = [*gate.p_wg, *gate.R_wg.T.ravel(), *gate.edges.ravel(), leg.edge_half_m]
                yield i, leg, [*opening, *self._half, leg.slot_m + SPARE_M, *across, least]
