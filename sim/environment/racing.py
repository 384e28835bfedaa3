"""Many races at once, for learning: Swift's observations, rewards, episodes and starts (Kaufmann et al. 2023, Methods).

An action (4,) in -1..1 is mass-normalised thrust from 0 to the most there is, and body rates from the least to the most. An
observation (31,) is position, velocity and rotation matrix, the corners of the next gate's opening from the vehicle in body
axes (the paper does not say in which), and the last action, scaled to about -1..1. Commands act one command delay later.
The paper randomises no dynamics, but finetunes on residual models; `Randomisation` is its baseline of that name.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.environment.reward import Reward
from sim.environment.starts import Perturbation, StartStates, turned
from sim.physics.batch import Batch
from sim.physics.contact import Colliders
from sim.physics.observation import ObservationModel, features
from sim.physics.plant import P, Q, V
from sim.physics.residual import ResidualAcceleration
from sim.physics.setting import SETTINGS
from tracks.track import Track
from vehicle.dynamics import GRAVITY, RATES_X, drag
from vehicle.errors import UserError
from vehicle.rotation import Array, rotate
from vehicle.vehicle import Vehicle

Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]
OBSERVATION, ACTION = 31, 4
THRUST = RATES_X["c"].at.start


@dataclass(frozen=True)
class Randomisation:
    """Bounds of what an episode draws, uniform: relative errors of thrust and drag, constant offsets of what is observed."""

    thrust: float = 0.0
    drag: float = 0.0
    position_m: float = 0.0
    velocity_m_s: float = 0.0


@dataclass(frozen=True)
class Options:
    """Of an environment; the defaults are the paper's, but for the rate, which it does not name."""

    control_hz: float = 100.0
    episode_steps: int = 1500
    reward: Reward = field(default_factory=Reward)
    start: Perturbation = field(default_factory=Perturbation)
    randomisation: Randomisation = field(default_factory=Randomisation)
    realisations: int = 16  # of an observation model that the episodes share; each costs the time of drawing it


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """What a step gives to N vehicles. Where an episode has ended, another has begun already."""

    observation: Array  # (N, 31), of the new episode where one has begun
    reward: Array  # (N,)
    terminated: Mask  # (N,) by a crash
    truncated: Mask  # (N,) by its length, or by the last gate of an open course
    final_observation: Array  # (N, 31), before any new episode
    passed: Mask  # (N,) whether a gate was


