"""The path keeps clear of solids, and within the prism of a gate that it passes, between its nodes too.

Between nodes it is Hermite's cubic through both ends.
"""

from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from planner.course.course import Course
from planner.course.solids import ROUND_M
from planner.problem.blocks import Block
from planner.problem.mesh import Mesh, leg_numbers
from planner.problem.nlp import Rows
from planner.problem.terms import Nodes, Point, Term
from vehicle.rotation import Array

ALONG = (0.25, 0.5, 0.75, 1.0)  # of an interval, where it is kept clear of solids
THROUGH = (0.5,)  # of an interval within a gate, whose ends lie on planes that are judged by themselves
SHARPNESS = 10.0  # of the smooth maximum, per distance kept
STRAY_M = 1e-3  # nearer to a solid than asked between nodes by more than that: the interval is too long


def cubic(p0, v0, p1, v1, dt, s: float):
    """The place at the fraction s of an interval of dt: Hermite's cubic through both ends (3, N or none); CasADi or numpy."""
    ends = (1 + 2 * s) * (1 - s) ** 2 * p0 + s**2 * (3 - 2 * s) * p1
    return ends + dt * (s * (1 - s) ** 2 * v0 - s**2 * (1 - s) * v1)


def _rounded(x):
    """A smooth |x|, and a smooth max(x, 0), which is never less."""
    return ca.sqrt(x**2 + 1e-8), 0.5 * (x + ca.sqrt(x**2 + ROUND_M**2))


def _ends() -> tuple[Any, Any, Any, Any, Any]:
    """Symbols of an interval: p, v at both ends and its duration."""
    p0, v0, p1, v1 = (ca.SX.sym(name, 3) for name in ("p0", "v0", "p1", "v1"))
    return p0, v0, p1, v1, ca.SX.sym("dt")


def outside_box() -> Block:
    """(p_k, v_k, p_k+1, v_k+1, dt; centre, axes, half, keep) -> numbers, not negative while the cubic keeps clear of a box.

    Each is a smooth maximum of the distances from the box's faces, less `keep`: it has a slope inside the box too. The corners of
    {max = keep} lie farther away than `keep`, which outweighs what the smoothing gives away there.
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
    """The same of a thin box: the distance itself, squared, so that its edges are rounded at `keep` and no wider."""
    ends, centre, axes, half = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9), ca.SX.sym("half", 3)
    keep, values = ca.SX.sym("keep"), []
    for s in ALONG:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        square = sum(_rounded(_rounded(p[i])[0] - half[i])[1] ** 2 for i in range(3))
        values.append(square / keep - keep)
    return Block.of("outside_plate", ca.vertcat(*ends), ca.vertcat(centre, axes, half, keep), ca.vertcat(*values))


def within_prism(edges: int) -> Block:
    """(p_k, v_k, p_k+1, v_k+1, dt; centre, axes, edges, half depth, body, keeps) -> numbers, not negative while the cubic is

    `body` inside each edge's plane and its own `keep` away from each edge, which runs `half depth` to both sides of the plane.
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
    """Every solid near the present path, but the frame of a gate where the path leads through it."""

    def __init__(self, course: Course, near_m: float):
        """`near_m`: solids farther than that from the present path play no part."""
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
        """Pairs (interval, solid) of the intervals of a path (N + 1, 3) that come near to a solid, by the legs (N,) they are of.

        A leg that stays on one side of a frame, as one that flies straight to its opening does, has nothing to do with it.
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
    """The body stays inside the prism of an opening on the way through it, the margin away from the opening's edges."""

    def __init__(self, course: Course):
        self._legs, self._task = course.legs, course.task
        self._within: dict[int, Block] = {}  # by the number of edges

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
