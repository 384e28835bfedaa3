"""The levels flown in `crazyflow` (PyPI), many races in one batch, and the referee: passages, contacts, clearances.

Physics, on-board attitude controller and rotors are crazyflow's; courses, disturbances and rules are those of `level.py`.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from gate_racer.race.lsy.level import Places, Race, Rules, Solids, rotation, rules
from gate_racer.vehicle.rotation import Array

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
        self.margins: list[float] = []  # m, body to opening at each passage
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