class RacingEnvironment:
    """N vehicles on one track, of the `rates` model; the same generator gives the same races.

    Examples:
        >>> from gate_racer import RacingEnvironment
        >>> races = RacingEnvironment(vehicle, track, 10, np.random.default_rng(0))
        >>> races.reset().shape
        (10, 31)
    """

    def __init__(
        self,
        vehicle: Vehicle,
        track: Track,
        n: int,
        rng: np.random.Generator,
        options: Options | None = None,
        residual: ResidualAcceleration | None = None,
        observation: ObservationModel | None = None,
        threads: int = 1,
    ):
        """With `residual` and `observation` what flies and what is seen are as a flight has shown them (eq. 10 and 11).

        Raises:
            UserError: a course with other gates than square ones.
            ValueError: a command delay that is no multiple of a step.
        """
        for i, gate in enumerate(track.gates):
            if gate.is_ball or gate.polygon_m is not None:
                raise UserError(
                    f"{track.name}: gates[{i}]: has no four corners to be observed; square openings are needed"
                )
        self.options = options = options or Options()
        delay = vehicle.command_delay_s * options.control_hz
        if abs(delay - round(delay)) > 1e-6:
            raise ValueError(f"a command delay of {delay:.3g} steps: control_hz must make it a whole number")
        self.n, self._vehicle, self._track, self._rng = n, vehicle, track, rng
        self._batch = Batch(vehicle, SETTINGS[1], n, Colliders(track), threads)
        self._starts = StartStates(track, vehicle.contact_radius_m, options.start)
        self._residual = residual
        self._realisations = [observation.sample(rng) for _ in range(options.realisations)] if observation else []
        self._gates = _Gates(track)
        low, high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        self._low, self._high = low, high
        zeros, ones = np.zeros(9), np.ones(9)
        self._middle = np.concatenate([(low + high) / 2, np.zeros(3), zeros])
        self._spread = np.concatenate([(high - low) / 2, np.full(3, vehicle.speed_max_m_s), ones])
        self._reach = float(np.linalg.norm(high - low)) / 2
        self._rates = np.array(vehicle.rate_max_rad_s)
        self._optical_axis_b = vehicle.camera.R_bc[:, 2]
        self._hover = np.array([2 * GRAVITY / vehicle.thrust_max - 1, 0.0, 0.0, 0.0])
        self._commands = np.tile(self._hover, (round(delay) + 1, n, 1))  # a ring; this step's is at its count
        self._count = 0
        self._action = np.tile(self._hover, (n, 1))
        self.next_gate, self._steps = np.zeros(n, int), np.zeros(n, int)
        self._error, self._drawn = np.zeros((n, 6)), np.zeros(n, int)  # offsets of what is seen, realisation
        self._thrust_error, self._drag_error = np.zeros(n), np.zeros(n)

    @property
    def state(self) -> Array:
        """(N, 14) true states as RATES_X: what only a critic may see. Writing to it moves the vehicles."""
        return self._batch.state

    def reset(self) -> Array:
        """Begins all episodes anew. Returns the observations (N, 31)."""
        everyone = np.arange(self.n)
        self._begin(everyone)
        return self._observe(everyone)

    def step(self, action: ArrayLike) -> EnvironmentStep:
        """Flies one step by actions (N, 4), which are limited to -1..1; NaN counts as 0.

        Raises:
            ValueError: actions of another shape.
        """
        asked = np.asarray(action, float)
        if asked.shape != (self.n, ACTION):
            raise ValueError(f"actions of {asked.shape}, where ({self.n}, {ACTION}) is needed")
        asked = np.clip(np.nan_to_num(asked), -1.0, 1.0)
        change, self._action = asked - self._action, asked
        before, gate = self.state[:, P].copy(), self.next_gate
        self._fly(asked)
        after = self.state[:, P]
        nearer = self._gates.distance(gate, before) - self._gates.distance(gate, after)
        outside = ((after < self._low) | (after > self._high)).any(axis=1)
        crashed: Mask = np.asarray(self._batch.impulses.any(axis=1) | outside | ~np.isfinite(self.state).all(axis=1))
        passed = self._gates.passed(gate, before, after) & ~crashed
        last = passed & (gate == len(self._track.gates) - 1)
        done = last & (not self._track.closed)
        self.next_gate = (gate + passed) % len(self._track.gates)
        kept = passed & ~done
        self._starts.keep(self.next_gate[kept], self._batch.x[kept], self._rng)
        self._steps += 1
        truncated: Mask = ~crashed & (done | (self._steps >= self.options.episode_steps))
        omega = asked[:, 1:] * self._rates
        reward = self.options.reward(np.nan_to_num(nearer), self._off_axis(), omega, change, crashed)
        everyone = np.arange(self.n)
        final = self._observe(everyone)
        ended = np.flatnonzero(crashed | truncated)
        observation = final
        if len(ended):
            self._begin(ended)
            observation = final.copy()
            observation[ended] = self._observe(ended)
        return EnvironmentStep(observation, reward, crashed, truncated, final, passed)

    def close(self) -> None:
        """Ends its threads."""
        self._batch.close()

    def _begin(self, which: Indices) -> None:
        """New episodes of some vehicles (k,)."""
        x, self.next_gate[which] = self._starts.draw(len(which), self._rng)
        self._batch.reset(which, x)
        self.state[which, THRUST] = GRAVITY
        self._action[which] = self._commands[:, which] = self._hover
        self._steps[which] = 0
        by, k = self.options.randomisation, len(which)
        self._thrust_error[which] = self._rng.uniform(-by.thrust, by.thrust, k)
        self._drag_error[which] = self._rng.uniform(-by.drag, by.drag, k)
        bounds = np.repeat([by.position_m, by.velocity_m_s], 3)
        self._error[which] = self._rng.uniform(-bounds, bounds, (k, 6))
        self._drawn[which] = self._rng.integers(max(len(self._realisations), 1), size=k)

    def _fly(self, action: Array) -> None:
        ring = len(self._commands)
        self._commands[self._count % ring] = action
        self._count += 1
        acting = self._commands[self._count % ring]  # the oldest
        thrust = 0.5 * (acting[:, 0] + 1) * self._vehicle.thrust_max
        curve = self._vehicle.throttle
        throttle = np.interp(thrust, curve.thrust_m_s2, curve.command)
        self._batch.step(acting[:, 1:] * self._rates, throttle, 1 / self.options.control_hz, self._unknown(thrust))

    def _unknown(self, thrust: Array) -> Array | None:
        """(N, 3) accelerations that the model lacks, or None."""
        x, by = self.state, self.options.randomisation
        found = self._residual.many(x, thrust) if self._residual is not None else None
        if by.thrust or by.drag:
            q, v, zero = x[:, Q].T, x[:, V].T, np.zeros(self.n)
            lift = rotate(q, (zero, zero, -self._thrust_error * x[:, THRUST]))
            air = drag(q, v, self._vehicle.drag_linear_1_s, self._vehicle.drag_quadratic_1_m)
            more = np.stack([a + self._drag_error * b for a, b in zip(lift, air, strict=True)], axis=1)
            found = more if found is None else found + more
        return found

    def _off_axis(self) -> Array:
        """(N,) rad between the camera's optical axis and the centre of the next gate."""
        axis_w = np.stack(rotate(self.state[:, Q].T, self._optical_axis_b), axis=1)
        to_gate = self._gates.centre[self.next_gate] - self.state[:, P]
        cosine = (axis_w * to_gate).sum(1) / np.maximum(np.sqrt((to_gate**2).sum(1)), 1e-9)
        return np.asarray(np.arccos(np.clip(np.nan_to_num(cosine), -1.0, 1.0)))

    def _observe(self, which: Indices) -> Array:
        """(k, 31) of some vehicles (k,)."""
        x = np.nan_to_num(self.state[which, :10])
        x[:, P] += self._error[which, :3]
        x[:, V] += self._error[which, 3:]
        if self._realisations:
            x = self._mistaken(which, x)
        own = features(x)
        R_wb = own[:, 6:].reshape(-1, 3, 3)
        corners_b = (self._gates.corners[self.next_gate[which]] - x[:, None, P]) @ R_wb
        scaled = (own - self._middle) / self._spread
        return np.concatenate([scaled, corners_b.reshape(-1, 12) / self._reach, self._action[which]], axis=1)

    def _mistaken(self, which: Indices, x: Array) -> Array:
        """The states x (k, 10) as the odometry of each vehicle's episode has them."""
        error, drawn = np.zeros((len(x), 9)), self._drawn[which]
        for k in np.unique(drawn):
            mine, realisation = drawn == k, self._realisations[k]
            error[mine] = realisation.errors(x[mine])
        x[:, P] += error[:, :3]
        x[:, V] += error[:, 3:6]
        x[:, Q] = turned(error[:, 6:], x[:, Q])
        return x


