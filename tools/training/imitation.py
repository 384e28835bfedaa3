"""A first policy from a plan: DAgger (Ross et al. 2011, arXiv:1011.0686), a linear-quadratic regulator about the plan as expert.

The expert knows the commands that are still to act and predicts over them; the policy gets Swift's observation. Half of the
vehicles fly by the policy, so that its own mistakes come into the examples. PPO goes on from there.
"""

import math

import numpy as np
import torch

from mpc.policy.interface import Scaling
from planner.plan import Plan
from sim.environment.racing import RacingEnvironment
from sim.environment.starts import turned
from tools.training.ppo import ActorCritic
from tracks.track import Track
from vehicle.dynamics import GRAVITY, RATES_X, rates, rk4
from vehicle.rotation import Array, conjugate, product
from vehicle.vehicle import Vehicle

P, Q, V = (RATES_X[name].at for name in "pqv")
TURNING = slice(RATES_X["w"].at.start, RATES_X["c"].at.stop)  # body rates and thrust
BEHIND_S, AHEAD_S = 0.1, 0.25  # of plan time about the last progress, in which the nearest place is sought
VELOCITY_S = 0.15  # so many m is a difference of 1 m/s worth there
# Weights of the regulator: one over the square of an error as bad as the others, of position m, attitude rad, velocity m/s,
# body rates rad/s and thrust m/s^2, and of commanded rates and thrust beside the plan's. Set by hand.
ERRORS = 1 / np.array([0.15] * 3 + [0.25] * 3 + [0.8] * 3 + [5.0] * 3 + [15.0]) ** 2
INPUTS = 1 / np.array([4.0, 4.0, 2.0, 12.0]) ** 2
START_M, START_M_S, START_RAD = 0.2, 0.6, 0.15  # bounds of what a start is off the plan by
ASTRAY_M = 1.0  # from the plan, where a vehicle begins anew
PAD = 3  # first steps of the plan, which are flown by the clock
LAST = 40  # last steps, which are left out
FLIGHT = 150  # steps that a vehicle flies at least, and 50 more on average
PARTS = 2  # Runge-Kutta steps of the model for one of the environment
BATCH = 512


def error(x: Array, reference: Array) -> Array:
    """(N, 13) of states from reference states (N, 14): position, rotation vector (body axes), velocity, rates, thrust."""
    q = np.stack(product(conjugate(reference[:, Q].T), x[:, Q].T), axis=1)
    q *= np.where(q[:, :1] < 0, -1.0, 1.0)
    norm = np.linalg.norm(q[:, 1:], axis=1, keepdims=True)
    turn = 2 * np.arctan2(norm, q[:, :1]) / np.maximum(norm, 1e-9) * q[:, 1:]
    return np.column_stack(
        [x[:, P] - reference[:, P], turn, x[:, V] - reference[:, V], x[:, TURNING] - reference[:, TURNING]]
    )


def moved(x: Array, step: Array) -> Array:
    """(N, 14) states moved by errors (N, 13): the inverse of `error`."""
    found = x + 0.0
    found[:, P] += step[:, :3]
    half = step[:, 3:6] / 2
    q = np.stack(product(x[:, Q].T, (np.ones(len(x)), *half.T)), axis=1)
    found[:, Q] = q / np.linalg.norm(q, axis=1, keepdims=True)
    found[:, V] += step[:, 6:9]
    found[:, TURNING] += step[:, 9:13]
    return found


def flown(x: Array, u: Array, vehicle: Vehicle, dt: float) -> Array:
    """(N, 14) states dt later, with inputs (N, 4) held, by the `rates` model."""
    rows = list(x.T)
    for _ in range(PARTS):
        rows = rk4(rates, rows, list(u.T), vehicle.rates_parameters, dt / PARTS)
    found = np.stack(np.broadcast_arrays(*rows), axis=1)
    found[:, Q] /= np.linalg.norm(found[:, Q], axis=1, keepdims=True)
    return found


