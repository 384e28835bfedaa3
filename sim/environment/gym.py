"""`RacingEnvironment` as a Gymnasium vector environment, for any learner that takes one: pip install 'gate-racer[train]'."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from sim.environment.racing import ACTION, OBSERVATION, Mask, Options, RacingEnvironment
from tracks.track import Track
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle


class GymRacing(gymnasium.vector.VectorEnv):
    """Resets within the step that ends an episode (AutoresetMode.SAME_STEP); `info["final_obs"]` is what was seen then."""

    def __init__(self, vehicle: Vehicle, track: Track, n: int, options: Options | None = None, **more: Any):
        """As `RacingEnvironment`; the seed comes with `reset`."""
        self._given, self._more = (vehicle, track, n), {"options": options, **more}
        self._environment = self._made(0)
        self.num_envs = n
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float64)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float64)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    def _made(self, seed: int) -> RacingEnvironment:
        return RacingEnvironment(*self._given, np.random.default_rng(seed), **self._more)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """With a seed all begins anew, the kept starts too."""
        if seed is not None:
            self._environment.close()
            self._environment = self._made(seed)
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