class _Gates:
    """The gates of a course as arrays."""

    def __init__(self, track: Track):
        self.centre = np.array([gate.p_wg for gate in track.gates])
        self.corners = np.array([gate.corners() for gate in track.gates])
        self._R_wg = np.array([gate.R_wg for gate in track.gates])
        self._half = np.array([gate.half for gate in track.gates])

    def distance(self, gate: Indices, p_w: Array) -> Array:
        """(N,) m from points (N, 3) to the centres of gates (N,)."""
        return np.asarray(np.sqrt(((p_w - self.centre[gate]) ** 2).sum(1)))

    def passed(self, gate: Indices, before: Array, after: Array) -> Mask:
        """(N,) whether straight steps (N, 3) cross the openings of gates (N,), as `Gate.crossing` does."""
        R_wg, centre = self._R_wg[gate], self.centre[gate]
        a, b = (((p - centre)[:, None] @ R_wg)[:, 0] for p in (before, after))
        crosses = (a[:, 0] < 0) & (b[:, 0] >= 0)
        s = a[:, 0] / np.where(crosses, a[:, 0] - b[:, 0], 1.0)
        at = np.abs(a + s[:, None] * (b - a))[:, 1:].max(axis=1)
        return np.asarray(crosses & (at <= self._half[gate]))
