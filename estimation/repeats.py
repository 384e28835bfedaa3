"""Samples that repeat the last one's values under a new stamp: the real builds send 120 a second, of which 76 are fresh.

A repeat is no measurement. For the time being the readings go on as the last two true ones have changed, and the next true one
is integrated anew from the last of them. Equal values for longer than that are true: a vehicle at rest, without noise.
"""

from dataclasses import replace

import numpy as np

from estimation.estimator import REPEATS_S
from estimation.states import Reading


class Repeats:
    """Feed it every reading, in order."""

    def __init__(self, first: Reading):
        self._before, self._last = replace(first, t=first.t - 2 * REPEATS_S), first  # the last two that were measured

    def heard(self, reading: Reading, now: float) -> tuple[Reading, float]:
        """The reading to fly with, and the time after which what was flown until now was a guess, s."""
        before, last = self._before, self._last
        if not (np.array_equal(last.accel, reading.accel) and np.array_equal(last.gyro, reading.gyro)):
            self._before, self._last = last, reading
            return reading, last.t if now - last.t <= REPEATS_S else now
        apart = last.t - before.t
        if reading.t - last.t > REPEATS_S or apart > REPEATS_S:
            return reading, now
        guess = before.until(last, min(reading.t, last.t + apart))  # no farther than the two are apart
        return replace(guess, t=reading.t), now
