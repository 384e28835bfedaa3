"""Selection of IMU samples that are measurements, neither repeats nor spikes, and their statistics at rest.

At rest the mean gives the biases, the standard deviation the noise. A vehicle's file states the nominal noise; that of a
simulator may be several times greater, and a filter with too small a noise is overconfident in its biases and its integration.

Repeats: the real builds send 120 samples a second, of which 76 are fresh. A repeat is not a measurement: a reading extrapolated
from the last two fresh ones replaces it provisionally. Equal values for longer are true: a vehicle at rest.

Spikes: rates and forces follow commands with first-order lags, so from one sample to the next they change by no more than
(greatest value / lag) dt and some noise, roll and pitch rates by twice that in a turn to and fro, which yaw never makes. One that
changes by more is held back, and the last one is used in its place. If the next one agrees with the one held back, more than with
the last, the change was true and both are used; otherwise it was a fault, and is rejected.

In either case the next measurement is integrated again from the last one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.model.imu import REPEATS_S, ImuReading
from gate_racer.vehicle.rotation import Array, from_euler
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle

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


# rad/s and m/s^2: changes within noise and vibration, six standard deviations of a low-grade IMU.
NOISE_GYRO, NOISE_ACCEL = 0.3, 5.0


@dataclass(frozen=True)
class Agility:
    """Greatest rates of change of IMU readings."""

    gyro: tuple[float, float, float]  # rad/s^2, about each axis
    accel: float  # m/s^3

    @classmethod
    def of(cls, vehicle: Vehicle) -> "Agility":
        """Return the rates that the vehicle's limits and lags allow: of roll and pitch also in a turn from limit to limit."""
        x, y, z = (rate / lag for rate, lag in zip(vehicle.rate_max_rad_s, vehicle.rate_lag_s, strict=True))
        return cls((2 * x, 2 * y, z), vehicle.thrust_max / vehicle.thrust_lag_s)

    def allows(self, a: ImuReading, b: ImuReading) -> bool:
        """Check whether the change from reading a to b is within the vehicle's dynamics."""
        dt = b.t - a.t
        turned = zip((b.gyro - a.gyro).tolist(), self.gyro, strict=True)
        pushed = (b.accel - a.accel).tolist()
        return all(abs(by) <= most * dt + NOISE_GYRO for by, most in turned) and all(
            abs(by) <= self.accel * dt + NOISE_ACCEL for by in pushed
        )


class ImuSamples:
    """Filter of repeats and spikes. Pass every reading, in order."""

    def __init__(self, first: ImuReading, agility: Agility | None):
        """Start from a `first` reading. Without `agility` no reading is rejected as a spike."""
        self._before, self._last = replace(first, t=first.t - 2 * REPEATS_S), first  # the last two fresh readings
        self._standing = first  # the last reading, true repeats included
        self._agility = agility
        self._held_back: ImuReading | None = None  # until the next reading decides whether it was a spike
        self.spikes = 0  # readings rejected

    def accept(self, reading: ImuReading, now: float) -> tuple[list[ImuReading], float]:
        """Return the readings to integrate, and the time (s) after which those integrated so far were provisional."""
        last, held_back = self._last, self._held_back
        if _equal(reading, last):
            self._refuse()
            return [self._going_on(reading)], now
        if held_back is not None and self._confirmed(held_back, reading):
            self._held_back = None
            return [self._measured(held_back), self._measured(reading)], last.t
        if self._agility is None or self._agility.allows(self._standing, reading):
            self._refuse()
            return [self._measured(reading)], last.t if now - last.t <= REPEATS_S else now
        if held_back is None or not _equal(reading, held_back):
            self._refuse()
            self._held_back = reading
        return [replace(last, t=reading.t)], now

    def _confirmed(self, held_back: ImuReading, reading: ImuReading) -> bool:
        """Check whether a later reading confirms the one held back; a repeat of it does so after `REPEATS_S` only."""
        assert self._agility is not None
        if _equal(reading, held_back):
            return reading.t - held_back.t > REPEATS_S
        nearer = _apart(held_back, reading) < _apart(self._standing, reading)
        return nearer and self._agility.allows(held_back, reading)

    def _refuse(self) -> None:
        self.spikes += self._held_back is not None
        self._held_back = None

    def _measured(self, reading: ImuReading) -> ImuReading:
        self._before, self._last, self._standing = self._last, reading, reading
        return reading

    def _going_on(self, reading: ImuReading) -> ImuReading:
        before, last = self._before, self._last
        apart = last.t - before.t
        if reading.t - last.t > REPEATS_S or apart > REPEATS_S:
            self._standing = reading
            return reading
        # Extrapolated by at most the interval between the two.
        return replace(before.until(last, min(reading.t, last.t + apart)), t=reading.t)


def _apart(a: ImuReading, b: ImuReading) -> float:
    """Return the difference of two readings, over noise and vibration."""
    turned, pushed = np.linalg.norm(a.gyro - b.gyro), np.linalg.norm(a.accel - b.accel)
    return float(turned / NOISE_GYRO + pushed / NOISE_ACCEL)


def _equal(a: ImuReading, b: ImuReading) -> bool:
    return bool((a.gyro == b.gyro).all() and (a.accel == b.accel).all())
