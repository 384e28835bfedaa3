"""Motion detection on the pad, robust to IMU noise: compares means, and allows for the difference that noise explains."""

from collections import deque

import numpy as np

from gate_racer.link.messages import Imu
from gate_racer.vehicle.rotation import Array

MOVED = np.array([1.5, 1.5, 1.5, 0.3, 0.3, 0.3])  # m/s^2 and rad/s, largest change of the mean at rest
SAMPLES = 12  # samples in a mean: 0.1 to 0.2 s
SURE = 5.0  # standard deviations of the difference of two means that noise explains


class RestWatch:
    """Comparison of the newest samples with the first ones."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Restart the rest."""
        self._first = list[Array]()
        self._newest: deque[Array] = deque(maxlen=SAMPLES)

    def moved(self, sample: Imu) -> bool:
        """Return whether this sample and those just before it show motion since the first ones."""
        row = np.array([*sample.accel, *sample.gyro])
        if len(self._first) < SAMPLES:
            self._first.append(row)
        self._newest.append(row)
        first, newest = np.array(self._first), np.array(self._newest)
        steps = np.diff(first, axis=0) if len(first) > 1 else np.zeros((1, len(row)))
        # A difference holds the noise of two samples, as that of two means does.
        noise = SURE * np.sqrt((steps**2).mean(axis=0) / len(first))
        return bool((np.abs(newest.mean(axis=0) - first.mean(axis=0)) > MOVED + noise).any())
