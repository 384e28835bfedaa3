"""Vectorised races for learning: Swift's observations, rewards, episodes and starts.

Episodes start at a random gate, in a perturbed state of an earlier passage (Swift, Methods). Observations and actions are
defined in `tracks.observation`. Commands act one command delay later. The paper does not randomise the dynamics but finetunes
on residual models; `Randomisation` is its baseline of domain randomisation.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gate_racer.common.errors import UserError
from gate_racer.common.settings import key
from gate_racer.sim.environment import kernel
from gate_racer.sim.environment.kernel import ErrorTables, Reward
from gate_racer.sim.physics.batch import Batch
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.sim.physics.registry import SETTINGS, Setting
from gate_racer.sim.physics.residual import ERRORS, ObservationModel, ResidualAcceleration, features
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.observation import ACTION, OBSERVATION, Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, Indices, Mask, from_euler
from gate_racer.vehicle.vehicle import Vehicle

SLOTS = 64  # passages stored per gate (chosen)
SPEED_M_S = 5.0  # m/s, initial speed at a gate without a stored passage (chosen)
APPROACH_M = 0.5, 8.0  # m, range of the distances before a gate of starts on its axis (chosen)
CLEAR_M = 0.1  # m, clearance of the body from the gate's frame and from the pad (chosen)


@dataclass(frozen=True)
class Perturbation:
    """Bounds of the uniform perturbation of a start, per axis. Guesses: the paper does not give its perturbations."""

    position_m: float = 0.1
    velocity_m_s: float = 0.5
    attitude_rad: float = 0.1


def on_axis(gate: Gate, along_m: float) -> Array:
    """Return the state (13,) on the axis of a gate, `along_m` beyond its centre, level, at SPEED_M_S."""
    x, along = np.zeros(13), gate.R_wg[:, 0]
    x[P], x[Q] = gate.p_wg + along_m * along, from_euler(0.0, 0.0, np.arctan2(along[1], along[0]))
    x[V] = SPEED_M_S * along
    return x


class StartStates:
    """Buffer of start states (13,), the first blocks of RATES_X, by next gate, and on the pad."""

    def __init__(self, track: Track, radius_m: float, perturbation: Perturbation, approaches: float):
        """Fill the buffer with states behind each gate. `radius_m`: of the body; `approaches`: share of starts before a gate."""
        n = len(track.gates)
        self._perturbation, self._approaches, self._track = perturbation, approaches, track
        self.states = np.zeros((n + 1, SLOTS, 13))
        for k, gate in enumerate(track.gates):
            self.states[(k + 1) % n] = on_axis(gate, max(gate.depth_m, gate.tunnel_m) / 2 + radius_m + CLEAR_M)
        pad = track.start.p_wb - (radius_m + CLEAR_M) * np.array([0.0, 0.0, 1.0])
        self.states[n][:, P], self.states[n][:, Q] = pad, track.start.q_wb
        self._places = np.arange(0 if track.closed else 1, n + 1)  # an open course has no gate after its last

    def keep(self, following: NDArray[np.int64], x: Array, rng: np.random.Generator) -> None:
        """Store states x (k, 13) of gate passages by the gates (k,) that follow, each in place of a random older one."""
        self.states[following, rng.integers(self.states.shape[1], size=len(x))] = x

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
        """Draw n perturbed states (n, 13), and the next gate (n,) of each."""
        place = self._places[rng.integers(len(self._places), size=n)]
        x, by = self.states[place, rng.integers(self.states.shape[1], size=n)], self._perturbation
        gate = place % (len(self.states) - 1)
        if self._approaches:
            low, high = np.add(self._track.bounds.low_m, CLEAR_M), np.subtract(self._track.bounds.high_m, CLEAR_M)
            on_pad = place == len(self.states) - 1
            for i in np.flatnonzero((rng.random(n) < self._approaches) & ~on_pad):
                x[i] = on_axis(self._track.gates[gate[i]], -rng.uniform(*APPROACH_M))
                x[i, P] = np.clip(x[i, P], low, high)
        from scipy.spatial.transform import Rotation  # slow to load

        x[:, P] += rng.uniform(-by.position_m, by.position_m, (n, 3))
        x[:, V] += rng.uniform(-by.velocity_m_s, by.velocity_m_s, (n, 3))
        turn = Rotation.from_rotvec(rng.uniform(-by.attitude_rad, by.attitude_rad, (n, 3)))
        x[:, Q] = (turn * Rotation.from_quat(x[:, Q], scalar_first=True)).as_quat(scalar_first=True)
        return x, gate


@dataclass(frozen=True)
class Randomisation:
    """Half widths of each episode's uniform draws: errors of thrust and drag, wind, and constant offsets of the observation."""

    thrust: float = key(0.0, "relative error of the thrust, most of an episode", least=0, most=1)
    drag: float = key(0.0, "relative error of the drag, most of an episode", least=0, most=1)
    wind_m_s: float = key(0.0, "wind north and east, most of an episode, m/s", least=0)
    position_m: float = key(0.0, "offset of the observed position on each axis, most of an episode, m", least=0)
    velocity_m_s: float = key(0.0, "offset of the observed velocity, likewise, m/s", least=0)
    attitude_rad: float = key(0.0, "offset of the observed attitude, likewise, rad", least=0)


