"""Initial guess of the full problem: the point mass's trajectory, with attitudes that follow from its thrust."""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.planner.course.course import Course
from gate_racer.planner.models import Q
from gate_racer.planner.problem.mesh import Mesh, intervals
from gate_racer.planner.problem.point_mass import PointMass
from gate_racer.planner.problem.terms import Point
from gate_racer.vehicle.rotation import Array, aligned, conjugate, exp, from_euler, log, matrix, product

TURN_SHARE = 0.5  # -, largest body rates of the guess over their limits (chosen)


@dataclass(frozen=True)
class Guess:
    """Variant of the initial guess. The best one depends on the course; their optima differ by 0.1 % on published courses."""

    nose: str  # heading: "forward" along the velocity, "kept" as at the start, "tilted" by the shortest rotation from level
    slack: float  # -, durations over those of the point mass, which is faster than a rigid body

    @property
    def name(self) -> str:
        """Name in the log and the certificate, such as "forward x1.1"."""
        return f"{self.nose} x{self.slack:g}"


def guesses(gates_in_view: bool) -> tuple[Guess, ...]:
    """Return all variants, the most promising first: heading forward if gates shall be in view."""
    noses = ("forward", "kept", "tilted") if gates_in_view else ("tilted", "kept", "forward")
    return tuple(Guess(nose, slack) for slack in (1.1, 1.5) for nose in noses)


def first_guess(course: Course, point_mass: PointMass, mesh: Mesh, guess: Guess) -> Point:
    """Return the initial guess on a mesh."""
    x0, model, durations = course.x0, course.task.model, guess.slack * point_mass.durations
    p, v, thrust = _path(point_mass, mesh)
    dt = intervals(mesh, durations)
    c = np.linalg.norm(thrust, axis=0)
    down = np.where(c > 1e-3, -thrust / np.maximum(c, 1e-3), np.array([[0.0], [0.0], [1.0]]))
    nose = matrix(x0[Q])[:, 0] if x0 is not None else v[:, 0]
    level = from_euler(0.0, 0.0, math.atan2(nose[1], nose[0]))
    q, w = np.empty((4, len(dt) + 1)), np.zeros((3, len(dt)))
    for k in range(len(dt)):
        fast = np.linalg.norm(v[:, k + 1]) > 1.0
        ahead = v[:, k + 1] if guess.nose == "forward" and fast else nose
        q[:, k + 1] = _tilted(down[:, k], level) if guess.nose == "tilted" else aligned(down[:, k], ahead)
    q[:, 0] = x0[Q] if x0 is not None else q[:, -1]
    limit = TURN_SHARE * model.w_high
    for k in range(len(dt)):
        if q[:, k] @ q[:, k + 1] < 0:
            q[:, k + 1] *= -1
        w[:, k] = np.clip(log(product(conjugate(q[:, k]), q[:, k + 1])) / dt[k], -limit, limit)
    after = model.state(p[:, 1:], q[:, 1:], v[:, 1:], w, c)
    first = model.state(p[:, :1], q[:, :1], v[:, :1], 0 * w[:, :1], c[:1])
    return Point(np.hstack([first, after]), model.inputs(w, c), durations)


def _path(point_mass: PointMass, mesh: Mesh) -> tuple[Array, Array, Array]:
    """Return the point mass's p and v (3, N + 1) at the nodes and thrust (3, N), m/s^2, in the intervals of a mesh."""
    p, v, thrust = [point_mass.p[0][:, :1]], [point_mass.v[0][:, :1]], []
    for k, fractions in enumerate(mesh):
        coarse, fine = np.linspace(0, 1, point_mass.p[k].shape[1]), np.cumsum(fractions)
        p.append(np.array([np.interp(fine, coarse, row) for row in point_mass.p[k]]))
        v.append(np.array([np.interp(fine, coarse, row) for row in point_mass.v[k]]))
        count = point_mass.thrust[k].shape[1]
        thrust.append(point_mass.thrust[k][:, np.minimum((fine * count).astype(int), count - 1)])
    return np.hstack(p), np.hstack(v), np.hstack(thrust)


def _tilted(down: Array, level: Array) -> Array:
    """Return q_wb (4,) with the body's z axis along `down` (3,), by the shortest rotation from a level attitude (4,)."""
    axis = np.cross([0.0, 0.0, 1.0], down)
    sine = math.sqrt(axis @ axis)
    if sine < 1e-9:
        axis, sine = np.array([1.0, 0.0, 0.0]), 1.0
    return np.array(product(exp(axis / sine * math.acos(np.clip(down[2], -1.0, 1.0))), level))
