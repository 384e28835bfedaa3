"""Delay compensation: prediction of the state at the time at which a command issued now acts.

Sun et al. (T-RO 2022, table V) lose 68 % of runs at 50 ms without it. The model is integrated over the inputs already
sent; thrust, which no sensor measures, is predicted in the same way.
"""

from collections import deque
from collections.abc import Iterator
from math import ceil, exp, inf

import numpy as np

from gate_racer.mpc.model import PARAMETERS, Integrator
from gate_racer.vehicle.dynamics import G_W, RATES_X
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import Vehicle

MEMORY_S = 0.3  # s, age of its successor at which a sent input is dropped: beyond delay, lags and the age of a state
LONGEST_STEP_S = 0.05  # s, longest integration step
SAMPLE_S, SLOPE_S = 0.01, 0.001  # s, between two predicted readings; s, of the finite difference for the acceleration
C, Q, V, W = RATES_X["c"].at.start, RATES_X["q"].at, RATES_X["v"].at, RATES_X["w"].at
THRUST_SCALE = PARAMETERS["thrust_scale"].at.start


class Predictor:
    """History of the inputs sent, with the commanded thrust behind its lag, and the prediction over it."""

    def __init__(self, vehicle: Vehicle):
        self.delay_s, self._lag = vehicle.command_delay_s, vehicle.thrust_lag_s
        self._sent: deque[tuple[float, Array]] = deque([(-inf, np.zeros(4))])  # (s, input)
        self._thrust, self._thrust_time = 0.0, -inf  # m/s^2, commanded, behind its lag, unscaled; s
        self._step = Integrator()

    @property
    def acting(self) -> Array:
        """Input (4,) that acted last in the most recent prediction."""
        return self._step.u

    def sent(self, t: float, u: Array) -> None:
        """Record an input (4,) sent at t, s; it replaces later ones, sent for a time that did not come."""
        while self._sent[-1][0] >= t:
            self._sent.pop()
        self._sent.append((t, u))

    def thrust_at(self, t: float) -> float:
        """Return the commanded thrust behind its lag at t, s, in m/s^2. Call with non-decreasing times."""
        begin = self._thrust_time if self._thrust_time > -inf else t
        for start, stop, u in self._pieces(begin, t, self.delay_s):
            self._thrust = float(u[3] + (self._thrust - u[3]) * exp(-(stop - start) / self._lag))
        self._thrust_time = t
        self._forget(t)
        return self._thrust

    def ahead(self, t: float, x: Array, parameters: Array, age: float = 0.0) -> Array:
        """Predict the state (14,) at t + delay from x (14,) at t - age; the thrust entry of x is ignored."""
        state = x.copy()
        state[C] = parameters[THRUST_SCALE] * self.thrust_at(t - age)
        return self.fly(state, t - age, t + self.delay_s, parameters)

    def fly(self, x: Array, begin: float, end: float, parameters: Array) -> Array:
        """Predict the state (14,) at `end` from x (14,) at `begin`, s, under the inputs that act in between."""
        step = self._step
        step.p[:] = parameters
        for start, stop, u in self._pieces(begin, end, self.delay_s):
            step.u[:] = u
            parts = ceil((stop - start) / LONGEST_STEP_S)
            for _ in range(parts):
                x = step(x, (stop - start) / parts)
        x[Q] /= np.sqrt(x[Q] @ x[Q])
        return x

    def readings(self, x: Array, begin: float, end: float, parameters: Array) -> list[tuple[float, Array, Array]]:
        """Predict IMU readings along the trajectory of `fly`, every `SAMPLE_S` after `begin`, before `end`.

        Returns:
            (time s, specific force (3,) m/s^2, body rates (3,) rad/s), body FRD.
        """
        x = x.copy()
        x[C] = parameters[THRUST_SCALE] * self.thrust_at(begin)
        readings = []
        for k in range(1, ceil((end - begin) / SAMPLE_S)):
            t = begin + k * SAMPLE_S
            x = self.fly(x, t - SAMPLE_S, t, parameters)
            slope = (self.fly(x, t, t + SLOPE_S, parameters)[V] - x[V]) / SLOPE_S
            readings.append((t, matrix(x[Q]).T @ (slope - G_W), x[W].copy()))
        return readings

    def rates_after(self, w: Array, begin: float, end: float, delay_s: Array, lag_s: Array) -> tuple[Array, Array]:
        """Predict body rates (M, 3), rad/s, at `end` from w (3,) at `begin`, s, for M delays (M,), s, and lags (M, 3), s.

        First-order lags are linear: with E(t) = exp((t - end) / lag), and input u_k from t_k to t_{k + 1},

            w(end) = E(begin) w + sum_k (E(t_{k + 1}) - E(t_k)) u_k

        Returns:
            The rates, and those (M, 3) that are commanded at `end`.
        """
        times, rates = np.array([t for t, _ in self._sent]), np.array([u[:3] for _, u in self._sent])
        edges = np.full((len(delay_s), len(times) + 1), end)
        edges[:, :-1] = np.clip(times + delay_s[:, None], begin, end)
        edges[:, 0] = begin
        kept = np.exp((edges - end)[:, :, None] / lag_s[:, None, :])
        acting = rates[np.maximum(times.searchsorted(end - delay_s, side="right") - 1, 0)]
        return kept[:, 0] * w + np.einsum("mki,ki->mi", np.diff(kept, axis=1), rates), acting

    def _pieces(self, begin: float, end: float, delay_s: float) -> Iterator[tuple[float, float, Array]]:
        """Yield (start, stop, input) of each interval of constant input between two times."""
        sent = self._sent
        for k, (at, u) in enumerate(sent):
            if at + delay_s >= end:
                return
            until = sent[k + 1][0] + delay_s if k + 1 < len(sent) else inf
            if until > begin:
                yield max(at + delay_s, begin), min(until, end), u

    def _forget(self, t: float) -> None:
        while len(self._sent) > 1 and self._sent[1][0] < t - MEMORY_S:
            self._sent.popleft()
