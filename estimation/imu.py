"""One sample of the IMU, and which samples are possible readings."""

import math
from dataclasses import dataclass

from link.messages import Imu
from vehicle.rotation import Array

GYRO_LIMIT = 60.0  # rad/s, twice what a racing vehicle can do: anything above is an impact or an error
ACCEL_LIMIT = 300.0  # m/s^2, three times the strongest racing vehicle's thrust, likewise
REPEATS_S = 0.03  # s; samples of equal values for longer than this are no repeats: the readings stand
LONGEST_STEP_S = 0.1  # s; a longer gap is flown through with the last sample, and counted


@dataclass(frozen=True, slots=True)
class ImuReading:
    """One IMU sample as arrays."""

    t: float
    accel: Array  # (3,) m/s^2, specific force, body FRD
    gyro: Array  # (3,) rad/s
    step: float = 0.0  # s from the sample before, when a part of that way counts as such
    predicted: bool = False  # by a model, where no sample has come

    def until(self, later: "ImuReading", t: float) -> "ImuReading":
        """The reading at t, on the line from this one to a later one."""
        s = (t - self.t) / (later.t - self.t)
        accel, gyro = self.accel + s * (later.accel - self.accel), self.gyro + s * (later.gyro - self.gyro)
        return ImuReading(t, accel, gyro, later.step, later.predicted)


def plausible(sample: Imu) -> bool:
    """Whether a sample is a possible reading. Comparisons with NaN are false."""
    return (
        sample.t < math.inf
        and all(abs(value) < ACCEL_LIMIT for value in sample.accel)
        and all(abs(value) < GYRO_LIMIT for value in sample.gyro)
    )
