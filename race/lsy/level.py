"""The levels of the open leaderboard `lsy_drone_racing` (TUM), the draw of one course, and its solids; numbers in `levels.yaml`.

Gates, stands and poles are boxes and capsules, with exact gaps for the referee and nearest points for the controller.

World z up, metres, radians; this room keeps the published frame, since only states and gates cross its border.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gate_racer.common.config import load
from gate_racer.vehicle.rotation import Array

Box = tuple[float, float, float]


@cache
def rotation() -> Any:
    """Return SciPy's class `Rotation`, loaded at first use: no command waits for SciPy until it computes."""
    from scipy.spatial.transform import Rotation

    return Rotation


@dataclass(frozen=True)
class GatePlace:
    """Centre of the opening, m; the drone flies along the x axis of its frame."""

    centre: Box
    rpy: Box


@dataclass(frozen=True)
class Layout:
    """How courses of the last level are drawn on a grid."""

    start_m: Box
    low_m: tuple[float, float]
    high_m: tuple[float, float]
    border_m: float
    apart_m: float
    corridor_m: float
    yaw: float
    cells: int


@dataclass(frozen=True)
class Rules:
    """The published numbers; meanings and units in `levels.yaml`."""

    source: str
    drone: str
    physics_hz: int
    control_hz: int
    limit_s: float
    sensor_m: float
    passage_m: float
    body_half_m: Box
    low_m: Box
    high_m: Box
    start_m: Box
    gates: tuple[GatePlace, ...]
    poles: tuple[Box, ...]
    command_sigma: float
    force_n: Box
    vehicle_from: int
    start_low_m: Box
    start_high_m: Box
    start_rpy: Box
    mass_kg: float
    inertia_kg_m2: Box
    places_from: int
    gate_m: Box
    gate_rpy: Box
    pole_m: Box
    layout_from: int
    layout: Layout

    @property
    def control_s(self) -> float:
        return 1.0 / self.control_hz


@cache
def rules() -> Rules:
    return load(Path(__file__).with_name("levels.yaml"), Rules)


@dataclass(frozen=True)
class Places:
    centres: Array  # (G, 3) m
    rotations: Array  # (G, 3, 3), gate to world
    poles: Array  # (K, 3) m, tops


@dataclass(frozen=True)
class Race:
    """One drawn race: what is told before the start, what is true, and the drone's own condition."""

    seed: int
    told: Places
    true: Places
    start: Array  # (3,) m
    rotation: Array  # (3, 3), body to world at the start
    mass_offset: float  # kg
    inertia_offset: Array  # (3,) kg m^2


def draw(level: int, seed: int) -> Race:
    r, rng = rules(), np.random.default_rng([level, seed])
    told = _nominal(r) if level < r.layout_from else _laid_out(r, rng)
    true = told if level < r.places_from else _moved(r, told, rng)
    start = np.array(r.start_m if level < r.layout_from else r.layout.start_m)
    if level < r.vehicle_from:
        return Race(seed, told, true, start, np.eye(3), 0.0, np.zeros(3))
    start = start + rng.uniform(r.start_low_m, r.start_high_m)
    turned = rotation().from_euler("xyz", _within(rng, r.start_rpy)).as_matrix()
    mass_offset = float(rng.uniform(-r.mass_kg, r.mass_kg))
    return Race(seed, told, true, start, turned, mass_offset, _within(rng, r.inertia_kg_m2))


def _within(rng: np.random.Generator, half: Array | Box) -> Array:
    return rng.uniform(-np.asarray(half), half)


def _nominal(r: Rules) -> Places:
    rotations = rotation().from_euler("xyz", [gate.rpy for gate in r.gates]).as_matrix()
    return Places(np.array([gate.centre for gate in r.gates]), rotations, np.array(r.poles))


def _moved(r: Rules, told: Places, rng: np.random.Generator) -> Places:
    """Return places displaced as published: positions, and the Euler angles of the gates."""
    centres = told.centres + np.array([_within(rng, r.gate_m) for _ in told.centres])
    rpy = rotation().from_matrix(told.rotations).as_euler("xyz")
    turned = rotation().from_euler("xyz", rpy + [_within(rng, r.gate_rpy) for _ in rpy]).as_matrix()
    return Places(centres, turned, told.poles + np.array([_within(rng, r.pole_m) for _ in told.poles]))


def _laid_out(r: Rules, rng: np.random.Generator) -> Places:
    """Draw gates one after the other, apart from all before and off the legs flown, and a pole on each leg.

    The published draw keeps gates clear of a random point; here they are clear of the start, where a gate would be a crash.
    """
    how = r.layout
    low, high = np.array(how.low_m) + how.border_m, np.array(how.high_m) - how.border_m
    axes = [np.linspace(a, b, how.cells) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)

    def clear(centre: Array) -> npt.NDArray[np.bool_]:
        return np.linalg.norm(grid - centre, axis=1) > how.apart_m

    def pick(allowed: npt.NDArray[np.bool_]) -> Array:
        cells = np.flatnonzero(allowed) if allowed.any() else np.arange(len(grid))
        return grid[rng.choice(cells)] + _within(rng, (high - low) / how.cells / 2)

    before = np.array(how.start_m[:2])
    for_gates = clear(before)
    for_poles = for_gates.copy()
    gates, yaws, poles = [], [], []
    for _ in r.gates:
        gate = pick(for_gates)
        leg = gate - before
        along = np.clip((grid - before) @ leg / (leg @ leg), 0.0, 1.0)
        corridor = np.linalg.norm(grid - before - along[:, None] * leg, axis=1) < how.corridor_m
        for_gates &= clear(gate)
        pole = pick(corridor & for_poles)
        for_gates &= ~corridor
        for_poles &= clear(gate) & clear(pole)
        gates.append(gate)
        yaws.append(np.arctan2(leg[1], leg[0]) + rng.uniform(-how.yaw, how.yaw))
        poles.append(pole)
        before = gate
    heights = [gate.centre[2] for gate in r.gates], [pole[2] for pole in r.poles]
    rotations = rotation().from_euler("z", np.array(yaws)[:, None]).as_matrix()
    return Places(np.column_stack([gates, heights[0]]), rotations, np.column_stack([poles, heights[1]]))


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

        self._mujoco, spec, boxes, kinds = mujoco, mujoco.MjSpec(), boxes_of(places), mujoco.mjtGeom
        for centre, R, half, radius in zip(boxes.centres, boxes.rotations, boxes.half, boxes.radius, strict=True):
            kind, size = (kinds.mjGEOM_CAPSULE, (radius, half[2], 0.0)) if radius else (kinds.mjGEOM_BOX, half)
            spec.worldbody.add_geom(type=kind, pos=centre, quat=_wxyz(R), size=size)
        body = spec.worldbody.add_body(mocap=True)
        body.add_geom(type=kinds.mjGEOM_BOX, size=rules().body_half_m)
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
