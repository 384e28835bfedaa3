"""What a path keeps clear of, between its nodes too: obstacles, the frames of gates, and the walls of an opening's prism.

On the way from gate to gate the outline of every frame is solid, its opening included, so a gate can neither be touched, nor
passed out of turn, nor entered from behind. On the short way through a gate the path stays within the opening's prism instead,
which is convex. The margin counts from the opening's edge in the gate's plane: the frame's depth may use the margin up, never
the contact radius.
"""

from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from planner.asked import body_half_m, keep_clear
from planner.compiled import compiled
from planner.options import PlanOptions
from tracks.gate import Gate
from tracks.solids import Box, of_obstacle, stand
from tracks.track import Track
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

ALONG = (0.25, 0.5, 0.75, 1.0)  # of an interval, where it is kept clear of solids
THROUGH = (0.5,)  # of an interval within a gate, whose ends lie on planes that are judged by themselves
SHARPNESS = 10.0  # of the smooth maximum, per distance kept
ROUND_M = 0.02  # by which |x| and max(x, 0) are rounded off


class Solid(NamedTuple):
    """A box that the path keeps clear of. That of a frame is its outline, opening included."""

    box: Box
    frame: int  # the gate's index in the track; -1: no frame
    name: str


def solids(track: Track, vehicle: Vehicle, options: PlanOptions) -> list[Solid]:
    """Everything that a path through the course keeps `keep_clear` away from."""
    found = [Solid(of_obstacle(one), -1, f"obstacles[{i}]") for i, one in enumerate(track.obstacles)]
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if not gate.has_frame:
            continue
        half = np.array([half_depth(gate, options), gate.outer_m / 2, gate.outer_m / 2])
        found.append(Solid(Box(gate.p_wg, gate.R_wg, half), i, f"the frame of gates[{i}]"))
        if (post := stand(track, i)) is not None:
            found.append(Solid(post, -1, f"the stand of gates[{i}]"))
    return found


def half_depth(gate: Gate, options: PlanOptions) -> float:
    """m, of a frame's half depth what is more than the margin; of a tunnel, whose edges run along it, all."""
    return max(gate.depth_m / 2 - options.margin_m, gate.tunnel_m / 2, 0.0)


def portal_m(gate: Gate, vehicle: Vehicle, options: PlanOptions) -> float:
    """m, from a gate's plane to the planes at which the path enters and leaves its prism: beyond the reach of its frame."""
    passage = max(vehicle.body_m) + options.margin_m
    return max(passage, half_depth(gate, options) + keep_clear(vehicle, options)) + ROUND_M


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


def outside_box() -> ca.Function:
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
    return compiled(ca.Function("outside_box", [*ends, centre, axes, half, keep], [ca.vertcat(*values)]))


def outside_plate() -> ca.Function:
    """The same of a thin box: the distance itself, squared, so that its edges are rounded at `keep` and no wider."""
    ends, centre, axes, half = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9), ca.SX.sym("half", 3)
    keep, values = ca.SX.sym("keep"), []
    for s in ALONG:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        square = sum(_rounded(_rounded(p[i])[0] - half[i])[1] ** 2 for i in range(3))
        values.append(square / keep - keep)
    return compiled(ca.Function("outside_plate", [*ends, centre, axes, half, keep], [ca.vertcat(*values)]))


def within_prism(edges: int) -> ca.Function:
    """(p_k, v_k, p_k+1, v_k+1, dt; centre, axes, edges, half depth, body, keep) -> numbers, not negative while the cubic is

    `body` inside each edge's plane and `keep` away from each edge, which runs `half depth` to both sides of the gate's plane.
    """
    ends, centre, axes = _ends(), ca.SX.sym("centre", 3), ca.SX.sym("axes", 9)
    lines, depth, body, keep = ca.SX.sym("lines", 3 * edges), ca.SX.sym("depth"), ca.SX.sym("body"), ca.SX.sym("keep")
    values = []
    for s in THROUGH:
        p = ca.reshape(axes, 3, 3).T @ (cubic(*ends, s) - centre)
        beyond = _rounded(_rounded(p[0])[0] - depth)[1] ** 2
        for n_y, n_z, h in (ca.vertsplit(lines[3 * i : 3 * i + 3]) for i in range(edges)):
            inside = h - n_y * p[1] - n_z * p[2]
            values += [inside - body, (beyond + inside**2) / keep - keep]
    given = [*ends, centre, axes, lines, depth, body, keep]
    return compiled(ca.Function(f"within_prism{edges}", given, [ca.vertcat(*values)]))


