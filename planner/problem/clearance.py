"""Constraints that keep the path clear of solids, and within the prism of a gate that it passes, also between nodes.

Between nodes the path is the cubic Hermite interpolant.
"""

from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.planner.course.course import Course
from gate_racer.planner.course.solids import ROUND_M
from gate_racer.planner.problem.blocks import Block
from gate_racer.planner.problem.mesh import Mesh, leg_numbers
from gate_racer.planner.problem.nlp import Rows
from gate_racer.planner.problem.terms import Nodes, Point, Term
from gate_racer.vehicle.rotation import Array

ALONG = (0.25, 0.5, 0.75, 1.0)  # -, points of an interval at which clearance to solids is imposed
THROUGH = (0.5,)  # -, points of an interval within a gate; its ends lie on planes with constraints of their own
SHARPNESS = 10.0  # -, sharpness of the smooth maximum, times the clearance
STRAY_M = 1e-3  # m, violation of a clearance between nodes above which the interval is halved


def cubic(p0: Any, v0: Any, p1: Any, v1: Any, dt: Any, s: float) -> Any:
    """Return the position at the fraction s of an interval of length dt, s, by cubic Hermite interpolation; CasADi or NumPy."""
    ends = (1 + 2 * s) * (1 - s) ** 2 * p0 + s**2 * (3 - 2 * s) * p1
    return ends + dt * (s * (1 - s) ** 2 * v0 - s**2 * (1 - s) * v1)


def _rounded(x: Any) -> tuple[Any, Any]:
    """Return a smooth |x|, and a smooth upper bound of max(x, 0)."""
    return ca.sqrt(x**2 + 1e-8), 0.5 * (x + ca.sqrt(x**2 + ROUND_M**2))


def _ends() -> tuple[Any, Any, Any, Any, Any]:
    """Return symbols of an interval: p, v at both ends and its duration."""
    p0, v0, p1, v1 = (ca.SX.sym(name, 3) for name in ("p0", "v0", "p1", "v1"))
    return p0, v0, p1, v1, ca.SX.sym("dt")


def outside_box() -> Block:
    """Build (p_k, v_k, p_k+1, v_k+1, dt; centre, axes, half, keep) -> values, nonnegative if the cubic is clear of a box.

    Each is a smooth maximum of the distances to the box's faces, minus `keep`, with a nonzero gradient inside the box too. The
    corners of {max = keep} are farther away than `keep`, which outweighs the smoothing error there.
    """
    ends, centre, axes, half = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9), ca.SX.sym("half", 3)
    keep, values = ca.SX.sym("keep"), []
    for s in ALONG:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        beyond = [_rounded(p[i])[0] - half[i] for i in range(3)]
        most, k = ca.fmax(ca.fmax(*beyond[:2]), beyond[2]), SHARPNESS / keep
        values.append(most + ca.log(sum(ca.exp(k * (one - most)) for one in beyond)) / k - keep)
    return Block.of("outside_box", ca.vertcat(*ends), ca.vertcat(centre, axes, half, keep), ca.vertcat(*values))


def outside_plate() -> Block:
    """Build the same for a thin box with the squared distance, so that the inflated edges are rounded with radius `keep`."""
    ends, centre, axes, half = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9), ca.SX.sym("half", 3)
    keep, values = ca.SX.sym("keep"), []
    for s in ALONG:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        square = sum(_rounded(_rounded(p[i])[0] - half[i])[1] ** 2 for i in range(3))
        values.append(square / keep - keep)
    return Block.of("outside_plate", ca.vertcat(*ends), ca.vertcat(centre, axes, half, keep), ca.vertcat(*values))


def within_prism(edges: int) -> Block:
    """Build (p_k, v_k, p_k+1, v_k+1, dt; centre, axes, edges, half depth, body, keeps) -> values, nonnegative if the cubic is

    at least `body` inside each edge's plane and its `keep` away from each edge, which extends `half depth` to both sides.
    """
    ends, centre, axes = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9)
    lines, depth, body = ca.SX.sym("lines", 3 * edges), ca.SX.sym("depth"), ca.SX.sym("body")
    keeps = ca.SX.sym("keeps", edges)
    values = []
    for s in THROUGH:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        beyond = _rounded(_rounded(p[0])[0] - depth)[1] ** 2
        for i in range(edges):
            (n_y, n_z, h), keep = ca.vertsplit(lines[3 * i : 3 * i + 3]), keeps[i]
            inside = h - n_y * p[1] - n_z * p[2]
            values += [inside - body, (beyond + inside**2) / keep - keep]
    given = ca.vertcat(centre, axes, lines, depth, body, keeps)
    return Block.of(f"within_prism{edges}", ca.vertcat(*ends), given, ca.vertcat(*values))


