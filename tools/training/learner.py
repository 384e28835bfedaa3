"""Swift's training (Kaufmann et al. 2023, Methods, "Policy training"): PPO on races flown by the policy."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gate_racer.mpc.policy.policy import Policy, PolicyProvenance
from gate_racer.planner.plan import Plan
from gate_racer.sim.environment.racing import TRUTH, EnvironmentStep, Options, RacingEnvironment, Randomisation
from gate_racer.sim.physics.plants import SETTINGS
from gate_racer.sim.physics.residual import Residuals
from gate_racer.tracks.observation import ACTION, OBSERVATION, Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle
from tools.training.imitation import ExpertDataset, fit
from tools.training.ppo import ActorCritic, Hyperparameters, UpdateBatch, advantages, update

SCHOOL, LESSONS, LESSON = 64, 14, 250  # vehicles, iterations of DAgger, and steps of each (chosen)
IMITATION_RATE = 1e-3  # initial learning rate of the imitation (chosen)
SIGMA_AFTER = 0.15  # standard deviation of an action with which PPO explores after the imitation (chosen)
CRITIC_ALONE = 2_000_000  # steps after the imitation in which only the critic is trained (chosen)


@dataclass(frozen=True)
class LearningTask:
    """Learning task: a course, a vehicle, and their randomisation."""

    track: Track
    vehicle: Vehicle
    command_hz: float  # rate of the policy
    vehicles: int  # simulated in parallel
    settings: tuple[int, ...]  # numbers of Swift's settings; each has an equal share of the vehicles
    randomisation: Randomisation
    residuals: Residuals | None = None  # of flights: of the plant's acceleration and of the observation (eq. 10 and 11)

    def environments(self, seed: int) -> list[RacingEnvironment]:
        """Return one environment for each setting.

        Raises:
            UserError: as of `RacingEnvironment`.
            ValueError: there are too few vehicles.
        """
        found, known = [], self.residuals
        learned = (known.acceleration, known.observation) if known else (None, None)
        for number in self.settings:
            options = Options(self.command_hz, SETTINGS[number], randomisation=self.randomisation)
            n, rng = self.vehicles // len(self.settings), np.random.default_rng([seed, number])
            found.append(RacingEnvironment(self.vehicle, self.track, n, rng, options, *learned))
        return found


class EpisodeStatistics:
    """Statistics of the episodes since the last report."""

    def __init__(self, vehicles: int, step_s: float, gates: int):
        """Start empty; `gates`: number per lap."""
        self._returned, self._passed = np.zeros(vehicles), np.zeros(vehicles)
        self._step_s, self._gates = step_s, gates
        self.clear()

    def clear(self) -> None:
        """Forget all episodes reported."""
        self._steps = self._passages = self._crashes = self._episodes = 0
        self._returns = self._gates_of_episodes = 0.0

    def add(self, step: EnvironmentStep, part: slice) -> None:
        """Add a step of some of the vehicles."""
        self._returned[part] += step.reward
        self._passed[part] += step.passed
        ended = step.terminated | step.truncated
        self._steps += len(ended)
        self._passages += int(step.passed.sum())
        self._crashes += int(step.terminated.sum())
        self._episodes += int(ended.sum())
        self._returns += float(self._returned[part][ended].sum())
        self._gates_of_episodes += float(self._passed[part][ended].sum())
        self._returned[part] *= ~ended
        self._passed[part] *= ~ended

    def row(self) -> dict[str, float]:
        """Return means of the ended episodes, and pace and crashes of all steps; NaN where there are none."""

        def ratio(above: float, below: float) -> float:
            return above / below if below else float("nan")

        return {
            "return": ratio(self._returns, self._episodes),
            "gates": ratio(self._gates_of_episodes, self._episodes),
            "lap_s": ratio(self._steps * self._step_s * self._gates, self._passages),
            "crashes_per_lap": ratio(self._crashes * self._gates, self._passages),
        }


class Learner:
    """PPO on a task. Its pickle is a checkpoint, from which training continues bit-identically."""

    def __init__(self, task: LearningTask, by: Hyperparameters, seed: int):
        self.task, self.by, self.seed = task, by, seed
        torch.manual_seed(seed)  # for the initial weights
        self._races = task.environments(seed)
        self._seen = [race.reset() for race in self._races]
        self.scaling = Scaling.of(task.track, task.vehicle)
        self.net = ActorCritic(OBSERVATION.size, TRUTH, self.scaling.hover)
        self._optimiser = torch.optim.Adam(self.net.parameters(), by.learning_rate, eps=1e-5)
        self._noise = torch.Generator().manual_seed(seed)
        self.tally = EpisodeStatistics(sum(race.n for race in self._races), 1 / task.command_hz, len(task.track.gates))
        self.steps = self._critic_until = 0
        self.curve: list[dict[str, float]] = []  # one row per report

    def improve(self, total: int) -> dict[str, float]:
        """Fly `horizon` steps and update by them; the learning rate falls to 0 at `total` steps. Returns as `update`."""
        self._optimiser.param_groups[0]["lr"] = self.by.learning_rate * max(1.0 - self.steps / total, 0.0)
        batch = self._fly()
        figures = update(self.net, self._optimiser, batch, self.by, self._noise, self.steps > self._critic_until)
        self.net.known.update(batch.known)
        if not self._critic_until:  # after imitation the policy depends on the normalisation that it was fitted with
            self.net.seen.update(batch.observation)
        return figures

    def go_on_in(self, task: LearningTask) -> None:
        """Finetune: continue on another task of the same course and vehicle, with new races."""
        self.task, self._races = task, task.environments(self.seed)
        self._seen = [race.reset() for race in self._races]
        self.tally = EpisodeStatistics(sum(race.n for race in self._races), 1 / task.command_hz, len(task.track.gates))

    def imitate(self, plan: Plan, tell: Callable[[str], None]) -> None:
        """Learn an initial policy from a plan, for PPO with little exploration; `tell` receives a line per iteration."""
        task, rng = self.task, np.random.default_rng([self.seed, 0])
        races = replace(task, vehicles=SCHOOL).environments(self.seed + 1)
        schools = [ExpertDataset(race, plan, task.track, task.vehicle, rng) for race in races]
        seen, expert_actions = np.empty((0, OBSERVATION.size)), np.empty((0, ACTION.size))
        for k in range(LESSONS):
            lessons = [school.lesson(self.net, LESSON, 0.0 if k == 0 else 0.5) for school in schools]
            seen = np.concatenate([seen, *(lesson[0] for lesson in lessons)])
            expert_actions = np.concatenate([expert_actions, *(lesson[1] for lesson in lessons)])
            if k == 0:
                self.net.seen.update(torch.as_tensor(seen))
            epochs = {0: 8, LESSONS - 1: 12}.get(k, 3)
            error = fit(self.net, seen, expert_actions, epochs, IMITATION_RATE, self._noise)
            tell(f"lesson {k + 1} of {LESSONS}: {len(seen)} examples, actions {error:.3f} rms off the expert's")
        with torch.no_grad():
            self.net.log_sigma.fill_(math.log(SIGMA_AFTER))
        self._critic_until = self.steps + CRITIC_ALONE

    @torch.no_grad()
    def _fly(self) -> UpdateBatch:
        """Fly T steps of N vehicles by the present policy; return them with advantages and targets."""
        net, races = self.net, self._races
        edges = np.cumsum([0, *(race.n for race in races)])
        rows: list[tuple[Tensor, ...]] = []
        rewards, crashed, ended, finals = [], [], [], []
        for _ in range(self.by.horizon):
            observation = joined(self._seen)
            known = torch.cat([observation, joined([race.truth() for race in races])], 1)
            policy = net.policy(observation)
            action = policy.mean + policy.stddev * torch.randn(policy.mean.shape, generator=self._noise)
            rows.append((observation, known, action, policy.log_prob(action).sum(-1)))
            steps = []
            for k, race in enumerate(races):
                part = slice(edges[k], edges[k + 1])
                steps.append(race.step(action[part].numpy()))
                self._seen[k] = steps[k].observation
                self.tally.add(steps[k], part)
            rewards.append(np.concatenate([step.reward for step in steps]))
            crashed.append(np.concatenate([step.terminated for step in steps]))
            ended.append(np.concatenate([step.terminated | step.truncated for step in steps]))
            finals.append(joined([np.concatenate([step.final_observation, step.final_truth], 1) for step in steps]))
        self.steps += self.by.horizon * int(edges[-1])
        observation, known, action, log_probability = (torch.stack(column) for column in zip(*rows, strict=True))
        value = net.value(known).numpy()
        after = values_after(net, value, np.array(ended), torch.stack(finals))
        after[np.array(crashed)] = 0.0
        gain = advantages(np.array(rewards), value, after, np.array(ended), self.by.gamma, self.by.gae)
        targets = (torch.as_tensor(a, dtype=torch.float32).reshape(-1) for a in (gain, gain + value))
        steps_of = (x.flatten(0, 1) for x in (observation, known, action, log_probability))
        return UpdateBatch(*steps_of, *targets)

    def policy(self) -> Policy:
        """Return the deterministic policy (its mean), with the normalisation of observations folded into the first layer."""
        task, normaliser = self.task, self.net.seen
        about = PolicyProvenance(
            *(task.track.name, task.track.hash, task.vehicle.name, task.vehicle.hash),
            *(task.command_hz, task.settings, self.steps, self.seed),
        )
        layers = []
        for layer in self.net.actor:
            if isinstance(layer, torch.nn.Linear):
                layers.append((layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()))
        weight, bias = layers[0]
        weight = weight / normaliser.spread.numpy()
        layers[0] = weight, bias - weight @ normaliser.mean.numpy()
        return Policy(about, self.scaling, [(w.astype(np.float32), b.astype(np.float32)) for w, b in layers])


def values_after(net: ActorCritic, value: Array, ended: Array, final: Tensor) -> Array:
    """Return values (T, N) of the states after each step: the next row, or by `final` (T, N, n) where an episode ended."""
    after = np.empty_like(value)
    after[:-1] = value[1:]
    elsewhere = ended.copy()
    elsewhere[-1] = True  # the next state has not been flown yet
    after[elsewhere] = net.value(final[torch.as_tensor(elsewhere)]).numpy()
    return after


def joined(parts: list[Array]) -> Tensor:
    """Concatenate arrays (n, ...) of several environments to one float32 tensor."""
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32)
