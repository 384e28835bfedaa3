"""Statistics of an IMU at rest: the mean gives the biases, the standard deviation the noise.

A vehicle's file states the nominal noise. That of a simulator may be several times greater, and a filter with too small a noise
is overconfident in both its biases and its integration.
"""

import math
from dataclasses import replace

import numpy as np

from gate_racer.estimation.imu import ImuReading
from gate_racer.vehicle.rotation import Array, from_euler
from gate_racer.vehicle.vehicle import ImuParameters

FEWEST = 30  # samples for a noise estimate: a relative standard error of 1 / sqrt(2 n), about 1/8


class Rest:
    """Running mean and variance of all samples. Repeats of the last values count only if no other values ever arrive."""

    def __init__(self) -> None:
        self._all = self._fresh = 0
        self._last = np.full(6, np.nan)
        self._sum, self._squares = np.zeros(6), np.zeros(6)  # relative to the first sample
        self._first = np.zeros(6)

    def add(self, reading: ImuReading) -> None:
        """Add a reading; accelerations in m/s^2, rates in rad/s, body FRD."""
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
        """Number of measurements in the mean."""
        return self._all if self._fresh == 1 else self._fresh

    @property
    def mean(self) -> tuple[Array, Array]:
        """Mean specific force (3,) m/s^2 and angular rate (3,) rad/s, body FRD."""
        mean = self._first + self._sum / max(self._fresh, 1)
        return mean[:3], mean[3:]

    def noise(self, imu: ImuParameters) -> ImuParameters:
        """Return the IMU's parameters with noise no smaller than observed (root mean square over the three axes)."""
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
    """Return the attitude (4,) at rest with zero yaw, from the specific force (3,), body FRD, alone."""
    down_b = -np.asarray(accel) / max(float(np.linalg.norm(accel)), 1e-9)
    return from_euler(math.atan2(down_b[1], down_b[2]), -math.asin(max(-1.0, min(1.0, float(down_b[0])))), 0.0)
