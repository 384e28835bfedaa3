"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347), for parallel races.

Generalised advantages (Schulman et al. 2016, arXiv:1506.02438, eq. 16). Observations are normalised by their running mean and
standard deviation, which are folded into the first layer of an exported policy. Settings are Swift's (Kaufmann et al. 2023,
Methods and Extended Data Table 1a) where published; the others are chosen.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gate_racer.vehicle.rotation import Array

HIDDEN, SLOPE = 128, 0.2  # nodes of each of two layers, negative slope of their LeakyReLU (Swift)
VALUE_M = 10.0  # m, scale of the critic's output: magnitude of a return, which is progress
VARIANCE_LEAST = 1e-4  # least variance of a normalised column: constant columns stay small


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Hyperparameters of PPO. gamma, clip and learning rate are Swift's; the rest is common practice, not tuned."""

    gamma: float = 0.99  # discount per step
    gae: float = 0.95  # lambda of the advantages
    clip: float = 0.2  # of the probability ratio
    learning_rate: float = 3e-4  # initial; it falls linearly to 0 at the last step
    entropy: float = 0.0  # weight of the entropy bonus
    horizon: int = 64  # steps of each vehicle between two updates
    epochs: int = 4  # greatest number per update
    divergence_most: float = 0.015  # KL divergence from the flown policy (mean of a minibatch) that ends an update
    minibatch: int = 4096  # steps
    gradient_most: float = 0.5  # greatest norm of a gradient


class Normaliser(nn.Module):
    """Normaliser of columns to zero mean and unit variance over all rows so far (Chan et al. 1979, parallel moments)."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, columns: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(columns, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(1e-4, dtype=torch.float64))

    def update(self, x: Tensor) -> None:
        """Update the moments by rows x (..., columns)."""
        rows = x.reshape(-1, x.shape[-1]).double()
        n, mean = len(rows), rows.mean(0)
        total, step = self.count + n, mean - self.mean
        spread = self.variance * self.count + rows.var(0, correction=0) * n + step**2 * self.count * n / total
        self.mean, self.variance, self.count = self.mean + step * n / total, spread / total, total

    @property
    def spread(self) -> Tensor:
        """Standard deviations (columns,)."""
        return self.variance.clamp(min=VARIANCE_LEAST).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., columns) with zero mean and unit variance."""
        return (x - self.mean.float()) / self.spread.float()


def perceptron(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a perceptron with two hidden layers and orthogonal initial weights, the last layer's scaled by `gain`."""
    sizes = (inputs, HIDDEN, HIDDEN, outputs)
    layers: list[nn.Module] = []
    for k in range(3):
        linear = nn.Linear(sizes[k], sizes[k + 1])
        nn.init.orthogonal_(linear.weight, gain if k == 2 else 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear] if k == 2 else [linear, nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers)


class ActorCritic(nn.Module):
    """Gaussian policy of observations with a mean in -1..1, and the value of observations with the true state (privileged)."""

    def __init__(self, observation: int, privileged: int, hover: Array):
        """Initialise for sizes of observation and true state; `hover` (n,): mean action of the untrained policy."""
        super().__init__()
        self.seen, self.known = Normaliser(observation), Normaliser(observation + privileged)
        self.actor, self.critic = (
            perceptron(observation, len(hover), 0.01),
            perceptron(observation + privileged, 1, 1.0),
        )
        self.log_sigma = nn.Parameter(torch.full((len(hover),), -0.7))  # sigma 0.5 of -1..1 (chosen)
        with torch.no_grad():
            self.actor[-1].bias.copy_(torch.atanh(torch.as_tensor(hover)))  # type: ignore[operator]

    def mean(self, observation: Tensor) -> Tensor:
        """Return the mean action (..., n), without exploration."""
        return torch.tanh(self.actor(self.seen(observation)))

    def policy(self, observation: Tensor) -> torch.distributions.Normal:
        """Return the Gaussian distribution of actions (..., n) at observations."""
        return torch.distributions.Normal(self.mean(observation), self.log_sigma.exp(), validate_args=False)

    def value(self, known: Tensor) -> Tensor:
        """Return the value (...) m of observations with true states (..., n)."""
        return VALUE_M * self.critic(self.known(known))[..., 0]


def advantages(reward: Array, value: Array, after: Array, ended: Array, gamma: float, gae: float) -> Array:
    """Return the generalised advantages (T, N).

    Args:
        reward, value: (T, N), of each step, and of the state before it.
        after: (T, N) value of the state after each step, before any new episode; 0 where it was terminal.
        ended: (T, N) steps that ended an episode, by a crash or by its length.
    """
    found, ahead = np.zeros_like(reward), np.zeros(reward.shape[1], reward.dtype)
    surprise = reward + gamma * after - value
    for t in range(len(reward) - 1, -1, -1):
        ahead = surprise[t] + gamma * gae * np.where(ended[t], 0.0, ahead)
        found[t] = ahead
    return found


@dataclass(frozen=True, slots=True)
class UpdateBatch:
    """Training data of one update: B steps."""

    observation: Tensor  # (B, n)
    known: Tensor  # (B, m) observation and truth
    action: Tensor  # (B, k)
    log_probability: Tensor  # (B,) of the action, when it was taken
    advantage: Tensor  # (B,)
    target: Tensor  # (B,) of the value


def update(
    net: ActorCritic,
    optimiser: torch.optim.Optimizer,
    batch: UpdateBatch,
    by: Hyperparameters,
    generator: torch.Generator,
    actor: bool = True,
) -> dict[str, float]:
    """Update the networks by some epochs over a batch; without `actor` the critic alone.

    Returns:
        means over all minibatches: share of clipped steps, KL divergence from the flown policy, entropy, and value error in m.
    """
    totals, number = torch.zeros(4), 0
    for _ in range(by.epochs):
        for pick in torch.randperm(len(batch.target), generator=generator).split(by.minibatch):
            policy = net.policy(batch.observation[pick])
            log_ratio = policy.log_prob(batch.action[pick]).sum(-1) - batch.log_probability[pick]
            ratio, gain = log_ratio.exp(), batch.advantage[pick]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            surrogate = torch.min(ratio * gain, ratio.clamp(1 - by.clip, 1 + by.clip) * gain).mean()
            error = (net.value(batch.known[pick]) - batch.target[pick]) / VALUE_M
            entropy = policy.entropy().sum(-1).mean()
            loss = error.square().mean()
            if actor:
                loss = loss - surrogate - by.entropy * entropy
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), by.gradient_most)
            optimiser.step()
            with torch.no_grad():
                clipped = ((ratio - 1).abs() > by.clip).float().mean()
                divergence = (ratio - 1 - log_ratio).mean()
                totals += torch.stack([clipped, divergence, entropy, error.square().mean().sqrt() * VALUE_M])
            number += 1
            if actor and divergence > by.divergence_most:
                return _means(totals / number)
    return _means(totals / number)


def _means(found: Tensor) -> dict[str, float]:
    return dict(zip(("clipped", "divergence", "entropy", "value_error_m"), found.tolist(), strict=True))
