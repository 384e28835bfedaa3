"""Time management of the error-state filter: its state at the last exposure, and the IMU readings since then.

An image moves the state along them to its own exposure and corrects it there; the present is then integrated again. Without
images the state stays `BEHIND_S` behind the present, so that each IMU sample costs the same.
"""

from collections import deque
from itertools import pairwise

import numpy as np

from gate_racer.estimation.eskf.filter_state import FilterState, propagate
from gate_racer.estimation.eskf.noise import Noise
from gate_racer.estimation.eskf.states import Nominal
from gate_racer.estimation.eskf.strapdown import integrated
from gate_racer.estimation.imu import ImuReading
from gate_racer.vehicle.rotation import Array

BEHIND_S = 0.4  # s, greatest age of an image when no newer one was used: up to 0.26 s was measured on a busy machine


class Propagator:
    """Delayed filter state: `append` readings, `step` the state along them, and `correct` it there."""

    def __init__(self, state: FilterState, noise: Noise):
        self.noise = noise
        self._state = state
        self._since = deque[tuple[Nominal, ImuReading]]()  # integrated states up to the present, step by step
        self._stale = False  # whether the state was corrected after these were integrated

    @property
    def state(self) -> FilterState:
        """Filter state at the last exposure, or later."""
        return self._state

    def correct(self, state: FilterState) -> None:
        """Replace the state at its own time; the present is integrated again when needed."""
        self._stale |= state.x is not self._state.x
        self._state = state

    def stand(self, t: float, reading: ImuReading) -> None:
        """Hold the state at rest until t (s)."""
        x = self._state.x
        self._state = FilterState(Nominal(t, x.q_wb, x.values), self._state.cov, reading)

    @property
    def now(self) -> tuple[Nominal, ImuReading]:
        """Nominal state at the newest reading, and that reading."""
        if self._stale:
            self._replay()
        return self._since[-1] if self._since else (self._state.x, self._state.reading)

    @property
    def t(self) -> float:
        """Time of the newest reading, s."""
        return self._since[-1][1].t if self._since else self._state.reading.t

    @property
    def behind(self) -> bool:
        """Whether the state is more than `BEHIND_S` behind the present."""
        return self.t - self._state.reading.t > BEHIND_S

    def append(self, reading: ImuReading) -> None:
        """Integrate to a newer reading."""
        x, last = self.now
        self._since.append((integrated(x, last, reading), reading))

    def forget(self, t: float) -> None:
        """Drop the readings after t (s), which were provisional."""
        while self._since and self._since[-1][1].t > t:
            self._since.pop()

    def step(self, t: float) -> bool:
        """Move the state by one reading, or by the part of it up to t (s); return False if there is none before t."""
        if not self._since or t <= self._state.reading.t:
            return False
        x, reading = self._since[0]
        if reading.t <= t:
            self._since.popleft()
            if self._stale:
                x = integrated(self._state.x, self._state.reading, reading)
        else:
            reading = self._state.reading.until(reading, t)
            x = integrated(self._state.x, self._state.reading, reading)
        self._state = propagate(self._state, x, reading, self.noise.growth(self._state.reading, reading))
        return True

    def present(self) -> FilterState:
        """Return all states and their covariance at the newest reading: F over the whole interval, Q summed over its steps."""
        x, reading = self.now
        if not self._since:
            return self._state
        readings = [self._state.reading, *(reading for _, reading in self._since)]
        growth: Array = np.asarray(sum(self.noise.growth(a, b) for a, b in pairwise(readings)))
        return propagate(self._state, x, reading, growth)

    def _replay(self) -> None:
        self._stale = False
        x, last = self._state.x, self._state.reading
        for k, (_, reading) in enumerate(self._since):
            x, last = integrated(x, last, reading), reading
            self._since[k] = x, reading
