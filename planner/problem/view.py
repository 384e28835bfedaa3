"""Each gate stays in the picture over the asked share of the way to it."""

from functools import cached_property

import casadi as ca
import numpy as np

from planner.course.course import Course
from planner.models import P, Q, V
from planner.problem.compiled import compiled
from planner.problem.mesh import intervals
from planner.problem.nlp import Rows
from planner.problem.terms import Nodes, Term
from vehicle.camera import Camera
from vehicle.rotation import rotate

VIEW_FRACTION = 0.85  # of the half picture: room for the tracking error and for the gate around its centre
SHARE_SLACK = 5e-3  # of the asked share of the view, by which nodes may miss the ends of its window


def view(camera: Camera, target_w, p, R_wb) -> list:
    """Four expressions, not negative while a world point is in the picture: |x_c| <= k_x z_c, |y_c| <= k_y z_c in camera axes."""
    p_c = camera.R_bc.T @ (R_wb.T @ (target_w - p) - camera.p_bc)
    kx = VIEW_FRACTION * min(camera.cx_px, camera.width_px - camera.cx_px) / camera.fx_px
    ky = VIEW_FRACTION * min(camera.cy_px, camera.height_px - camera.cy_px) / camera.fy_px
    x, y, z = p_c[0], p_c[1], p_c[2]
    return [kx * z - x, kx * z + x, ky * z - y, ky * z + y]


class GatesInView(Term):
    """The next gate's centre, or its four corners, before the blind end of the way to it.

    An interval counts where it ends in view; for corners, which enter the picture last, where it begins so as well. The mesh has
    nodes at the window's ends (`first_mesh`), or near them.
    """

    def __init__(self, course: Course):
        self.course = course

    @cached_property
    def _seen(self) -> ca.Function:
        """(p, q, v; target) -> 4 non-negative numbers while the world point is in the picture."""
        x, target = ca.SX.sym("x", V.stop), ca.SX.sym("target", 3)
        q = ca.vertsplit(x[Q])
        R_wb = ca.horzcat(*(ca.vertcat(*rotate(q, axis)) for axis in np.eye(3)))
        camera = self.course.task.vehicle.camera
        return compiled(ca.Function("view", [x, target], [ca.vertcat(*view(camera, target, x[P], R_wb))]))

    def rows(self, nodes: Nodes) -> list[Rows]:
        course, options = self.course, self.course.task.options
        at: list[int] = []
        targets, first = [], 0
        if options.see <= 0:
            return []
        for parts in course.ways:
            fractions = intervals([nodes.mesh[i] for i in parts], nodes.durations[parts])
            done, gate = np.cumsum(fractions) / fractions.sum(), course.legs[parts[-1]].gate
            end = int(np.abs(done - course.view_window[1]).argmin())
            begin = np.searchsorted(done, done[end] - options.see + SHARE_SLACK, side="right")
            keep = np.arange(max(begin - options.see_corners, 0), end + 1)
            if gate is not None and gate.visible:
                for target in gate.corners() if options.see_corners else gate.p_wg[None]:
                    at += (first + keep).tolist()
                    targets += [target] * len(keep)
            first += len(fractions)
        if not at:
            return []
        return [Rows.not_negative(self._seen.map(len(at))(nodes.after[: V.stop, at], np.column_stack(targets)))]