class Expert:
    """u = u_r + K (x (-) x_r) at the place of the plan nearest to the state, by the discrete Riccati equation along it."""

    def __init__(self, plan: Plan, vehicle: Vehicle, dt: float):
        t, x, u = plan.dense(vehicle, 8)
        model = plan.flight_model(vehicle)
        u = model.commands(x, u)
        flips = np.cumprod(np.where(np.sum(x[1:, Q] * x[:-1, Q], axis=1) < 0, -1.0, 1.0))
        x[1:, Q] *= flips[:, None]
        self.t = np.arange(0.0, t[-1], dt)
        self.x = np.column_stack([np.interp(self.t, t, column) for column in x.T])
        self.x[:, Q] /= np.linalg.norm(self.x[:, Q], axis=1, keepdims=True)
        at = np.minimum(t.searchsorted(self.t, side="right") - 1, len(u) - 1)
        self.u = u[at]
        self._vehicle, self._dt = vehicle, dt
        self._limit = np.array([*vehicle.rate_max_rad_s, vehicle.thrust_max])
        self.gain = self._riccati()

    def _riccati(self) -> Array:
        """(M, 4, 13) gains along the plan."""
        x, u, dt, eps = self.x, self.u, self._dt, 1e-4
        ahead = flown(x, u, self._vehicle, dt)
        a, b = np.zeros((len(x), 13, 13)), np.zeros((len(x), 13, 4))
        for k in range(13):
            step = np.zeros((len(x), 13))
            step[:, k] = eps
            a[:, :, k] = error(flown(moved(x, step), u, self._vehicle, dt), ahead) / eps
        for k in range(4):
            b[:, :, k] = error(flown(x, u + eps * np.eye(4)[k], self._vehicle, dt), ahead) / eps
        gain, cost, weight = np.zeros((len(x), 4, 13)), np.diag(ERRORS), np.diag(INPUTS)
        for i in range(len(x) - 1, -1, -1):
            gain[i] = -np.linalg.solve(weight + b[i].T @ cost @ b[i], b[i].T @ cost @ a[i])
            closed = a[i] + b[i] @ gain[i]
            cost = np.diag(ERRORS) + gain[i].T @ weight @ gain[i] + closed.T @ cost @ closed
        return gain

    def nearest(self, x: Array, last: Array) -> Array:
        """(N,) index of the place of the plan nearest to states (N, 14), about the last ones (N,); it goes on, if slowly."""
        window = np.arange(-round(BEHIND_S / self._dt), round(AHEAD_S / self._dt) + 1)
        at = np.clip(last[:, None] + window, 0, len(self.t) - 1)
        near = self.x[at]
        far = ((near[..., P] - x[:, None, P]) ** 2).sum(-1) + VELOCITY_S**2 * ((near[..., V] - x[:, None, V]) ** 2).sum(
            -1
        )
        return at[np.arange(len(x)), far.argmin(1)]

    def input(self, x: Array, at: Array) -> Array:
        """(N, 4) rates and thrust in states (N, 14), whose places on the plan are at (N,)."""
        found = self.u[at] + np.einsum("nij,nj->ni", self.gain[at], error(x, self.x[at]))
        return np.clip(found, [*-self._limit[:3], 0.0], self._limit)


