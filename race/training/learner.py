"""Swift's training (Kaufmann et al. 2023, Methods, "Policy training"): PPO of rsl_rl on races flown by the policy."""

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rsl_rl.algorithms import PPO
from torch import nn

from gate_racer.common.errors import UserError
from gate_racer.mpc.policy.policy import PolicyProvenance, described
from gate_racer.sim.environment.racing import EnvironmentStep, Options, RacingEnvironment, Randomisation
from gate_racer.sim.environment.rsl_rl import GROUPS, RslRaces
from gate_racer.sim.physics.registry import SETTINGS
from gate_racer.sim.physics.residual import Residuals
from gate_racer.tracks.observation import Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

HIDDEN = 128  # nodes of each of two layers (Swift)
SLOPE = 0.2  # -, negative slope of the leaky ReLU (Swift)
HORIZON = 32  # steps of each vehicle between two updates (chosen)
# Against hovering before a gate, which the reward for looking at it pays: the share of episodes that start before their first
# gate, and the time without a gate that ends an episode (chosen).
APPROACHES, GATE_S = 0.5, 4.0
KL, KL_LAST = 0.01, 0.001  # divergence of an update, which the learning rate follows (chosen)
ALGORITHM: dict[str, Any] = {  # gamma, clip and first learning rate are Swift's; the rest is common practice
    "class_name": "PPO",
    "gamma": 0.99,
    "lam": 0.95,
    "clip_param": 0.2,
    "learning_rate": 3e-4,
    "schedule": "adaptive",  # of the rate, to this KL divergence of an update
    "desired_kl": KL,
    "num_learning_epochs": 4,
    "num_mini_batches": 4,
    "entropy_coef": 0.0,
    "use_clipped_value_loss": False,  # a return is progress in metres, far beyond the clip
    "max_grad_norm": 0.5,
}
NETWORK: dict[str, Any] = {
    "class_name": "MLPModel",
    "hidden_dims": [HIDDEN, HIDDEN],
    "activation": "lrelu",
    "obs_normalization": True,
}
# Standard deviations of an action at the beginning, of networks that fly already, and at the end, between which they fall
# geometrically (chosen). A learned one falls to 0.06 within a tenth of the steps, after which little is learned.
EXPLORATION, EXPLORATION_AGAIN, EXPLORATION_LAST = 0.4, 0.2, 0.05


@dataclass(frozen=True)
class LearningTask:
    """Course and vehicle to learn, and what is simulated of them."""

    track: Track
    vehicle: Vehicle
    command_hz: float  # rate of the policy
    vehicles: int  # simulated in parallel
    settings: tuple[int, ...]  # numbers of Swift's settings; each has an equal share of the vehicles
    randomisation: Randomisation
    residuals: Residuals | None = None  # of flights: of the plant's acceleration and of the observation (eq. 10 and 11)

    def environments(self, seed: int) -> list[RacingEnvironment]:
        """Return one environment for each setting. Raises UserError as `RacingEnvironment`."""
        found, known = [], self.residuals
        learned = (known.acceleration, known.observation) if known else (None, None)
        for number in self.settings:
            options = Options(
                self.command_hz,
                SETTINGS[number],
                gate_steps=round(GATE_S * self.command_hz),
                approaches=APPROACHES,
                randomisation=self.randomisation,
            )
            n, rng = self.vehicles // len(self.settings), np.random.default_rng([seed, number])
            found.append(RacingEnvironment(self.vehicle, self.track, n, rng, options, *learned))
        return found


class EpisodeStatistics:
    """Statistics of the steps since the last report."""

    def __init__(self, vehicles: int, step_s: float, gates: int):
        """Start empty; `gates`: number per lap."""
        self._returned, self._passed = np.zeros(vehicles), np.zeros(vehicles)
        self._step_s, self._gates, self._sums = step_s, gates, np.zeros(6)

    def add(self, steps: list[EnvironmentStep]) -> None:
        """Add a step of all vehicles, by environment."""
        reward, passed, crashed, truncated = (
            np.concatenate([getattr(step, name) for step in steps])
            for name in ("reward", "passed", "terminated", "truncated")
        )
        ended = crashed | truncated
        self._returned += reward
        self._passed += passed
        whole = self._returned[ended].sum(), self._passed[ended].sum()
        self._sums += len(ended), passed.sum(), crashed.sum(), ended.sum(), *whole
        self._returned[ended] = self._passed[ended] = 0.0

    def row(self) -> dict[str, float]:
        """Return means of the ended episodes, pace and crashes of all steps, and start again; not finite where there are none."""
        steps, passages, crashes, episodes, returns, gates = self._sums
        self._sums = np.zeros(6)
        with np.errstate(divide="ignore", invalid="ignore"):
            return {
                "return": returns / episodes,
                "gates": gates / episodes,
                "lap_s": steps * self._step_s * self._gates / passages,
                "crashes_per_lap": crashes * self._gates / passages,
            }