class ClearOfSolids(Term):
    """Clearance to every solid near the present path, except the frame of the gate being passed."""

    def __init__(self, course: Course, near_m: float):
        """`near_m`: m, distance from the present path above which a solid is ignored."""
        self.space, self._near_m = course.space, near_m
        self._frames = np.array([leg.frame for leg in course.legs])

    @cached_property
    def _outside_plate(self) -> Block:
        return outside_plate()

    @cached_property
    def _outside_box(self) -> Block:
        return outside_box()

    def rows(self, nodes: Nodes) -> list[Rows]:
        result, near, solids = [], self._near(nodes.path, nodes.legs), self.space.solids
        for thin in (True, False):
            pairs = [(k, i) for k, i in near if (solids[i].frame >= 0) == thin]
            if pairs:
                outside, at = self._outside_plate if thin else self._outside_box, [k for k, _ in pairs]
                boxes = [(solids[i].box, solids[i].keep_m) for _, i in pairs]
                given = [[*box.centre, *box.axes.T.ravel(), *box.half, keep] for box, keep in boxes]
                result.append(Rows.not_negative_blocks(outside, nodes.motion[:, at], ca.DM(np.array(given).T)))
        return result

    def _near(self, path: Array, legs: np.ndarray) -> list[tuple[int, int]]:
        """Return pairs (interval, solid) for intervals of a path (N + 1, 3), on legs (N,), that are near a solid.

        A leg that stays on one side of a frame, such as one that ends in its opening, is not constrained by it.
        """
        middle, length = 0.5 * (path[1:] + path[:-1]), np.linalg.norm(np.diff(path, axis=0), axis=1)
        own, pairs = self._frames[legs], list[tuple[int, int]]()
        for i, solid in enumerate(self.space.solids):
            close = solid.box.distance(middle) < self._near_m + 0.5 * length
            if solid.frame >= 0 and close.any():
                x = (path - solid.box.centre) @ solid.box.axes[:, 0]
                clear = solid.box.half[0] + solid.keep_m + ROUND_M / 2
                one_side = (np.minimum(x[1:], x[:-1]) >= clear) | (np.maximum(x[1:], x[:-1]) <= -clear)
                beside = np.isin(legs, legs[close & ~one_side & (own != solid.frame)])
                close &= beside & (own != solid.frame)
            pairs += [(int(k), i) for k in np.flatnonzero(close)]
        return sorted(pairs)

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        result, own = super().strays(mesh, point, path), self._frames[leg_numbers(mesh)]
        middle, reach = path[len(path) // 2], np.linalg.norm(path[-1] - path[0], axis=1)
        for solid in self.space.solids:
            close = solid.box.distance(middle) < solid.keep_m + reach
            close &= (solid.frame < 0) | (own != solid.frame)
            at = np.flatnonzero(close)
            result[at] |= (solid.box.distance(path[:, at]) < solid.keep_m - STRAY_M).any(axis=0)
        return result


class WithinPrisms(Term):
    """Constraint of the body to the prism of an opening on the way through it, with the margin to the opening's edges."""

    def __init__(self, course: Course):
        self._legs, self._task = course.legs, course.task
        self._within: dict[int, Block] = {}  # by number of edges

    def rows(self, nodes: Nodes) -> list[Rows]:
        legs = [(k, self._legs[i]) for k, i in enumerate(nodes.legs) if self._legs[i].inside]
        passed = [(k, leg, leg.gate) for k, leg in legs if leg.gate is not None]
        result = []
        for count in {len(gate.edges) for _, _, gate in passed}:
            these = [one for one in passed if len(one[2].edges) == count]
            body = self._task.body_m
            given = [
                [*gate.p_wg, *gate.R_wg.T.ravel(), *gate.edges.ravel(), leg.edge_half_m, body, *leg.keep_m]
                for _, leg, gate in these
            ]
            if count not in self._within:
                self._within[count] = within_prism(count)
            motion = nodes.motion[:, [k for k, _, _ in these]]
            result.append(Rows.not_negative_blocks(self._within[count], motion, ca.DM(np.array(given).T)))
        return result