class School:
    """Vehicles that fly along a plan, some by the policy, and what the expert would do there."""

    def __init__(self, races: RacingEnvironment, plan: Plan, track: Track, vehicle: Vehicle, rng: np.random.Generator):
        """`races` must be of the plan's track and vehicle, and of the `rates` model."""
        hz = races.options.control_hz
        self._races, self._expert, self._rng = races, Expert(plan, vehicle, 1 / hz), rng
        self._vehicle, self._scaling = vehicle, Scaling.of(track, vehicle)
        self._gates_s, self._gates = plan.gate_times_s, len(track.gates)
        late = math.ceil(vehicle.command_delay_s * hz - 1e-6)
        first_s = vehicle.command_delay_s - (late - 1) / hz
        self._waits_s = [first_s] + [1 / hz] * (late - 1)  # for which each of the commands before acts, oldest first
        self._before = np.zeros((late, races.n, 4))  # those commands
        self._at = np.zeros(races.n, int)
        self.off_m = np.zeros(races.n)  # of each vehicle, from the plan
        self._age = np.zeros(races.n, int)
        races.reset()
        self._place(np.arange(races.n))

    def _place(self, which: Array) -> None:
        """Vehicles `which` (k,) begin anew on the plan, one in six on the pad."""
        races, expert, rng, k = self._races, self._expert, self._rng, len(which)
        at = np.where(rng.random(k) < 1 / 6, 0, rng.integers(0, len(expert.t) - LAST, k))
        x = expert.x[at].copy()
        x[:, P] += rng.uniform(-1.0, 1.0, (k, 3)) * START_M
        x[:, V] += rng.uniform(-1.0, 1.0, (k, 3)) * START_M_S * (at > 0)[:, None]
        x[:, Q] = turned(rng.uniform(-1.0, 1.0, (k, 3)) * START_RAD, x[:, Q])
        passed = np.searchsorted(self._gates_s, expert.t[at], side="right")
        races.begin(which, x, passed % self._gates)
        self._at[which], self._age[which] = at, 0
        self._before[:, which] = [0.0, 0.0, 0.0, GRAVITY]

    def _ahead(self) -> Array:
        """(N, 14) states when a command of now begins to act."""
        x = self._races.state.copy()
        for u, wait_s in zip(self._before, self._waits_s, strict=True):
            x = flown(x, u, self._vehicle, wait_s)
        return x

    def lesson(self, net: ActorCritic, steps: int, share: float) -> tuple[Array, Array]:
        """Fly so many steps, a share of the vehicles by the policy.

        Returns:
            observations (M, 31), and what the expert would do there: actions (M, 4).
        """
        races, expert, scaling = self._races, self._expert, self._scaling
        seen, asked = [], []
        by_policy = np.arange(races.n) < share * races.n
        for _ in range(steps):
            observation = races.observe()
            with torch.no_grad():
                own = net.mean(torch.as_tensor(observation, dtype=torch.float32)).numpy()
            ahead = self._ahead()
            self._at = expert.nearest(ahead, self._at)
            self._at += self._at < PAD  # at rest nothing moves, and so nothing would advance
            u = expert.input(ahead, self._at)
            action = np.column_stack([2 * u[:, 3] / scaling.thrust_max_m_s2 - 1, u[:, :3] / scaling.rate_max_rad_s])
            seen.append(observation)
            asked.append(action)
            flying = np.clip(np.where(by_policy[:, None], own, action), -1.0, 1.0)
            step = races.step(flying)
            inputs = np.column_stack(
                [flying[:, 1:] * scaling.rate_max_rad_s, (flying[:, 0] + 1) * scaling.thrust_max_m_s2 / 2]
            )
            self._before = np.concatenate([self._before[1:], inputs[None]])
            self._age += 1
            self.off_m = np.linalg.norm(ahead[:, P] - expert.x[self._at, P], axis=1)
            over = step.terminated | step.truncated | (self.off_m > ASTRAY_M) | (self._at >= len(expert.t) - LAST)
            over |= (self._age > FLIGHT) & (self._rng.random(races.n) < 0.02)
            if over.any():
                self._place(np.flatnonzero(over))
        return np.concatenate(seen), np.concatenate(asked)


def fit(
    net: ActorCritic, observation: Array, action: Array, epochs: int, rate: float, generator: torch.Generator
) -> float:
    """Fits the policy's mean to actions (N, 4) by Adam, whose rate falls to none; returns the last epoch's rms error."""
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
