"""The first guess of the full problem: the point mass's path, flown with the attitude that its thrust asks for."""

import math

import numpy as np

from planner.course import intervals
from planner.model import Model
from planner.point_mass import PointMass
from tracks.track import Start
from vehicle.rotation import Array, aligned, conjugate, exp, from_euler, log, matrix, product

SLACK = 1.1  # a body is slower than a point
TURN_SHARE = 0.5  # of the rate limits that the guess may use


def first_guess(
    chosen: Model, start: Start, point_mass: PointMass, mesh: list[Array], forward: bool
) -> tuple[Array, Array, Array]:
    """Guess on a mesh.

    Args:
        mesh: per leg, the fractions of its duration that its intervals take.
        forward: nose along the velocity, as a camera needs it; else the level start is tilted by the least turn, which led to
            faster optima than a kept or a forward heading on the published courses.

    Returns:
        x (NX, N + 1), u (NU, N), durations (L,).
    """
    durations = SLACK * point_mass.durations
    p, v, thrust = _path(start, point_mass, mesh)
    dt = intervals(mesh, durations)
    c = np.linalg.norm(thrust, axis=0)
    q, w = np.empty((4, len(dt) + 1)), np.zeros((3, len(dt)))
    q[:, 0] = start.q_wb
    nose, level = matrix(start.q_wb)[:, 0], from_euler(0.0, 0.0, math.radians(start.yaw_deg))
    limit = TURN_SHARE * (chosen.u_high[:3] if chosen.name == "rates" else chosen.x_high[10:13])
    for k in range(len(dt)):
        down = -thrust[:, k] / c[k] if c[k] > 1e-3 else np.array([0.0, 0.0, 1.0])
        fast = np.linalg.norm(v[:, k + 1]) > 1.0
        q[:, k + 1] = aligned(down, v[:, k + 1] if fast else nose) if forward else _tilted(down, level)
        if q[:, k] @ q[:, k + 1] < 0:
            q[:, k + 1] *= -1
        w[:, k] = np.clip(log(product(conjugate(q[:, k]), q[:, k + 1])) / dt[k], -limit, limit)
    after = chosen.state(p[:, 1:], q[:, 1:], v[:, 1:], w, c)
    first = chosen.state(p[:, :1], q[:, :1], v[:, :1], 0 * w[:, :1], c[:1])
    return np.hstack([first, after]), chosen.inputs(w, c), durations


def _path(start: Start, point_mass: PointMass, mesh: list[Array]) -> tuple[Array, Array, Array]:
    """The point mass's p and v (3, N + 1) at the nodes and thrust (3, N) in the intervals of a mesh."""
    p, v, thrust = [start.p_wb[:, None]], [np.zeros((3, 1))], []
    for k, fractions in enumerate(mesh):
        coarse, fine = np.linspace(0, 1, point_mass.p[k].shape[1]), np.cumsum(fractions)
        p.append(np.array([np.interp(fine, coarse, row) for row in point_mass.p[k]]))
        v.append(np.array([np.interp(fine, coarse, row) for row in point_mass.v[k]]))
        count = point_mass.thrust[k].shape[1]
        thrust.append(point_mass.thrust[k][:, np.minimum((fine * count).astype(int), count - 1)])
    return np.hstack(p), np.hstack(v), np.hstack(thrust)


def _tilted(down: Array, level: Array) -> Array:
    """q_wb that takes a level attitude to one with the body's z axis along `down`, by the least turn."""
    axis = np.cross([0.0, 0.0, 1.0], down)
    sine = math.sqrt(axis @ axis)
    if sine < 1e-9:
        axis, sine = np.array([1.0, 0.0, 0.0]), 1.0
    return np.array(product(exp(axis / sine * math.acos(np.clip(down[2], -1.0, 1.0))), level))
