"""The levels of the open leaderboard `lsy_drone_racing` (TUM) and the draw of one course; numbers in `levels.yaml`.

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
        """Duration of a control step, s."""
        return 1.0 / self.control_hz


@cache
def rules() -> Rules:
    """Return the published numbers."""
    return load(Path(__file__).with_name("levels.yaml"), Rules)


@dataclass(frozen=True)
class Places:
    """Where gates and poles stand."""

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
    """Draw the race of a level and a seed."""
    r, rng = rules(), np.random.default_rng([level, seed])
    told = _nominal(r) if level < r.layout_from else _laid_out(r, rng)
    true = told if level < r.places_from else _moved(r, told, rng)
    start = np.array(r.start_m if level < r.layout_from else r.layout.start_m)
    if level < r.vehicle_from:
        return Race(seed, told, true, start, np.eye(3), 0.0, np.zeros(3))
    return Race(
        seed,
        told,
        true,
        start + rng.uniform(r.start_low_m, r.start_high_m),
        rotation().from_euler("xyz", _within(rng, r.start_rpy)).as_matrix(),
        float(rng.uniform(-r.mass_kg, r.mass_kg)),
        _within(rng, r.inertia_kg_m2),
    )


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
