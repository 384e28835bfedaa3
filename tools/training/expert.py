"""Linear-quadratic regulator about a plan, for many vehicles at once: the expert for imitation learning.

    u = u_r + K (x (-) x_r),    K by the discrete Riccati equation along the plan (Anderson and Moore 1990, ch. 2)

at the point of the plan nearest to the state. Its gains are low: fast changes of rates cost rotor thrust, which the `rates` model
does not include.
"""

import numpy as np

from gate_racer.planner.plan import Plan
from gate_racer.vehicle.dynamics import RATES_X, rates, rk4
from gate_racer.vehicle.rotation import Array, conjugate, product
from gate_racer.vehicle.vehicle import Vehicle

P, Q, V = (RATES_X[name].at for name in "pqv")
TURNING = slice(RATES_X["w"].at.start, RATES_X["c"].at.stop)  # body rates and thrust
BEHIND_S, AHEAD_S = 0.1, 0.25  # s of plan time about the last progress, range of the search for the nearest point
VELOCITY_S = 0.15  # s, weight of a velocity difference relative to a position difference in that search (chosen)
# Weights of the regulator: inverse squares of equally bad errors, of position (m), attitude (rad), velocity (m/s), body rates
# (rad/s) and thrust (m/s^2), and of commanded rates and thrust relative to the plan's. Chosen.
ERRORS = 1 / np.array([0.3] * 3 + [0.4] * 3 + [1.5] * 3 + [8.0] * 3 + [20.0]) ** 2
INPUTS = 1 / np.array([2.0, 2.0, 1.0, 8.0]) ** 2
PARTS = 2  # Runge-Kutta steps of the model per step of the environment


def error(x: Array, reference: Array) -> Array:
    """Return errors (N, 13) of states from references (N, 14): position, rotation vector (body), velocity, rates, thrust."""
    q = np.stack(product(conjugate(reference[:, Q].T), x[:, Q].T), axis=1)
    q *= np.where(q[:, :1] < 0, -1.0, 1.0)
    norm = np.linalg.norm(q[:, 1:], axis=1, keepdims=True)
    turn = 2 * np.arctan2(norm, q[:, :1]) / np.maximum(norm, 1e-9) * q[:, 1:]
    return np.column_stack(
        [x[:, P] - reference[:, P], turn, x[:, V] - reference[:, V], x[:, TURNING] - reference[:, TURNING]]
    )


def moved(x: Array, step: Array) -> Array:
    """Return states (N, 14) displaced by errors (N, 13): the inverse of `error`."""
    found = x + 0.0
    found[:, P] += step[:, :3]
    half = step[:, 3:6] / 2
    q = np.stack(product(x[:, Q].T, (np.ones(len(x)), *half.T)), axis=1)
    found[:, Q] = q / np.linalg.norm(q, axis=1, keepdims=True)
    found[:, V] += step[:, 6:9]
    found[:, TURNING] += step[:, 9:13]
    return found


def flown(x: Array, u: Array, vehicle: Vehicle, dt: float) -> Array:
    """Predict states (N, 14) over dt (s), with inputs (N, 4) held, by the `rates` model."""
    rows = list(x.T)
    for _ in range(PARTS):
        rows = rk4(rates, rows, list(u.T), vehicle.rates_parameters, dt / PARTS)
    found = np.stack(np.broadcast_arrays(*rows), axis=1)
    found[:, Q] /= np.linalg.norm(found[:, Q], axis=1, keepdims=True)
    return found


class Expert:
    """Regulator about one plan, without memory: its input is a function of the state and the point of the plan."""

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
        """Return the gains (M, 4, 13) along the plan, by the Riccati recursion."""
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
        """Return indices (N,) of the points of the plan nearest to states (N, 14), searched about the last ones (N,)."""
        window = np.arange(-round(BEHIND_S / self._dt), round(AHEAD_S / self._dt) + 1)
        at = np.clip(last[:, None] + window, 0, len(self.t) - 1)
        near = self.x[at]
        far = ((near[..., P] - x[:, None, P]) ** 2).sum(-1) + VELOCITY_S**2 * ((near[..., V] - x[:, None, V]) ** 2).sum(
            -1
        )
        return at[np.arange(len(x)), far.argmin(1)]

    def input(self, x: Array, at: Array) -> Array:
        """Return rates and thrust (N, 4) in states (N, 14), at points `at` (N,) of the plan."""
        found = self.u[at] + np.einsum("nij,nj->ni", self.gain[at], error(x, self.x[at]))
        return np.clip(found, [*-self._limit[:3], 0.0], self._limit)
