"""Many races at once, for learning: Swift's observations, rewards, episodes and starts (Kaufmann et al. 2023, Methods).

What is observed and what an action means stands in `tracks.observation`. Commands act one command delay later. The paper
randomises no dynamics, but finetunes on residual models; `Randomisation` is its baseline of that name.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.environment import kernel
from sim.environment.reward import Reward
from sim.environment.starts import Perturbation, StartStates
from sim.physics.batch import Batch
from sim.physics.contact import Colliders
from sim.physics.observation import ObservationModel
from sim.physics.plant import RIGID, P
from sim.physics.residual import ResidualAcceleration
from sim.physics.setting import SETTINGS, Setting
from tracks.observation import ACTION, OBSERVATION, Scaling
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]
ERRORS = 9  # of what is observed: position (m), velocity (m/s) and attitude (rad, rotation vector), world
TRUTH = 15  # position, velocity and rotation matrix


@dataclass(frozen=True)
class Randomisation:
    """Bounds of what an episode draws, uniform: relative errors of thrust and drag, constant offsets of what is observed."""

    thrust: float = 0.0
    drag: float = 0.0
    position_m: float = 0.0
    velocity_m_s: float = 0.0
    attitude_rad: float = 0.0


@dataclass(frozen=True)
class Options:
    """Of an environment; the defaults are the paper's, but for the rate, which it does not name."""

    control_hz: float = 100.0
    setting: Setting = SETTINGS[1]  # whose plant flies; what is observed wrongly is the environment's own
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
    final_truth: Array  # (N, 15), likewise, see `RacingEnvironment.truth`
    passed: Mask  # (N,) whether a gate was