class Learner:
    """PPO on a task. Its pickle is a checkpoint, from which training continues bit-identically."""

    def __init__(self, task: LearningTask, seed: int, origin: dict[str, Any] | None = None):
        """Begin with a policy that hovers, or with the `networks` of a learner of any course, vehicle and plant.

        Raises UserError for networks of another form, and as `RacingEnvironment`.
        """
        torch.manual_seed(seed)
        self.task, self.seed, self.steps = task, seed, 0
        self.scaling = Scaling.of(task.track, task.vehicle)
        self._races = RslRaces(task.environments(seed))
        self._seen = self._races.get_observations()
        actor = NETWORK | {
            "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": EXPLORATION, "std_type": "log"}
        }
        how = {"num_steps_per_env": HORIZON, "obs_groups": dict(GROUPS), "multi_gpu": None}
        with contextlib.redirect_stdout(io.StringIO()):  # it prints the networks
            self._ppo = PPO.construct_algorithm(
                self._seen,
                self._races,
                how | {"algorithm": dict(ALGORITHM), "actor": actor, "critic": dict(NETWORK)},
                "cpu",
            )
        for module in (*self._ppo.actor.modules(), *self._ppo.critic.modules()):
            if isinstance(module, nn.LeakyReLU):
                module.negative_slope = SLOPE
        if origin is None:
            self._hover()
        else:
            try:
                self._ppo.load(origin, {"actor": True, "critic": True}, strict=True)
            except (KeyError, RuntimeError):
                raise UserError("the origin's networks have another form than those of train-policy") from None
        self._first = EXPLORATION if origin is None else EXPLORATION_AGAIN
        self._ppo.actor.distribution.log_std_param.requires_grad_(False)
        self.statistics = EpisodeStatistics(self._races.num_envs, 1 / task.command_hz, len(task.track.gates))
        self.curve: list[dict[str, float]] = []  # one row per report

    def _hover(self) -> None:
        last = self._ppo.actor.mlp[-1]
        with torch.no_grad():
            last.weight.mul_(0.01)
            last.bias.copy_(torch.as_tensor(self.scaling.hover))

    def improve(self, share: float) -> None:
        """Fly HORIZON steps of all vehicles, and update the networks by them. `share`: of the training that is over."""
        spread = self._first * (EXPLORATION_LAST / self._first) ** share
        self._ppo.desired_kl = KL * (KL_LAST / KL) ** share
        with torch.no_grad():
            self._ppo.actor.distribution.log_std_param.fill_(float(np.log(spread)))
        with torch.inference_mode():
            for _ in range(HORIZON):
                self._seen, *outcome = self._races.step(self._ppo.act(self._seen))
                self._ppo.process_env_step(self._seen, *outcome)
                self.statistics.add(self._races.last)
            self._ppo.compute_returns(self._seen)
        self._ppo.update()
        self.steps += HORIZON * self._races.num_envs

    def report(self) -> dict[str, float]:
        self.curve.append({"steps": self.steps, **self.statistics.row()})
        return self.curve[-1]

    def networks(self) -> dict[str, Any]:
        """Return the weights and observation statistics of policy and critic, as tensors."""
        saved = self._ppo.save()
        return {name: saved[name] for name in ("actor_state_dict", "critic_state_dict")}

    def policy(self) -> bytes:
        """Return the deterministic policy as an ONNX model with its metadata."""
        task, model = self.task, io.BytesIO()
        network = self._ppo.get_policy().as_onnx(verbose=False).eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's age: the new one needs seconds
            torch.onnx.export(
                network,
                network.get_dummy_inputs(),
                model,
                dynamo=False,
                input_names=["observation"],
                output_names=["action"],
            )
        about = PolicyProvenance(
            *(task.track.name, task.track.hash, task.vehicle.name, task.vehicle.hash),
            *(task.command_hz, task.settings, self.steps, self.seed),
        )
        return described(model.getvalue(), about, self.scaling)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"random": torch.get_rng_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state.pop("random"))
        self.__dict__.update(state)