class Clearance:
    """The constraints of one course, and where a path breaks them."""

    def __init__(self, track: Track, vehicle: Vehicle, options: PlanOptions):
        self.solids = solids(track, vehicle, options)
        self.keep, self._body, self._options = keep_clear(vehicle, options), body_half_m(vehicle), options
        self._functions: dict[str, ca.Function] = {}

    def outside(self, ends, dt, near: list[tuple[int, int]]) -> list:
        """Constraints of pairs (interval, solid). `ends`: p, v at both ends (3, N) each, dt (1, N)."""
        result = []
        for thin, name, make in ((True, "plate", outside_plate), (False, "box", outside_box)):
            pairs = [(k, i) for k, i in near if (self.solids[i].frame >= 0) == thin]
            if pairs:
                at = [k for k, _ in pairs]
                boxes = [self.solids[i].box for _, i in pairs]
                of_boxes = (
                    np.column_stack([box.centre for box in boxes]),
                    np.column_stack([box.axes.T.ravel() for box in boxes]),
                    np.column_stack([box.half for box in boxes]),
                )
                clear = self._function(name, make).map(len(pairs))
                result.append(ca.vec(clear(*(end[:, at] for end in ends), dt[:, at], *of_boxes, self.keep)))
        return result

    def within(self, ends, dt, passed: list[tuple[int, Gate]]) -> list:
        """Constraints of pairs (interval, gate that is passed in it)."""
        result = []
        for count in {len(gate.edges) for _, gate in passed}:
            pairs = [(k, gate) for k, gate in passed if len(gate.edges) == count]
            at = [k for k, _ in pairs]
            of_gates = (
                np.column_stack([gate.p_wg for _, gate in pairs]),
                np.column_stack([gate.R_wg.T.ravel() for _, gate in pairs]),
                np.column_stack([gate.edges.ravel() for _, gate in pairs]),
                np.array([[half_depth(gate, self._options) for _, gate in pairs]]),
            )
            inside = self._function(f"prism{count}", lambda n=count: within_prism(n)).map(len(pairs))
            given = (*(end[:, at] for end in ends), dt[:, at], *of_gates, self._body, self.keep)
            result.append(ca.vec(inside(*given)))
        return result

    def _function(self, name: str, make) -> ca.Function:
        if name not in self._functions:
            self._functions[name] = make()
        return self._functions[name]

    def near(self, path: Array, legs: np.ndarray, own: list[int], reach_m: float) -> list[tuple[int, int]]:
        """Pairs (interval, solid) of the intervals of a path (N + 1, 3) that come near to a solid.

        A leg that stays on one side of a frame, as one that flies straight to its opening does, has nothing to do with it.

        Args:
            legs: (N,) the leg of each interval.
            own: (N) the frame that an interval leads through, or -1.
        """
        middle, length = 0.5 * (path[1:] + path[:-1]), np.linalg.norm(np.diff(path, axis=0), axis=1)
        passed, pairs = np.array(own), list[tuple[int, int]]()
        for i, solid in enumerate(self.solids):
            close = solid.box.distance(middle) < reach_m + 0.5 * length
            if solid.frame >= 0 and close.any():
                x = (path - solid.box.centre) @ solid.box.axes[:, 0]
                clear = solid.box.half[0] + self.keep + ROUND_M / 2
                one_side = (np.minimum(x[1:], x[:-1]) >= clear) | (np.maximum(x[1:], x[:-1]) <= -clear)
                beside = np.isin(legs, legs[close & ~one_side & (passed != solid.frame)])
                close &= beside & (passed != solid.frame)
            pairs += [(int(k), i) for k in np.flatnonzero(close)]
        return sorted(pairs)

    def strays(self, path: Array, own: list[int], slack_m: float) -> Array:
        """(N,) whether intervals with paths (S, N, 3) come nearer than allowed to a solid."""
        result = np.zeros(path.shape[1], dtype=bool)
        passing = np.array(own)
        middle, reach = path[len(path) // 2], np.linalg.norm(path[-1] - path[0], axis=1)
        for solid in self.solids:
            close = solid.box.distance(middle) < self.keep + reach
            close &= (solid.frame < 0) | (passing != solid.frame)
            at = np.flatnonzero(close)
            result[at] |= (solid.box.distance(path[:, at]) < self.keep - slack_m).any(axis=0)
        return result
