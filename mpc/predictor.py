"""What the vehicle will do before a command of now can act: the state one command delay ahead.

Sun et al. (T-RO 2022, table V) lose 68 % of runs at 50 ms without it. The inputs already sent are known, so the model
flies them; thrust, which no sensor gives, is carried along the same way.
"""

from collections import deque

import numpy as np

from vehicle.dynamics import RATES_X, rates, rk4
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

MEMORY_S = 1.0  # inputs older than this cannot matter any more
LONGEST_STEP_S = 0.02  # of the Runge-Kutta integration, under every lag of a racing drone
C, Q = RATES_X["c"].at.start, RATES_X["q"].at


class Predictor:
    """Remembers the inputs sent and the thrust that they have built up."""

    def __init__(self, vehicle: Vehicle):
        self._delay, self._parameters = vehicle.command_delay_s, vehicle.rates_parameters
        self._sent: deque[tuple[float, Array]] = deque([(-np.inf, np.zeros(4))])  # (time it acts, input)
        self._thrust, self._thrust_time = 0.0, -np.inf

    def sent(self, t: float, u: Array) -> None:
        """Notes an input (4,) sent at t, s."""
        self._sent.append((t + self._delay, u))

    def ahead(self, t: float, x: Array) -> Array:
        """The state (14,) at t + delay from the state at t, whose thrust entry is ignored."""
        self._forget(t)
        state = list(x)
        state[C] = self._thrust_at(t)
        state = self._fly(state, t, t + self._delay)
        result = np.array(state)
        result[Q] /= np.linalg.norm(result[Q])
        return result

    def _pieces(self, begin: float, end: float):
        """(start, stop, input) of each stretch of held input between two times."""
        for k, (acts, u) in enumerate(self._sent):
            until = self._sent[k + 1][0] if k + 1 < len(self._sent) else np.inf
            start, stop = max(acts, begin), min(until, end)
            if stop > start:
                yield start, stop, u

    def _fly(self, state: list, begin: float, end: float) -> list:
        for start, stop, u in self._pieces(begin, end):
            steps = int(np.ceil((stop - start) / LONGEST_STEP_S))
            for _ in range(steps):
                state = rk4(rates, state, list(u), self._parameters, (stop - start) / steps)
        return state

    def _thrust_at(self, t: float) -> float:
        """First-order lag through the inputs that have acted since it was last asked for."""
        begin = self._thrust_time if np.isfinite(self._thrust_time) else t
        for start, stop, u in self._pieces(begin, t):
            self._thrust = u[3] + (self._thrust - u[3]) * np.exp(-(stop - start) / self._parameters.thrust_lag)
        self._thrust_time = t
        return self._thrust

    def _forget(self, t: float) -> None:
        while len(self._sent) > 1 and self._sent[1][0] < t - MEMORY_S:
            self._sent.popleft()
