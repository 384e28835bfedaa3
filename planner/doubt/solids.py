"""How near a flight comes to solids, in the direction in which it does, beside how far it may be off there."""

from typing import NamedTuple

import numpy as np

from planner.course.solids import Solid
from planner.doubt.prediction import Prediction
from planner.task import Task

NEAR_M = 2.0  # farther than that from a solid nothing touches it
CLEAR = 6.0  # standard deviations, beyond which a touch has a chance of 1e-9


class NearSolid(NamedTuple):
    """Where a touch is likeliest."""

    name: str
    room_m: float  # from the body's ball to the solid
    sigma_m: float


def near_solids(prediction: Prediction, task: Task, solids: tuple[Solid, ...]) -> list[NearSolid]:
    """The solids that a flight comes near to; the frame of a gate not while it is passed, where its edges count."""
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
        aside = np.maximum(-(prediction.short_w[near] @ away[..., None])[..., 0], 0.0)
        sigma = np.sqrt(np.einsum("mi,mij,mj->m", away, prediction.cov[near], away) + (aside**2).sum(axis=1))
        room = distance[near] - task.vehicle.contact_radius_m
        worst = int((room / np.maximum(sigma, 1e-9)).argmin())
        if room[worst] > CLEAR * sigma[worst]:
            continue
        found.append(NearSolid(solid.name, float(room[worst]), float(sigma[worst])))
    return found


def _passing(prediction: Prediction, task: Task, landmark: int) -> np.ndarray:
    """(M,) whether samples lie on the way through a gate: within its own size of it about the moment of a passage."""
    path, inside = prediction.motion, np.zeros(len(prediction.motion.t), bool)
    for one, mark in zip(prediction.crossings, task.landmarks, strict=True):
        if mark == landmark:
            speed = max(float(np.linalg.norm(one.v_w)), 1.0)
            inside |= np.abs(path.t - one.t) * speed < one.gate.outer_m
    return inside
