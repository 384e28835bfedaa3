"""`RacingEnvironment` for any learner that takes Gymnasium's environments: pip install 'gate-racer[train]'.

The generator is Gymnasium's own, `np_random`: of seed 0 until `reset` is given another.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector.utils import batch_space

from sim.environment.racing import Mask, Options, RacingEnvironment
from tracks.observation import ACTION, OBSERVATION
from tracks.track import Track
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

OBSERVATIONS = Box(-np.inf, np.inf, (OBSERVATION.size,), np.float64)  # scaled to about -1..1; nothing bounds them
ACTIONS = Box(-1.0, 1.0, (ACTION.size,), np.float64)


class GymRacing(gymnasium.vector.VectorEnv):
    """Resets within the step that ends an episode (AutoresetMode.SAME_STEP); `info["final_obs"]` is what was seen then."""

    def __init__(self, vehicle: Vehicle, track: Track, n: int, options: Options | None = None, **more: Any):
        """As `RacingEnvironment`; the seed comes with `reset`."""
        self._given, self._more = (vehicle, track, n), {"options": options, **more}
        self._np_random, self._np_random_seed = seeding.np_random(0)
        self._environment = self._made()
        self.num_envs = n
        self.single_observation_space, self.single_action_space = OBSERVATIONS, ACTIONS
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    def _made(self) -> RacingEnvironment:
        return RacingEnvironment(*self._given, self.np_random, **self._more)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """With a seed all begins anew, the kept starts too."""
        super().reset(seed=seed)
        if seed is not None:
            self._environment.close()
            self._environment = self._made()
        return self._environment.reset(), {"state": self._environment.state.copy()}

    def step(self, actions: Any) -> tuple[Array, Array, Mask, Mask, dict[str, Any]]:
        """As Gymnasium has it; `info["state"]` is the truth, for a critic."""
        step = self._environment.step(actions)
        ended = step.terminated | step.truncated
        info: dict[str, Any] = {"state": self._environment.state.copy(), "passed": step.passed}
        if ended.any():
            info |= {"final_obs": step.final_observation, "_final_obs": ended}
        return step.observation, step.reward, step.terminated, step.truncated, info

    def close_extras(self, **_: Any) -> None:
        """Ends its threads."""
        self._environment.close()


class GymRace(gymnasium.Env[Array, Array]):
    """One vehicle as a Gymnasium environment, for learners that take no vector of them."""

    def __init__(self, vehicle: Vehicle, track: Track, options: Options | None = None, **more: Any):
        """As `RacingEnvironment`; the seed comes with `reset`."""
        self._races = GymRacing(vehicle, track, 1, options, **more)
        self._np_random, self._np_random_seed = self._races.np_random, 0
        self.observation_space, self.action_space = OBSERVATIONS, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """With a seed all begins anew, the kept starts too."""
        observation, info = self._races.reset(seed=seed)
        self._np_random, self._np_random_seed = self._races.np_random, self._races.np_random_seed
        return observation[0], {"state": info["state"][0]}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """As Gymnasium has it; after the end of an episode `reset` begins another."""
        observation, reward, terminated, truncated, info = self._races.step(np.asarray(action)[None])
        seen = info.get("final_obs", observation)[0]
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {"passed": bool(info["passed"][0])}

    def close(self) -> None:
        """Ends its threads."""
        self._races.close()