@dataclass(frozen=True)
class Options:
    """Options of an environment; the defaults are the paper's, except for the rate, which is not published."""

    control_hz: float = 100.0
    setting: Setting = SETTINGS[1]  # only its plant counts; observation errors are those of the environment
    episode_steps: int = 1500
    gate_steps: int = 1500  # steps without a gate after which an episode ends as after a crash, but without its penalty
    reward: Reward = field(default_factory=Reward)
    start: Perturbation = field(default_factory=Perturbation)
    approaches: float = 0.0  # share of the episodes that would start behind a gate which start before one, on its axis
    randomisation: Randomisation = field(default_factory=Randomisation)
    realisations: int = 16  # tabulated realisations of the observation model, one of which an episode has


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """Result of a step for N vehicles. Where an episode has ended, the next one has already begun."""

    observation: Array  # (N, 31); of the new episode where one has begun
    reward: Array  # (N,)
    terminated: Mask  # (N,) ended by a crash, or long without a gate
    truncated: Mask  # (N,) ended by the step limit, or by the last gate of an open course
    final_observation: Array  # (N, 31); before any new episode
    passed: Mask  # (N,) whether a gate was passed


class RacingEnvironment:
    """N vehicles on one track, without interaction; deterministic for a generator.

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
        """Set up the vehicles; `residual` and `observation` are models learned from flights (eq. 11 and 10).

        Raises:
            UserError: a gate is not square, or the setting needs a grey-box model that the vehicle does not have.
        """
        for i, gate in enumerate(track.gates):
            if gate.is_ball or gate.polygon_m is not None:
                raise UserError(f"{track.name}: gates[{i}]: the observation needs four corners of a square opening")
        self.options = options = options or Options()
        self.n, self._vehicle, self._track, self._rng = n, vehicle, track, rng
        self._batch = Batch(vehicle, options.setting, n, Colliders(track), threads)
        self._starts = StartStates(track, vehicle.contact_radius_m, options.start, options.approaches)
        self._residual = residual
        self._tables = ErrorTables(observation, options.realisations, rng) if observation else None
        self._course, self._scales = kernel.CourseArrays.of(track, vehicle), Scaling.of(track, vehicle)
        self._hover = self._scales.hover
        delay = vehicle.command_delay_s * options.control_hz  # command delay in steps
        late = math.ceil(delay - 1e-6)  # steps after which a command acts for the whole step
        self._share = min(1.0 + delay - late, 1.0)  # fraction of a step before the next command takes effect
        self._commands = np.tile(self._hover, (late + 1, n, 1))  # ring buffer, indexed by the step count
        self._count = 0
        self._action = np.tile(self._hover, (n, 1))
        self.next_gate, self._steps, self._since_gate = np.zeros(n, int), np.zeros(n, int), np.zeros(n, int)
        self._error, self._drawn = np.zeros((n, ERRORS)), np.zeros(n, int)  # observation offset; realisation
        self._model_error = np.zeros((n, 4))  # relative errors of thrust and drag; wind north and east, m/s
        self._everyone = np.arange(n)

    @property
    def state(self) -> Array:
        """True states (N, n), beginning as RATES_X, for a critic only; a view: writing to it moves the vehicles."""
        return self._batch.state

    def truth(self) -> Array:
        """Return true position, velocity and rotation matrix (N, 15), scaled as in an observation, for a critic only."""
        centre = np.append(self._scales.middle_m, np.zeros(12))
        scale = np.concatenate([self._scales.half_m, np.full(3, self._scales.speed_m_s), np.ones(9)])
        return np.nan_to_num((features(self.state) - centre) / scale, nan=0.0, posinf=0.0, neginf=0.0)

    def reset(self) -> Array:
        """Begin a new episode for every vehicle and return the observations (N, 31)."""
        self._begin(self._everyone)
        return self._observe(self._everyone)

    def step(self, action: ArrayLike) -> EnvironmentStep:
        """Advance one step with actions (N, 4), clipped to -1..1; NaN counts as 0.

        Raises:
            ValueError: actions have another shape.
        """
        actions = np.array(action, float)
        if actions.shape != (self.n, ACTION.size):
            raise ValueError(f"actions of shape {actions.shape}: expected ({self.n}, {ACTION.size})")
        actions[np.isnan(actions)] = 0.0
        actions = np.minimum(np.maximum(actions, -1.0), 1.0)
        last, self._action = self._action, actions
        before, gate = self.state[:, P].copy(), self.next_gate
        hit = self._fly(actions)
        reward, crashed, passed = np.empty(self.n), np.empty(self.n, bool), np.empty(self.n, bool)
        weights, course = self.options.reward, self._course
        kernel.judge(
            self.state, before, hit, gate, actions, last, course, self._scales, weights, reward, crashed, passed
        )
        done: Mask = passed & (gate == len(self._track.gates) - 1) & (not self._track.closed)
        self.next_gate = (gate + passed) % len(self._track.gates)
        if passed.any():
            kept = passed & ~done
            self._starts.keep(self.next_gate[kept], self._batch.x[kept], self._rng)
        self._steps += 1
        self._since_gate = np.where(passed, 0, self._since_gate + 1)
        truncated: Mask = ~crashed & (done | (self._steps >= self.options.episode_steps))
        terminated = crashed | (~truncated & (self._since_gate >= self.options.gate_steps))
        final = self._observe(self._everyone)
        ended, observation = np.flatnonzero(terminated | truncated), final
        if len(ended):
            self._begin(ended)
            observation = final.copy()
            observation[ended] = self._observe(ended)
        return EnvironmentStep(observation, reward, terminated, truncated, final, passed)

    def close(self) -> None:
        self._batch.close()

    def _begin(self, which: Indices) -> None:
        x, self.next_gate[which] = self._starts.draw(len(which), self._rng)
        self._batch.reset(which, x)
        self._batch.carry(which)
        self._action[which] = self._commands[:, which] = self._hover
        self._steps[which] = self._since_gate[which] = 0
        by, k = self.options.randomisation, len(which)
        unlike = np.array([by.thrust, by.drag, by.wind_m_s, by.wind_m_s])
        self._model_error[which] = self._rng.uniform(-unlike, unlike, (k, len(unlike)))
        bounds = np.repeat([by.position_m, by.velocity_m_s, by.attitude_rad], 3)
        self._error[which] = self._rng.uniform(-bounds, bounds, (k, ERRORS))
        self._drawn[which] = self._rng.integers(len(self._tables) if self._tables else 1, size=k)

    def _fly(self, action: Array) -> Mask:
        """Advance one step with the delayed commands; return the mask (N,) of vehicles with a contact."""
        ring, curve, hit = len(self._commands), self._vehicle.throttle, np.zeros(self.n, bool)
        self._commands[self._count % ring] = action
        for k, share in ((1, self._share), (2, 1.0 - self._share)):  # the oldest command, and the next one
            if share > 1e-6:
                acting, dt = self._commands[(self._count + k) % ring], share / self.options.control_hz
                thrust = 0.5 * (acting[:, 0] + 1) * self._vehicle.thrust_max
                throttle = np.interp(thrust, curve.thrust_m_s2, curve.command)
                self._batch.step(acting[:, 1:] * self._scales.rate_max_rad_s, throttle, dt, self._unknown(thrust))
                hit |= self._batch.impulses.any(axis=1)
        self._count += 1
        return hit

    def _unknown(self, thrust: Array) -> Array | None:
        """Return unmodelled accelerations (N, 3), m/s^2, world, or None. `thrust` (N,): commanded thrust, m/s^2."""
        x, by = self.state, self.options.randomisation
        found = self._residual.many(x, thrust) if self._residual is not None else None
        if by.thrust or by.drag or by.wind_m_s:
            more = kernel.unmodelled(x, thrust, self._model_error, self._vehicle)
            return more if found is None else found + more
        return found

    def _observe(self, which: Indices) -> Array:
        error, seen = self._error, np.empty((len(which), OBSERVATION.size))
        if self._tables is not None:
            error = error + self._tables.errors(self.state, self._drawn)
        view = self._course, self._scales
        kernel.observe(which, self.state, error, self.next_gate, self._action, *view, seen)
        return seen
