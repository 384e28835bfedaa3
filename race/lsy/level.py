"""The levels of the open leaderboard `lsy_drone_racing` (TUM), the draw of one course, and its solids; numbers in `levels.yaml`.

Gates, stands and poles are boxes and capsules, with exact gaps for the referee and nearest points for the controller. Races are
flown in `crazyflow` (PyPI), many in one batch: physics, on-board attitude controller and rotors are crazyflow's.

World z up, metres, radians; this room keeps the published frame, since only states and gates cross its border.
"""

import inspect
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


TAKEOFF_M = 0.02  # m, horizontal distance from the start within which the floor is no crash


@dataclass(frozen=True)
class Observation:
    """What a drone is told at a control step; world z up."""

    t: float  # s
    position: Array  # (3,) m
    rotation: Array  # (3, 3), body to world
    velocity: Array  # (3,) m/s, world
    rates: Array  # (3,) rad/s, body
    target: int  # index of the next gate, -1 after the last
    places: Places  # true where seen, else as told before
    gates_seen: Array  # (G,) bool
    poles_seen: Array  # (K,) bool


class Referee:
    """Passages, contacts and the end of one race."""

    def __init__(self, race: Race):
        self._rules: Rules = rules()
        self._race, self._solids, self._last = race, Solids(race.true), race.start
        self.target, self.t, self.status = 0, 0.0, ""
        known = race.told is race.true  # by the level's rules, which the racer knows
        self.gates_seen = np.full(len(race.true.centres), known)
        self.poles_seen = np.full(len(race.true.poles), known)
        self.clearance = np.inf  # m, least of body to frames, stands and poles at any step of the physics
        self._look(race.start)

    def _look(self, position: Array) -> None:
        for seen, places in ((self.gates_seen, self._race.true.centres), (self.poles_seen, self._race.true.poles)):
            seen |= np.linalg.norm(places[:, :2] - position[:2], axis=1) < self._rules.sensor_m

    @property
    def places(self) -> Places:
        """What is known of the course: the truth where it has been seen."""
        told, true, seen = self._race.told, self._race.true, self.gates_seen
        return Places(
            np.where(seen[:, None], true.centres, told.centres),
            np.where(seen[:, None, None], true.rotations, told.rotations),
            np.where(self.poles_seen[:, None], true.poles, told.poles),
        )

    def judge(self, positions: Array, rotations: Array) -> None:
        """Judge a control step flown along positions (parts, 3) and rotations (parts, 3, 3), by the published rules.

        These look at the end of a control step only, at contacts as at passages; `clearance` looks at all of it.
        """
        r, now = self._rules, positions[-1]
        self.t += r.control_s
        touched = False
        for at, turned in zip(positions, rotations, strict=True):
            gap = self._solids.gap(at, turned)
            self.clearance = min(self.clearance, gap)
            touched = gap < 0
        off = np.any(np.abs(now[:2] - self._race.start[:2]) > TAKEOFF_M)
        if touched:
            self.status = "contact"
        elif (off and np.any(now < r.low_m)) or np.any(now > r.high_m):
            self.status = "left the arena"
        self._look(now)
        if not self.status:
            self._pass(now)
        if not self.status and self.t > r.limit_s:
            self.status = "timeout"
        self._last = now

    def _pass(self, now: Array) -> None:
        true = self._race.true
        a, b = ((p - true.centres[self.target]) @ true.rotations[self.target] for p in (self._last, now))
        if not (a[0] < 0 < b[0]):
            return
        at = a + a[0] / (a[0] - b[0]) * (b - a)
        if np.all(np.abs(at[1:]) < self._rules.passage_m / 2):
            self.target += 1
            if self.target == len(true.centres):
                self.target, self.status = -1, "finished"


class Arena:
    """Races of one level, one of crazyflow's vehicles each, flown in one batch."""

    def __init__(self, races: list[Race]):
        """Compile the physics, in half a minute, and set the vehicles on their starts."""
        from crazyflow.sim import Sim

        self.referees = [Referee(race) for race in races]
        self._rules = r = rules()
        rates = {"freq": r.physics_hz, "attitude_freq": r.physics_hz, "state_freq": r.control_hz}
        drone = "drone" if "drone" in inspect.signature(Sim).parameters else "drone_model"  # as of 0.3; before
        self._sim: Any = Sim(n_worlds=len(races), n_drones=1, control="attitude", **rates, **{drone: r.drone})
        self._parts = r.physics_hz // r.control_hz
        self._rngs = [np.random.default_rng([race.seed, 1]) for race in races]
        data, params = self._sim.data, self._sim.data.params
        states = data.states.replace(
            pos=np.array([[race.start] for race in races], np.float32),
            quat=np.array([[rotation().from_matrix(race.rotation).as_quat()] for race in races], np.float32),
        )
        mass = np.asarray(params.mass) + np.array([race.mass_offset for race in races]).reshape(-1, 1, 1)
        inertia = np.asarray(params.J) + np.array([[np.diag(race.inertia_offset)] for race in races])
        changed = {"mass": mass, "J": inertia, "J_inv": np.linalg.inv(inertia)}
        params = params.replace(**{name: array.astype(np.float32) for name, array in changed.items()})
        self._sim.data = data.replace(states=states, params=params)

    def _state(self) -> tuple[Array, Array, Array, Array]:
        """Return positions (n, 3), rotations (n, 3, 3), velocities (n, 3), body rates (n, 3)."""
        s = self._sim.data.states
        position, quaternion, velocity, rates = (np.asarray(a, float)[:, 0] for a in (s.pos, s.quat, s.vel, s.ang_vel))
        return position, rotation().from_quat(quaternion).as_matrix(), velocity, rates

    def observe(self) -> list[Observation]:
        return [
            Observation(ref.t, p, R, v, w, ref.target, ref.places, ref.gates_seen.copy(), ref.poles_seen.copy())
            for ref, p, R, v, w in zip(self.referees, *self._state(), strict=True)
        ]

    def step(self, commands: Array) -> None:
        """Fly a control step under commands (n, 4), roll, pitch, yaw in rad and thrust in N; judge the races that go on."""
        r, sim = self._rules, self._sim
        noisy = commands + np.array([rng.normal(0.0, r.command_sigma, 4) for rng in self._rngs])
        forces = np.array([rng.uniform(-1.0, 1.0, (self._parts, 3)) for rng in self._rngs]) * r.force_n
        sim.attitude_control(noisy[:, None].astype(np.float32))
        path = []
        for part in range(self._parts):
            force = forces[:, None, part].astype(np.float32)
            sim.data = sim.data.replace(states=sim.data.states.replace(force=force))
            sim.step(1)
            path.append(self._state()[:2])
        positions, rotations = (np.array(part) for part in zip(*path, strict=True))
        for i, referee in enumerate(self.referees):
            if not referee.status:
                referee.judge(positions[:, i], rotations[:, i])