class RacingEnvironment:
    """N vehicles on one track; the same generator gives the same races.

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
            UserError: a course with other gates than square ones, or a vehicle without a grey-box model where that flies.
        """
        for i, gate in enumerate(track.gates):
            if gate.is_ball or gate.polygon_m is not None:
                raise UserError(
                    f"{track.name}: gates[{i}]: has no four corners to be observed; square openings are needed"
                )
        self.options = options = options or Options()
        self.n, self._vehicle, self._track, self._rng = n, vehicle, track, rng
        self._batch = Batch(vehicle, options.setting, n, Colliders(track), threads)
        self._starts = StartStates(track, vehicle.contact_radius_m, options.start)
        self._residual = residual
        self._realisations = [observation.sample(rng) for _ in range(options.realisations)] if observation else []
        scaling = Scaling.of(track, vehicle)
        self._course, self._scales = kernel.Course.of(track, vehicle), kernel.Scales.of(scaling)
        self._rates, self._hover = scaling.rate_max_rad_s, scaling.hover
        self._linear = np.array(vehicle.drag_linear_1_s)
        delay = vehicle.command_delay_s * options.control_hz  # in steps
        late = math.ceil(delay - 1e-6)  # steps after which a command acts throughout
        self._share = min(1.0 + delay - late, 1.0)  # of a step, before the next command begins to act
        self._commands = np.tile(self._hover, (late + 1, n, 1))  # a ring; this step's is at its count
        self._count = 0
        self._action = np.tile(self._hover, (n, 1))
        self.next_gate, self._steps = np.zeros(n, int), np.zeros(n, int)
        self._error, self._drawn = np.zeros((n, ERRORS)), np.zeros(n, int)  # of what is seen; realisation
        self._thrust_error, self._drag_error = np.zeros(n), np.zeros(n)
        self._everyone = np.arange(n)

    @property
    def state(self) -> Array:
        """(N, n) true states, first as RATES_X: what only a critic may see. Writing to it moves the vehicles."""
        return self._batch.state

    def truth(self) -> Array:
        """(N, 15) true position, velocity and rotation matrix, scaled as an observation's: what only a critic may see."""
        known = np.empty((self.n, TRUTH))
        kernel.observe_truth(self.state, self._scales, known)
        return known

    def reset(self) -> Array:
        """Begins all episodes anew. Returns the observations (N, 31)."""
        self._begin(self._everyone)
        return self._observe(self._everyone)

    def observe(self) -> Array:
        """(N, 31) what is observed now."""
        return self._observe(self._everyone)

    def begin(self, which: Indices, x: Array, gate: Indices) -> None:
        """New episodes of some vehicles (k,), in states x (k, >= 13) with next gates (k,) of one's own."""
        self._begin(which)
        self._batch.x[which], self.next_gate[which] = x[:, RIGID], gate

    def step(self, action: ArrayLike) -> EnvironmentStep:
        """Flies one step by actions (N, 4), which are limited to -1..1; NaN counts as 0.

        Raises:
            ValueError: actions of another shape.
        """
        asked = np.array(action, float)
        if asked.shape != (self.n, ACTION.size):
            raise ValueError(f"actions of {asked.shape}, where ({self.n}, {ACTION.size}) is needed")
        asked[np.isnan(asked)] = 0.0
        asked = np.minimum(np.maximum(asked, -1.0), 1.0)
        last, self._action = self._action, asked
        before, gate = self.state[:, P].copy(), self.next_gate
        hit = self._fly(asked)
        reward, crashed, passed = np.empty(self.n), np.empty(self.n, bool), np.empty(self.n, bool)
        weights, course = self.options.reward, self._course
        kernel.judge(self.state, before, hit, gate, asked, last, course, self._scales, weights, reward, crashed, passed)
        done: Mask = passed & (gate == len(self._track.gates) - 1) & (not self._track.closed)
        self.next_gate = (gate + passed) % len(self._track.gates)
        if passed.any():
            kept = passed & ~done
            self._starts.keep(self.next_gate[kept], self._batch.x[kept], self._rng)
        self._steps += 1
        truncated: Mask = ~crashed & (done | (self._steps >= self.options.episode_steps))
        final, final_truth = self._observe(self._everyone), self.truth()
        ended = np.flatnonzero(crashed | truncated)
        observation = final
        if len(ended):
            self._begin(ended)
            observation = final.copy()
            observation[ended] = self._observe(ended)
        return EnvironmentStep(observation, reward, crashed, truncated, final, final_truth, passed)

    def close(self) -> None:
        """Ends its threads."""
        self._batch.close()

    def _begin(self, which: Indices) -> None:
        """New episodes of some vehicles (k,)."""
        x, self.next_gate[which] = self._starts.draw(len(which), self._rng)
        self._batch.reset(which, x)
        self._batch.carry(which)
        self._action[which] = self._commands[:, which] = self._hover
        self._steps[which] = 0
        by, k = self.options.randomisation, len(which)
        self._thrust_error[which] = self._rng.uniform(-by.thrust, by.thrust, k)
        self._drag_error[which] = self._rng.uniform(-by.drag, by.drag, k)
        bounds = np.repeat([by.position_m, by.velocity_m_s, by.attitude_rad], 3)
        self._error[which] = self._rng.uniform(-bounds, bounds, (k, ERRORS))
        self._drawn[which] = self._rng.integers(max(len(self._realisations), 1), size=k)

    def _fly(self, action: Array) -> Mask:
        """One step with the commands that act in it, one delay late; returns who hit something (N,)."""
        ring = len(self._commands)
        self._commands[self._count % ring] = action
        hit = np.zeros(self.n, bool)
        for k, share in ((1, self._share), (2, 1.0 - self._share)):  # the oldest command, and the one after it
            if share > 1e-6:
                self._act(self._commands[(self._count + k) % ring], share / self.options.control_hz)
                hit |= self._batch.impulses.any(axis=1)
        self._count += 1
        return hit

    def _act(self, acting: Array, dt: float) -> None:
        """Flies on for dt by actions (N, 4)."""
        thrust = 0.5 * (acting[:, 0] + 1) * self._vehicle.thrust_max
        curve = self._vehicle.throttle
        throttle = np.interp(thrust, curve.thrust_m_s2, curve.command)
        self._batch.step(acting[:, 1:] * self._rates, throttle, dt, self._unknown(thrust))

    def _unknown(self, thrust: Array) -> Array | None:
        """(N, 3) accelerations that the model lacks, or None; thrust (N,) is the commanded one, m/s^2."""
        x, by = self.state, self.options.randomisation
        found = self._residual.many(x, thrust) if self._residual is not None else None
        if by.thrust or by.drag:
            found = np.zeros((self.n, 3)) if found is None else found
            errors = self._thrust_error, self._drag_error, self._linear, self._vehicle.drag_quadratic_1_m
            kernel.unmodelled(x, thrust, *errors, found)
        return found

    def _observe(self, which: Indices) -> Array:
        """(k, 31) of some vehicles (k,)."""
        error, seen = self._error, np.empty((len(which), OBSERVATION.size))
        if self._realisations:
            error = error + self._realised()
        view = self._course, self._scales
        kernel.observe(which, self.state, error, self.next_gate, self._action, *view, seen)
        return seen

    def _realised(self) -> Array:
        """(N, 9) errors of the odometry of each vehicle's episode."""
        x = np.nan_to_num(self.state[:, :10])
        error = np.zeros((self.n, ERRORS))
        for k in np.unique(self._drawn):
            mine = self._drawn == k
            error[mine] = self._realisations[k].errors(x[mine])
        return error
