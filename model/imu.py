"""IMU samples as arrays, and the check for physically possible readings."""

import math
from dataclasses import dataclass

from gate_racer.link.messages import Imu
from gate_racer.vehicle.rotation import Array

GYRO_LIMIT = 60.0  # rad/s, twice the greatest rate of a racing vehicle: a reading above is an impact or an error
ACCEL_LIMIT = 300.0  # m/s^2, three times the greatest thrust of a racing vehicle, likewise
REPEATS_S = 0.03  # s; equal values for longer are true readings at rest, and missing ones in flight
LONGEST_STEP_S = 0.1  # s; a longer gap is integrated with the adjacent samples, and counted


@dataclass(frozen=True, slots=True)
class ImuReading:
    """One IMU sample as arrays."""

    t: float  # s
    accel: Array  # (3,) m/s^2, specific force, body FRD
    gyro: Array  # (3,) rad/s, body FRD
    step: float = 0.0  # s, full interval between the two samples, also for a reading interpolated within it
    predicted: bool = False  # by a model, in place of a missing sample

    def until(self, later: "ImuReading", t: float) -> "ImuReading":
        """Return the reading at t (s), interpolated linearly between this one and a later one."""
        s = (t - self.t) / (later.t - self.t)
        accel, gyro = self.accel + s * (later.accel - self.accel), self.gyro + s * (later.gyro - self.gyro)
        return ImuReading(t, accel, gyro, later.step, later.predicted)


def plausible(sample: Imu) -> bool:
    """Check whether a sample is a possible reading. NaN fails every comparison."""
    return (
        sample.t < math.inf
        and all(abs(value) < ACCEL_LIMIT for value in sample.accel)
        and all(abs(value) < GYRO_LIMIT for value in sample.gyro)
    )


class StandingImu:
    """Detection of values that stand still under new stamps, which no sensor in flight measures: its samples are missing."""

    def __init__(self) -> None:
        self._fresh: Imu | None = None  # first sample of the newest values

    def stands(self, sample: Imu) -> bool:
        """Return whether a sample repeats values for longer than the link repeats samples. Pass every sample."""
        fresh = self._fresh
        if fresh is None or (sample.accel, sample.gyro) != (fresh.accel, fresh.gyro) or sample.t < fresh.t:
            self._fresh = fresh = sample
        return sample.t - fresh.t > REPEATS_S
