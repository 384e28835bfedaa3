"""Initial policy from a plan: DAgger (Ross et al. 2011, arXiv:1011.0686), with a linear-quadratic regulator as expert.

The expert predicts over the delayed commands that have not acted yet; the policy gets Swift's observation. Half of the vehicles
fly by the policy, so that the examples include its own errors. PPO continues from there.
"""

import math

import numpy as np
import torch

from gate_racer.planner.plan import Plan
from gate_racer.sim.environment.racing import RacingEnvironment, turned
from gate_racer.tracks.observation import Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle
from tools.training.expert import Expert, P, Q, V, flown
from tools.training.ppo import ActorCritic

START_M, START_M_S, START_RAD = 0.2, 0.6, 0.15  # greatest deviations of a start from the plan (chosen)
ASTRAY_M = 1.0  # m, distance from the plan at which a flight is restarted (chosen)
PAD = 3  # first steps of the plan, whose progress is by time
LAST = 40  # last steps of the plan, not used (chosen)
FLIGHT = 150  # least number of steps of a flight, exceeded by 50 on average (chosen)
BATCH = 512  # examples per step of the optimiser (chosen)
C = RATES_X["c"].at.start


class ExpertDataset:
    """Vehicles that fly along a plan, by the expert or the policy, and the expert's actions for their states."""

    def __init__(self, races: RacingEnvironment, plan: Plan, track: Track, vehicle: Vehicle, rng: np.random.Generator):
        """`races` must be of the plan's track and vehicle."""
        self._dt = dt = 1 / races.options.control_hz
        self._races, self._expert, self._rng = races, Expert(plan, vehicle, dt), rng
        self._vehicle, self._scaling = vehicle, Scaling.of(track, vehicle)
        self._gates_s, self._gates = plan.gate_times_s, len(track.gates)
        late = math.ceil(vehicle.command_delay_s / dt - 1e-6)
        first_s = vehicle.command_delay_s - (late - 1) * dt
        self._waits_s = [first_s] + [dt] * (late - 1)  # time for which each of the pending commands acts, oldest first
        self._before = np.zeros((late + 1, races.n, 4))  # the pending commands, and the one after them
        self._at, self._age = np.zeros(races.n, int), np.zeros(races.n, int)
        self._thrust = np.zeros(races.n)  # m/s^2, by the model
        races.reset()
        self._place(np.arange(races.n))

    def lesson(self, net: ActorCritic, steps: int, share: float) -> tuple[Array, Array]:
        """Fly `steps` steps, a `share` of the vehicles by the policy.

        Returns:
            observations (M, 31), and the expert's actions for them (M, 4).
        """
        races, scaling = self._races, self._scaling
        seen, expert_actions = [], []
        by_policy = np.arange(races.n) < share * races.n
        for _ in range(steps):
            observation = races.observe()
            with torch.no_grad():
                own = net.mean(torch.as_tensor(observation, dtype=torch.float32)).numpy()
            ahead = self.ahead()
            off = self._follow(ahead)
            u = self._expert.input(ahead, self._at)
            action = np.column_stack([2 * u[:, 3] / scaling.thrust_max_m_s2 - 1, u[:, :3] / scaling.rate_max_rad_s])
            seen.append(observation)
            expert_actions.append(action)
            over = self._fly(np.clip(np.where(by_policy[:, None], own, action), -1.0, 1.0)) | (off > ASTRAY_M)
            over |= (self._age > FLIGHT) & (self._rng.random(races.n) < 0.02)
            if over.any():
                self._place(np.flatnonzero(over))
        return np.concatenate(seen), np.concatenate(expert_actions)

    def ahead(self) -> Array:
        """Predict the states (N, 14) at the time when a command sent now begins to act."""
        x = self._state()
        for u, wait_s in zip(self._before[1:], self._waits_s, strict=True):
            x = flown(x, u, self._vehicle, wait_s)
        return x

    def _state(self) -> Array:
        """Return the states (N, 14) as RATES_X, with the model's thrust."""
        return np.column_stack([self._races.state[:, :C], self._thrust])

    def _follow(self, ahead: Array) -> Array:
        """Advance the progress along the plan to states (N, 14); return their distances (N,) m from it."""
        self._at = self._expert.nearest(ahead, self._at)
        self._at += self._at < PAD  # at rest the nearest point would never advance
        return np.asarray(np.linalg.norm(ahead[:, P] - self._expert.x[self._at, P], axis=1))

    def _fly(self, action: Array) -> Array:
        """Fly one step by actions (N, 4); return the vehicles (N,) whose flight has ended."""
        scaling, vehicle, first_s = self._scaling, self._vehicle, self._waits_s[0]
        u = np.column_stack([action[:, 1:] * scaling.rate_max_rad_s, (action[:, 0] + 1) * scaling.thrust_max_m_s2 / 2])
        expected = flown(self._state(), self._before[1], vehicle, first_s)
        self._before = np.concatenate([self._before[1:], u[None]])
        self._thrust = flown(expected, self._before[1], vehicle, self._dt - first_s)[:, C]
        step = self._races.step(action)
        self._age += 1
        ended: Array = step.terminated | step.truncated | (self._at >= len(self._expert.t) - LAST)
        return ended

    def _place(self, which: Array) -> None:
        """Restart vehicles `which` (k,) on the plan, one in six on the pad."""
        races, expert, rng, k = self._races, self._expert, self._rng, len(which)
        at = np.where(rng.random(k) < 1 / 6, 0, rng.integers(0, len(expert.t) - LAST, k))
        x = expert.x[at].copy()
        x[:, P] += rng.uniform(-1.0, 1.0, (k, 3)) * START_M
        x[:, V] += rng.uniform(-1.0, 1.0, (k, 3)) * START_M_S * (at > 0)[:, None]
        x[:, Q] = turned(rng.uniform(-1.0, 1.0, (k, 3)) * START_RAD, x[:, Q])
        passed = np.searchsorted(self._gates_s, expert.t[at], side="right")
        races.begin(which, x, passed % self._gates)
        self._at[which], self._age[which] = at, 0
        self._before[:, which], self._thrust[which] = [0.0, 0.0, 0.0, GRAVITY], GRAVITY


def fit(
    net: ActorCritic, observation: Array, action: Array, epochs: int, rate: float, generator: torch.Generator
) -> float:
    """Fit the policy's mean to actions (N, 4) by Adam, with a learning rate falling to 0; return the last epoch's rms error."""
    x, y = (torch.as_tensor(a, dtype=torch.float32) for a in (observation, action))
    optimiser = torch.optim.Adam(net.actor.parameters(), rate)
    total = 0.0
    for epoch in range(epochs):
        optimiser.param_groups[0]["lr"] = rate * (1 - epoch / epochs)
        total = 0.0
        for pick in torch.randperm(len(x), generator=generator).split(BATCH):
            loss = (net.mean(x[pick]) - y[pick]).square().mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += loss.item() * len(pick)
    return float((total / len(x)) ** 0.5)
