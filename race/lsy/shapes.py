"""Gates, stands and poles as boxes and capsules: exact gaps for the referee, nearest points for the controller."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gate_racer.race.lsy.level import Places, rotation, rules
from gate_racer.vehicle.rotation import Array

# Collision shapes of the published assets, in the frame of a gate: centre and half-widths of boxes, m.
FRAME = (
    ((0.0, 0.0, 0.28), (0.01, 0.36, 0.08)),
    ((0.0, 0.0, -0.28), (0.01, 0.36, 0.08)),
    ((0.0, -0.28, 0.0), (0.01, 0.08, 0.36)),
    ((0.0, 0.28, 0.0), (0.01, 0.08, 0.36)),
)
STAND = ((0.0, 0.0, -0.86), (0.05, 0.05, 0.5))
OPENING_M, POLE_RADIUS_M, POLE_M = 0.4, 0.015, 1.6  # side; radius; length down from the top
NEAR_M = 0.3  # m, gaps beyond are not computed


@dataclass(frozen=True)
class Boxes:
    """All points within a radius of boxes."""

    centres: Array  # (n, 3) m
    rotations: Array  # (n, 3, 3), box to world
    half: Array  # (n, 3) m
    radius: Array  # (n,) m
    owner: Array  # (n,) index of the gate, -1 - index of a pole

    def nearest(self, points: Array) -> Array:
        """Return the point of each box nearest to each of points (..., 3): (..., n, 3)."""
        local = np.einsum("...ni,nij->...nj", points[..., None, :] - self.centres, self.rotations)
        return self.centres + np.einsum("nij,...nj->...ni", self.rotations, np.clip(local, -self.half, self.half))


def boxes_of(places: Places) -> Boxes:
    """Return bars, stands and poles."""
    parts: list[tuple[Any, ...]] = []
    for g, (centre, R) in enumerate(zip(places.centres, places.rotations, strict=True)):
        parts += [(centre + R @ middle, R, half, 0.0, g) for middle, half in (*FRAME, STAND)]
    middle, half = np.array([0.0, 0.0, -POLE_M / 2]), (0.0, 0.0, POLE_M / 2)
    parts += [(top + middle, np.eye(3), half, POLE_RADIUS_M, -1 - k) for k, top in enumerate(places.poles)]
    return Boxes(*(np.array(one) for one in zip(*parts, strict=True)))


class Solids:
    """MuJoCo's geometry of one course and the body, for exact gaps."""

    def __init__(self, places: Places):
        import mujoco

        self._mujoco, spec = mujoco, mujoco.MjSpec()
        for R, centre in zip(places.rotations, places.centres, strict=True):
            gate = spec.worldbody.add_body(pos=centre, quat=_wxyz(R))
            for middle, half in (*FRAME, STAND):
                gate.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, pos=middle, size=half)
        for top in places.poles:
            pos = top - (0.0, 0.0, POLE_M / 2)
            spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE, pos=pos, size=(POLE_RADIUS_M, POLE_M / 2, 0.0))
        body = spec.worldbody.add_body(mocap=True)
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=rules().body_half_m)
        self._model: Any = spec.compile()
        self._data: Any = mujoco.MjData(self._model)
        self._body = int(np.flatnonzero(self._model.body_mocapid >= 0)[0])
        self._body_geom = int(self._model.body_geomadr[self._body])
        self._others = [g for g in range(self._model.ngeom) if g != self._body_geom]
        mujoco.mj_kinematics(self._model, self._data)
        self._centres: Array = self._data.geom_xpos[self._others].copy()
        self._reach: Array = self._model.geom_rbound[self._others].copy()

    def gap(self, position: Array, rotation: Array) -> float:
        """Return the least distance, m, from the body to any part, below 0 in contact; at most `NEAR_M`."""
        away = np.linalg.norm(self._centres - position, axis=1) - self._reach
        near = np.flatnonzero(away < NEAR_M)
        if not len(near):
            return NEAR_M
        self._data.mocap_pos[0], self._data.mocap_quat[0] = position, _wxyz(rotation)
        self._mujoco.mj_kinematics(self._model, self._data)
        return min(
            self._mujoco.mj_geomDistance(self._model, self._data, self._others[i], self._body_geom, NEAR_M, None)
            for i in near
        )


def _wxyz(R: Array) -> Array:
    return rotation().from_matrix(R).as_quat(scalar_first=True)


def support(rotation: Array, direction: Array) -> Array:
    """Return how far the body's box reaches, m, along unit directions (..., 3), at rotations (..., 3, 3)."""
    return np.abs(np.einsum("...ij,...i->...j", rotation, direction)) @ np.array(rules().body_half_m)
