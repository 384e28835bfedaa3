"""Terminal constraints of the legs, for all legs at once: few long expressions are differentiated faster than many short ones."""

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.planner.course.course import Course
from gate_racer.planner.course.legs import Leg
from gate_racer.planner.problem.nlp import Rows
from gate_racer.planner.problem.terms import Nodes, Term
from gate_racer.planner.task import Task

CROSSING_SPEED_MIN = 0.5  # m/s, least speed along the gate's axis at its crossing (chosen)


class LegEnds(Term):
    """Constraint of each leg's end to its gate's opening or ball, or to rest at its target."""

    mesh_free = True

    def __init__(self, course: Course):
        self.course = course

    def rows(self, nodes: Nodes) -> list[Rows]:
        _, _, p, v = (end[:, nodes.last] for end in nodes.ends)
        return leg_ends(self.course.legs, p, v, nodes.still[:, nodes.last], self.course.task)


def leg_ends(legs: Sequence[Leg], p: Any, v: Any, still: Any, task: Task) -> list[Rows]:
    """Return constraints on the positions and velocities (3, L) at the last nodes of L legs.

    At a stop, the expressions `still` (K, L) must vanish too.
    """
    flat = [i for i, leg in enumerate(legs) if leg.gate is not None and not leg.gate.is_ball]
    balls = [i for i, leg in enumerate(legs) if leg.gate is not None and leg.gate.is_ball]
    rows: list[Rows] = []
    if balls:
        rows.append(_balls([legs[i] for i in balls], p[:, balls]))
    if flat:
        rows += _planes([legs[i] for i in flat], p[:, flat], v[:, flat], task)
    for i, leg in enumerate(legs):
        if leg.gate is None:
            rows.append(Rows.zero(ca.vertcat(p[:, i] - leg.target, v[:, i], still[:, i])))
    return rows


def _balls(legs: list[Leg], p: Any) -> Rows:
    radii = np.array([leg.gate.half for leg in legs if leg.gate is not None])
    off = p - np.column_stack([leg.target for leg in legs])
    return Rows((ca.sum1(off**2) / radii[None]).T, [0.0] * len(legs), radii)


def _planes(legs: list[Leg], p: Any, v: Any, task: Task) -> list[Rows]:
    """Return constraints of legs that end on a plane: inside the opening's prism, and with the margin on the gate's own plane.

    The distance to each edge of an opening, measured across the path, is at least `keep`:
    (h - n p) cos(slope) >= keep, so that an oblique passage narrows the window as it does in reality; in a tunnel, at both ends.
    """
    gates = [leg.gate for leg in legs if leg.gate is not None]
    turn = ca.diagcat(*[ca.DM(gate.R_wg.T) for gate in gates])
    p_g = ca.reshape(turn @ ca.vec(p - np.column_stack([gate.p_wg for gate in gates])), 3, len(legs))
    v_g = ca.reshape(turn @ ca.vec(v), 3, len(legs))
    planes = [leg.plane_m for leg in legs]
    portals, sides, keeps, coasts, passed = [], [], list[float](), [], [k for k, leg in enumerate(legs) if leg.passes]
    for k, (leg, gate) in enumerate(zip(legs, gates, strict=True)):
        depth = leg.edge_half_m
        for (n_y, n_z, h), keep in zip(gate.edges, leg.keep_m, strict=True):
            if not leg.passes:
                portals.append((k, n_y, n_z, h, 0.0))
                continue
            ends = (-depth, depth) if depth else (0.0,)
            sides += [(k, n_y, n_z, h, end) for end in ends]
            keeps += [keep] * len(ends)
            coasts += [(k, n_y, n_z, h, leg.coast_m)] if leg.coast_m else []
    rows = [Rows(ca.vec(p_g[0, :]), planes, planes)]
    if passed:
        rows.append(Rows(ca.vec(v_g[0, passed]), [CROSSING_SPEED_MIN] * len(passed), [ca.inf] * len(passed)))
    if portals:
        inside, *_ = _at_edges(portals, p_g, v_g)
        rows.append(Rows.not_negative(inside - task.body_m))
    if sides:
        inside, along, out, end = _at_edges(sides, p_g, v_g)
        rows.append(Rows.not_negative(inside * along - end * out - ca.DM(keeps).T * ca.sqrt(along**2 + out**2 + 1e-6)))
    if coasts:
        inside, along, out, end = _at_edges(coasts, p_g, v_g)
        rows.append(Rows.not_negative((inside - task.body_m) * along - end * out))
    return rows


def _at_edges(edges: list[tuple[int, float, float, float, float]], p_g: Any, v_g: Any) -> tuple[Any, Any, Any, Any]:
    """Return rows (1, E): distance inside each edge, speeds along the gate's axis and towards the edge, and the given length."""
    k, (n_y, n_z, h, end) = [edge[0] for edge in edges], (row[None] for row in np.array(edges).T[1:])
    inside = h - n_y * p_g[1, k] - n_z * p_g[2, k]
    return inside, v_g[0, k], n_y * v_g[1, k] + n_z * v_g[2, k], end
