"""`RacingEnvironment` behind Gymnasium's interfaces: pip install gymnasium.

The random generator is Gymnasium's `np_random`, with seed 0 until `reset` receives another.
"""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector.utils import batch_space

from gate_racer.sim.environment.racing import Options, RacingEnvironment
from gate_racer.tracks.observation import ACTION, OBSERVATION
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array, Mask
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

OBSERVATIONS = Box(-np.inf, np.inf, (OBSERVATION.size,), np.float64)  # scaled to about -1..1, unbounded
ACTIONS = Box(-1.0, 1.0, (ACTION.size,), np.float64)


class GymRacing(gymnasium.vector.VectorEnv):
    """Vector environment. Resets in the step that ends an episode (SAME_STEP); `info["final_obs"]`: its last observation."""

    def __init__(self, vehicle: Vehicle, track: Track, n: int, options: Options | None = None, **more: Any):
        """Set up as `RacingEnvironment`; `reset` takes the seed."""
        self._make = partial(RacingEnvironment, vehicle, track, n, options=options, **more)
        self._np_random, self._np_random_seed = seeding.np_random(0)
        self._environment = self._make(rng=self.np_random)
        self.num_envs = n
        self.single_observation_space, self.single_action_space = OBSERVATIONS, ACTIONS
        self.observation_space, self.action_space = batch_space(OBSERVATIONS, n), batch_space(ACTIONS, n)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes; with a seed, the stored start states are discarded too."""
        super().reset(seed=seed)
        if seed is not None:
            self._environment.close()
            self._environment = self._make(rng=self.np_random)
        return self._environment.reset(), {"state": self._environment.state.copy()}

    def step(self, actions: Any) -> tuple[Array, Array, Mask, Mask, dict[str, Any]]:
        """Step all vehicles as Gymnasium specifies; `info["state"]` is the true state, for an asymmetric critic."""
        step = self._environment.step(actions)
        ended = step.terminated | step.truncated
        info: dict[str, Any] = {"state": self._environment.state.copy(), "passed": step.passed}
        if ended.any():
            info |= {"final_obs": step.final_observation, "_final_obs": ended}
        return step.observation, step.reward, step.terminated, step.truncated, info

    def close_extras(self, **_: Any) -> None:
        self._environment.close()


class GymRace(gymnasium.Env[Array, Array]):
    """Environment of a single vehicle, for learners without support for vector environments."""

    def __init__(self, vehicle: Vehicle, track: Track, options: Options | None = None, **more: Any):
        self._races = GymRacing(vehicle, track, 1, options, **more)
        self._np_random, self._np_random_seed = self._races.np_random, 0
        self.observation_space, self.action_space = OBSERVATIONS, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        observation, info = self._races.reset(seed=seed)
        self._np_random, self._np_random_seed = self._races.np_random, self._races.np_random_seed
        return observation[0], {"state": info["state"][0]}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Step as Gymnasium specifies; after the end of an episode `reset` begins another."""
        observation, reward, terminated, truncated, info = self._races.step(np.asarray(action)[None])
        seen = info.get("final_obs", observation)[0]
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {"passed": bool(info["passed"][0])}

    def close(self) -> None:
        self._races.close()


def make_race(track: str = "vq1", vehicle: str = "dcl", **more: Any) -> GymRace:
    """Return the environment `gate_racer/Race-v0`: track and vehicle by name or file, `more` as of `RacingEnvironment`."""
    return GymRace(load_vehicle(vehicle), load_track(track), **more)


def make_races(num_envs: int, track: str = "vq1", vehicle: str = "dcl", **more: Any) -> GymRacing:
    return GymRacing(load_vehicle(vehicle), load_track(track), num_envs, **more)
