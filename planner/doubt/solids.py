"""Distance of a flight to solids, with the standard deviation of the position in that direction."""

from typing import NamedTuple

import numpy as np

from gate_racer.planner.course.solids import Solid
from gate_racer.planner.doubt.prediction import Prediction
from gate_racer.planner.task import Task

NEAR_M = 2.0  # m, distance above which a solid is ignored
CLEAR = 6.0  # standard deviations above which a collision is ignored, with a probability of 1e-9


class NearSolid(NamedTuple):
    """Point of a flight at which a collision with a solid is most likely."""

    name: str
    room_m: float  # m, from the body's sphere to the solid
    sigma_m: float  # m, standard deviation of the position towards the solid


def near_solids(prediction: Prediction, task: Task, solids: tuple[Solid, ...]) -> list[NearSolid]:
    """Return the solids near a flight; a gate's frame not during its passage, for which the opening's edges are checked."""
    found, p_w = [], prediction.motion.p_w
    for solid in solids:
        distance = solid.box.distance(p_w)
        if solid.frame >= 0:
            distance[_passing(prediction, task, solid.frame)] = np.inf
        near = np.flatnonzero(distance < NEAR_M)
        if not len(near):
            continue
        off_b = (p_w[near] - solid.box.centre) @ solid.box.axes
        off_b -= np.clip(off_b, -solid.box.half, solid.box.half)
        away = off_b @ solid.box.axes.T / np.maximum(np.linalg.norm(off_b, axis=1, keepdims=True), 1e-9)
        shortfall = np.maximum(-(prediction.short_w[near] @ away[..., None])[..., 0], 0.0)
        sigma = np.sqrt(np.einsum("mi,mij,mj->m", away, prediction.cov[near], away) + (shortfall**2).sum(axis=1))
        room = distance[near] - task.vehicle.contact_radius_m
        worst = int((room / np.maximum(sigma, 1e-9)).argmin())
        if room[worst] > CLEAR * sigma[worst]:
            continue
        found.append(NearSolid(solid.name, float(room[worst]), float(sigma[worst])))
    return found


def _passing(prediction: Prediction, task: Task, landmark: int) -> np.ndarray:
    """Return for each sample, (M,), whether it lies on the passage of a gate, within the gate's outer size of the crossing."""
    path, inside = prediction.motion, np.zeros(len(prediction.motion.t), bool)
    for one, mark in zip(prediction.crossings, task.landmarks, strict=True):
        if mark == landmark:
            speed = max(float(np.linalg.norm(one.v_w)), 1.0)
            inside |= np.abs(path.t - one.t) * speed < one.gate.outer_m
    return inside
