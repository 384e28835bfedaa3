"""`RacingEnvironment` behind the VecEnv of rsl_rl: pip install rsl-rl-lib.

Observation groups: `seen` (31), for the actor, and `truth` (15), the true state, for an asymmetric critic beside it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from gate_racer.sim.environment.racing import EnvironmentStep, RacingEnvironment
from gate_racer.tracks.observation import ACTION
from gate_racer.vehicle.rotation import Array, Mask

GROUPS = {"actor": ["seen"], "critic": ["seen", "truth"]}


class RslRaces(VecEnv):
    """One or several environments, such as of different plants, as one; `last` is the last step of each."""

    def __init__(self, environments: Sequence[RacingEnvironment]):
        self._environments = environments
        self._edges = np.cumsum([each.n for each in environments])
        self._seen = [each.reset() for each in environments]
        self.last: list[EnvironmentStep] = []
        self.num_envs, self.num_actions, self.device = int(self._edges[-1]), ACTION.size, "cpu"
        self.max_episode_length = environments[0].options.episode_steps
        self.cfg: dict[str, Any] = {}

    def get_observations(self) -> TensorDict:
        truth = [each.truth() for each in self._environments]
        return TensorDict({"seen": _tensor(self._seen), "truth": _tensor(truth)}, [self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """Step all vehicles as rsl_rl specifies; episodes that ended without a crash are time-outs."""
        parts = np.split(actions.numpy(), self._edges[:-1])
        self.last = steps = [each.step(part) for each, part in zip(self._environments, parts, strict=True)]
        self._seen = [step.observation for step in steps]
        ended = torch.as_tensor(np.concatenate([step.terminated | step.truncated for step in steps]))
        time_outs = _tensor([step.truncated for step in steps])
        return self.get_observations(), _tensor([step.reward for step in steps]), ended, {"time_outs": time_outs}


def _tensor(parts: Sequence[Array] | Sequence[Mask]) -> torch.Tensor:
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32)
