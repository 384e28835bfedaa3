"""Visibility of the gates along a replayed path."""

import numpy as np

from gate_racer.planner.certificate.replay import ReplayedPath
from gate_racer.planner.models import P, Q
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array


def seen_shares(
    path: ReplayedPath, course: tuple[Gate, ...], times: list[float], camera: Camera, task: Task
) -> list[float | None]:
    """Return per gate the fraction of time, on the leg to it once within detection range, in which it is in view; or None."""
    begins = [float(path.t[0]), *times]
    seen = [_seen(path, *leg, camera, task) for leg in zip(course, begins, times, strict=False)]
    return [None if one is None else one[0] / one[1] for one in seen]


def seen_times(
    path: ReplayedPath, course: tuple[Gate, ...], times: list[float], camera: Camera, task: Task
) -> list[float | None]:
    """Return per gate the time in s, on the leg to it and the one before once within detection range, in which it is in view."""
    begins = [float(path.t[0])] * 2 + times
    seen = [_seen(path, *legs, camera, task) for legs in zip(course, begins, times, strict=False)]
    return [None if one is None else one[0] for one in seen]


def _seen(
    path: ReplayedPath, gate: Gate, begin: float, crossed: float, camera: Camera, task: Task
) -> tuple[float, float] | None:
    """Return the time in s in view, and that within detection range, from `begin` until a gate is crossed; or None."""
    leg = (path.t[1:] > begin) & (path.t[1:] <= crossed + 1e-9)
    off = np.linalg.norm(path.x[1:, P] - np.array(gate.centre_m), axis=1)
    leg[: np.flatnonzero(leg & (off > task.view_range_m(gate))).max(initial=-1) + 1] = False
    if gate.is_ball or not gate.visible or not leg.any():
        return None
    points = gate.corners() if task.options.see_corners else np.array(gate.centre_m)[None]
    dt = np.diff(path.t)[leg]
    return float(dt @ _in_view(camera, points, path.x[1:][leg])), float(dt.sum())


def blind_times(path: ReplayedPath, course: tuple[Gate, ...], times: list[float], camera: Camera) -> list[float | None]:
    """Return per gate the time in s from the last view of all four corners of its opening to the crossing; None if never."""
    result: list[float | None] = []
    before = 0.0
    for gate, crossed in zip(course, times, strict=False):
        leg = np.flatnonzero((path.t >= before) & (path.t <= crossed))
        seen = leg[_in_view(camera, gate.corners(), path.x[leg])] if not gate.is_ball and len(leg) else leg[:0]
        result.append(float(crossed - path.t[seen[-1]]) if len(seen) else None)
        before = crossed
    return result


def _in_view(camera: Camera, points_w: Array, x: Array) -> np.ndarray:
    """Return for each state x (M, NX), (M,), whether all world points (K, 3) are in the image."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    turn = Rotation.from_quat(x[:, Q], scalar_first=True)
    result = np.ones(len(x), dtype=bool)
    for point in points_w:
        p_c = (turn.inv().apply(point - x[:, P]) - camera.p_bc) @ camera.R_bc
        ahead = p_c[:, 2] > 1e-3
        p_c[~ahead] = [0.0, 0.0, 1.0]
        result &= ahead & camera.sees(camera.project(p_c))
    return result
