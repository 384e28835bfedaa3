"""Visibility constraint: each gate stays in the image over the requested fraction of the way to it, or a requested time."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from gate_racer.planner.course.course import Course
from gate_racer.planner.models import P, Q
from gate_racer.planner.problem.blocks import Block
from gate_racer.planner.problem.mesh import Mesh, intervals
from gate_racer.planner.problem.nlp import Rows
from gate_racer.planner.problem.terms import Nodes, Point, Term
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, conjugate, rotate

# Fraction of the half image within which the gate's centre stays. With 0.85, plans of VQ2 never had the whole opening in view on
# the way to 7 of 17 gates.
VIEW_FRACTION = 0.7
SHARE_SLACK = 5e-3  # -, tolerance of the visible fraction, by which nodes may miss the ends of the window


def view(camera: Camera, target_w: Any, p: Any, R_wb: Any) -> list[Any]:
    """Return four expressions, nonnegative if a world point is in view: |x_c| <= k_x z_c, |y_c| <= k_y z_c, camera RDF."""
    p_c = camera.R_bc.T @ (R_wb.T @ (target_w - p) - camera.p_bc)
    kx = VIEW_FRACTION * min(camera.cx_px, camera.width_px - camera.cx_px) / camera.fx_px
    ky = VIEW_FRACTION * min(camera.cy_px, camera.height_px - camera.cy_px) / camera.fy_px
    x, y, z = p_c[0], p_c[1], p_c[2]
    return [kx * z - x, kx * z + x, ky * z - y, ky * z + y]


class Window(NamedTuple):
    """Part of a trajectory on which a gate stays in view."""

    gate: Gate
    way: np.ndarray  # intervals on which its time in view counts
    at: np.ndarray  # intervals at whose ends it is constrained to be in view
    least_s: float  # s, least time in view


class GatesInView(Term):
    """Visibility of the next gate's centre, or of its four corners, until the last part of the way to it.

    The constraint holds at the end of each interval in the window; for corners, which enter the image last, also at its
    beginning. The mesh has nodes at or near the window's ends (`first_mesh`), and the first interval is halved while the fraction
    is too small.
    """

    def __init__(self, course: Course):
        self.course = course

    @cached_property
    def _seen(self) -> Block:
        """Block (p, q; target) -> 4 values, nonnegative if the world point is in view."""
        x, target = ca.SX.sym("x", Q.stop), ca.SX.sym("target", 3)
        q = ca.vertsplit(x[Q])
        R_wb = ca.horzcat(*(ca.vertcat(*rotate(q, axis)) for axis in np.eye(3)))
        camera = self.course.task.vehicle.camera
        return Block.of("view", x, target, ca.vertcat(*view(camera, target, x[P], R_wb)))

    def rows(self, nodes: Nodes) -> list[Rows]:
        at, targets = list[int](), list[Array]()
        for window in self._windows(nodes.mesh, nodes.durations, nodes.path):
            for target in self._targets(window.gate):
                at += window.at.tolist()
                targets += [target] * len(window.at)
        if not at:
            return []
        rows = Rows.not_negative_blocks(self._seen, nodes.after[: Q.stop, at], ca.DM(np.column_stack(targets)))
        if nodes.slack is None:
            return [rows]
        far = np.linalg.norm(nodes.path[1:][at] - np.array(targets), axis=1)
        return [rows._replace(expression=nodes.slack * ca.DM(np.repeat(far, len(rows.low) // len(at))))]

    def strays(self, mesh: Mesh, point: Point, path: Array) -> np.ndarray:
        """Return intervals in the window of a gate whose visible fraction, with views between the nodes, is too small."""
        result, dt = super().strays(mesh, point, path), intervals(mesh, point.durations)
        q = _interpolated(point.x[Q], len(path))
        for gate, way, at, least_s in self._windows(mesh, point.durations, point.x[P].T):
            seen = self._in_image(gate, np.moveaxis(path[:, way], -1, 0), q[:, :, way]).mean(axis=0)
            if dt[way] @ seen < least_s:
                result[at] |= seen[at - way[0]] < 1.0
        return result

    def _in_image(self, gate: Gate, p_w: Array, q_wb: Array) -> np.ndarray:
        """Return (...) whether all targets of a gate are in the full image, from positions (3, ...) at attitudes (4, ...)."""
        camera, result = self.course.task.vehicle.camera, np.ones(p_w.shape[1:], bool)
        for target in self._targets(gate):
            to_b = rotate(conjugate(q_wb), target.reshape(3, *[1] * result.ndim) - p_w)
            p_c = (np.stack(to_b, axis=-1) - camera.p_bc) @ camera.R_bc
            ahead = p_c[..., 2] > 0
            p_c[~ahead] = [0.0, 0.0, 1.0]
            result &= ahead & camera.sees(camera.project(p_c))
        return result

    def _targets(self, gate: Gate) -> Array:
        """Return the world points (K, 3), m, of a gate that shall be in view."""
        return gate.corners() if self.course.task.options.see_corners else gate.p_wg[None]

    def _windows(self, mesh: Mesh, durations: Array, path: Array) -> Iterator[Window]:
        """Yield the window of each visible gate, from where it is within detection range, on the way before at the earliest.

        Args:
            path: (N + 1, 3) m, positions at the nodes.
        """
        options, course = self.course.task.options, self.course
        t, first, before = np.append(0.0, np.cumsum(intervals(mesh, durations))), 0, list[int]()
        for number, parts in enumerate(course.ways if options.gates_in_view else []):
            earliest, begun = first - sum(len(mesh[i]) for i in before), course.begun if number == 0 else 0.0
            last = first + sum(len(mesh[i]) for i in parts)
            within = course.in_range([*before, *parts], t[earliest : last + 1], path[earliest : last + 1])
            near = within if within > t[first] else t[first] - begun / (1 - begun) * (t[last] - t[first])
            begin_s, end_s = course.view_window(near, t[last])
            end = first + int(np.abs(t[first + 1 : last + 1] - end_s).argmin())
            begin_s = max(begin_s + t[end + 1] - end_s, within)
            gate = course.legs[parts[-1]].gate
            if gate is not None and gate.visible and t[first + 1] < end_s:
                begin = int(t[1:].searchsorted(begin_s + SHARE_SLACK * (t[last] - near), side="right"))
                way = int(t[1:].searchsorted(near, side="right"))
                least_s = max(options.see * (t[last] - t[way]), min(options.sight_s, t[end + 1] - begin_s))
                at = np.arange(max(begin - options.see_corners, 0), end + 1)
                yield Window(gate, np.arange(min(way, begin), last), at, least_s)
            first, before = last, parts


def _interpolated(q: Array, count: int) -> Array:
    """Interpolate attitudes (4, N + 1) at `count` = S points of each interval, both ends included; returns (4, S, N).

    Normalised linear interpolation of all intervals at once; `vehicle.rotation.between` follows the arc between two attitudes.
    """
    before, after = q[:, None, :-1], q[:, None, 1:]
    after = np.where((before * after).sum(axis=0) < 0, -after, after)
    s = np.linspace(0.0, 1.0, count)[:, None]
    mixed = (1 - s) * before + s * after
    return np.asarray(mixed / np.linalg.norm(mixed, axis=0))
