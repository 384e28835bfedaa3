"""What an IMU reads at rest: its mean tells the biases, its spread the noise.

A vehicle's file states the noise of the vehicle as it is known. What a simulator sends may be several times that, and a filter
that does not know trusts both its biases and its integration too much.
"""

import math
from dataclasses import replace

import numpy as np

from estimation.imu import ImuReading
from vehicle.rotation import Array, from_euler
from vehicle.vehicle import ImuParameters

FEWEST = 30  # measurements behind a spread: it is good to an eighth then


class Rest:
    """Feed it every sample. Repeats of the last values are no measurements of their own, unless nothing else ever comes."""

    def __init__(self) -> None:
        self._all = self._fresh = 0
        self._last = np.full(6, np.nan)
        self._sum, self._squares = np.zeros(6), np.zeros(6)  # about the first one
        self._first = np.zeros(6)

    def add(self, reading: ImuReading) -> None:
        values = np.concatenate([reading.accel, reading.gyro])
        self._all += 1
        if np.array_equal(values, self._last):
            return
        if not self._fresh:
            self._first = values
        self._fresh += 1
        self._last, off = values, values - self._first
        self._sum, self._squares = self._sum + off, self._squares + off**2

    @property
    def samples(self) -> int:
        """Measurements behind the mean."""
        return self._all if self._fresh == 1 else self._fresh

    @property
    def mean(self) -> tuple[Array, Array]:
        """Accelerometer (3,) m/s^2 and gyro (3,) rad/s."""
        mean = self._first + self._sum / max(self._fresh, 1)
        return mean[:3], mean[3:]

    def noise(self, imu: ImuParameters) -> ImuParameters:
        """An IMU whose noise is at least what was seen, all three axes together."""
        n = self._fresh
        if n < FEWEST:
            return imu
        accel, gyro = np.sqrt(((self._squares - self._sum**2 / n) / (n - 1)).reshape(2, 3).mean(1)).tolist()
        return replace(
            imu,
            accel_noise_m_s2=max(imu.accel_noise_m_s2, accel),
            gyro_noise_rad_s=max(imu.gyro_noise_rad_s, gyro),
        )


def levelled(accel: Array) -> Array:
    """The attitude (4,) at rest, of yaw zero, from the specific force (3,) alone."""
    down_b = -np.asarray(accel) / max(float(np.linalg.norm(accel)), 1e-9)
    return from_euler(math.atan2(down_b[1], down_b[2]), -math.asin(max(-1.0, min(1.0, float(down_b[0])))), 0.0)
