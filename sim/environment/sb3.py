"""`RacingEnvironment` behind the VecEnv of Stable-Baselines3: pip install stable-baselines3."""

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from gate_racer.sim.environment.gym import ACTIONS, OBSERVATIONS
from gate_racer.sim.environment.racing import RacingEnvironment
from gate_racer.vehicle.rotation import Array, Mask


class Sb3Races(VecEnv):
    """An environment whose vehicles are SB3's environments; `truth` of an info is for a critic of one's own."""

    def __init__(self, environment: RacingEnvironment):
        super().__init__(environment.n, OBSERVATIONS, ACTIONS)
        self._environment, self._actions = environment, np.zeros((environment.n, 4))

    def reset(self) -> Array:
        """Begin new episodes, by the environment's own random generator."""
        return self._environment.reset()

    def step_async(self, actions: Array) -> None:
        """Take the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[Array, Array, Mask, list[dict[str, Any]]]:
        """Step all vehicles as SB3 specifies; episodes that ended without a crash are truncated."""
        step, truth = self._environment.step(self._actions), self._environment.truth()
        infos: list[dict[str, Any]] = [{"truth": row} for row in truth]
        ended = step.terminated | step.truncated
        for i in np.flatnonzero(ended):
            infos[i] |= {
                "terminal_observation": step.final_observation[i],
                "TimeLimit.truncated": bool(step.truncated[i]),
            }
        return step.observation, step.reward, ended, infos

    def close(self) -> None:
        """Shut down the threads."""
        self._environment.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the environment for each vehicle; None if it has none."""
        return [getattr(self._environment, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the vehicles share one environment."""
        raise NotImplementedError("the vehicles share one environment")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Refuse: the vehicles share one environment."""
        raise NotImplementedError("the vehicles share one environment")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each vehicle."""
        return [False for _ in self._get_indices(indices)]
