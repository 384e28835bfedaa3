"""Where legs may end, as constraints of all at once: few long expressions are differentiated faster than many short ones."""

import casadi as ca
import numpy as np

from planner.asked import body_half_m, keep_clear
from planner.clearance import half_depth
from planner.course import CROSSING_SPEED_MIN, Leg
from planner.options import PlanOptions
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

Rows = tuple[list, list[float], list[float]]


def windows(course: list[Leg], p, v, still, vehicle: Vehicle, options: PlanOptions) -> tuple[list, Array, Array]:
    """Constraints (expressions, lower, upper) on the positions and velocities (3, L) at the last nodes of L legs.

    At a stop, what `still` (K, L) holds must vanish as well.
    """
    flat = [i for i, leg in enumerate(course) if leg.gate is not None and not leg.gate.is_ball]
    balls = [i for i, leg in enumerate(course) if leg.gate is not None and leg.gate.is_ball]
    parts: list[Rows] = []
    if balls:
        parts.append(_balls([course[i] for i in balls], p[:, balls]))
    if flat:
        parts += _planes([course[i] for i in flat], p[:, flat], v[:, flat], vehicle, options)
    for i, leg in enumerate(course):
        if leg.gate is None:
            assert leg.end is not None
            stop = ca.vertcat(p[:, i] - leg.end, v[:, i], still[:, i])
            parts.append(([stop], [0.0] * stop.numel(), [0.0] * stop.numel()))
    expressions = [ca.vec(one) for found, _, _ in parts for one in found]
    return expressions, np.concatenate([low for _, low, _ in parts]), np.concatenate([high for _, _, high in parts])


def _balls(legs: list[Leg], p) -> Rows:
    radii = np.array([leg.gate.half for leg in legs if leg.gate is not None])
    off = p - np.column_stack([leg.target for leg in legs])
    return [(ca.sum1(off**2) / radii[None]).T], [0.0] * len(legs), radii.tolist()


def _planes(legs: list[Leg], p, v, vehicle: Vehicle, options: PlanOptions) -> list[Rows]:
    """On its plane each leg ends inside the opening's prism, and passes a gate's own plane with the margin.

    The path's distance to each edge of an opening, measured across the path, is at least `keep`:
    (h - n p) cos(slope) >= keep, so that an oblique passage shrinks the window as it does in reality; in a tunnel, at both ends.
    """
    keep, body, gates = keep_clear(vehicle, options), body_half_m(vehicle), [leg.gate for leg in legs]
    turn = ca.diagcat(*[ca.DM(gate.R_wg.T) for gate in gates if gate is not None])
    centres = np.column_stack([gate.p_wg for gate in gates if gate is not None])
    p_g = ca.reshape(turn @ ca.vec(p - centres), 3, len(legs))
    v_g = ca.reshape(turn @ ca.vec(v), 3, len(legs))
    planes = [leg.plane_m for leg in legs]
    portals, sides, coasts, passed = [], [], [], [k for k, leg in enumerate(legs) if leg.passes]
    for k, (leg, gate) in enumerate(zip(legs, gates, strict=True)):
        assert gate is not None
        depth = half_depth(gate, options)
        for n_y, n_z, h in gate.edges:
            if not leg.passes:
                portals.append((k, n_y, n_z, h, 0.0))
                continue
            sides += [(k, n_y, n_z, h, end) for end in ((-depth, depth) if depth else (0.0,))]
            coasts += [(k, n_y, n_z, h, leg.coast_m)] if leg.coast_m else []
    rows: list[Rows] = [([p_g[0, :]], planes, planes)]
    if passed:
        rows.append(([v_g[0, passed]], [CROSSING_SPEED_MIN] * len(passed), [ca.inf] * len(passed)))
    for edges, name in ((portals, "portal"), (sides, "side"), (coasts, "coast")):
        if edges:
            inside, along, out, end = _at_edges(edges, p_g, v_g)
            if name == "portal":
                clear = inside - body
            elif name == "side":
                clear = inside * along - end * out - keep * ca.sqrt(along**2 + out**2 + 1e-6)
            else:
                clear = (inside - body) * along - end * out
            rows.append(([clear], [0.0] * len(edges), [ca.inf] * len(edges)))
    return rows


def _at_edges(edges: list[tuple[int, float, float, float, float]], p_g, v_g):
    """Rows (1, E): distance inside each edge, speeds along the gate's axis and towards the edge, and the given length."""
    k, (n_y, n_z, h, end) = [edge[0] for edge in edges], (row[None] for row in np.array(edges).T[1:])
    inside = h - n_y * p_g[1, k] - n_z * p_g[2, k]
    return inside, v_g[0, k], n_y * v_g[1, k] + n_z * v_g[2, k], end
